package main

import (
	"bufio"
	"context"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// informersAcrossRestarts: what shared informers know, while the server dies and comes back.
//
// It talks with whoever restarts the server: it prints `ready` while its writers are
// at work, waits for the line `restarted`, claims what must be so, and is `ready`
// again, until the line `done` or the end of its input.
//
// With the argument `forgetful` it takes a server that forgets its history when it restarts,
// as the original's does: what happened meanwhile may then come as its outcome alone. So it may when the client
// lists anew by itself, as client-go does when a connection ends in another way than it expects; that a server
// made it do so is a failure.
func informersAcrossRestarts(s *story) {
	forgetful := len(s.args) > 0 && s.args[0] == "forgetful"
	gauges := s.definesGauges()

	// Clients of their own, so that what the informers ask for is told from what others do.
	lists := &relists{}
	typedClient, err := kubernetes.NewForConfig(s.speaking(protobuf, lists.note))
	s.must(err, "make a typed client")
	dynamicClient, err := dynamic.NewForConfig(s.speaking("application/json", lists.note))
	s.must(err, "make a dynamic client")
	typed := informers.NewSharedInformerFactoryWithOptions(typedClient, 0, informers.WithNamespace(s.namespace))
	dynamic := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamicClient, 0, s.namespace, nil)
	pairs := []*watched{
		{kind: "ConfigMap", client: s.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace),
			informer: typed.Core().V1().ConfigMaps().Informer(), lists: lists, plural: "configmaps"},
		{kind: gaugeKind, client: s.dynamic.Resource(gauges).Namespace(s.namespace),
			informer: dynamic.ForResource(gauges).Informer(), lists: lists, plural: gauges.Resource},
	}
	for _, pair := range pairs {
		pair.listen(s)
	}
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	typed.Start(ctx.Done())
	dynamic.Start(ctx.Done())
	for _, pair := range pairs {
		s.so(cache.WaitForCacheSync(ctx.Done(), pair.registration.HasSynced), "the informer of "+pair.kind+" has synced", "not synced")
	}

	input := bufio.NewScanner(os.Stdin)
	for round := 0; ; round++ {
		// They write on while the server is down, and only stop when it is back.
		back := make(chan struct{})
		for _, pair := range pairs {
			pair.startWriting(s.ctx, round, back)
		}
		time.Sleep(200 * time.Millisecond)
		say("ready")
		again := input.Scan() && strings.TrimSpace(input.Text()) == "restarted"
		close(back)
		for _, pair := range pairs {
			s.works(pair.wait(), "everything was written to each "+pair.kind+" once, whatever became of the answers")
		}
		for _, pair := range pairs {
			pair.judge(s, forgetful)
		}
		if !forgetful {
			s.same("", lists.refusedSoFar(), "no watch was refused or ended by the server")
		}
		if !again {
			return
		}
	}
}

// listen notes what the informer tells, in the order in which it does.
func (w *watched) listen(s *story) {
	var err error
	w.told = map[string][]told{}
	w.registration, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { w.note("add", nil, object) },
		UpdateFunc: func(old, new any) {
			w.note("update", old, new)
		},
		DeleteFunc: func(object any) {
			verb := "delete"
			// Told when a relist found it gone and nobody saw it go.
			if unseen, missed := object.(cache.DeletedFinalStateUnknown); missed {
				verb, object = "delete unseen", unseen.Obj
			}
			w.note(verb, nil, object)
		},
	})
	s.must(err, "listen to the informer of %s", w.kind)
}

// judge claims that the informer knows what is there and told all that was done.
func (w *watched) judge(s *story, forgetful bool) {
	s.soon("the store of the informer of "+w.kind+" equals a fresh list", func() (bool, any) {
		list, err := w.client.List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		fresh, stored := map[string]string{}, map[string]string{}
		for _, item := range list.Items {
			fresh[item.GetName()] = string(item.GetUID()) + "@" + item.GetResourceVersion()
		}
		for _, object := range w.informer.GetStore().List() {
			object := object.(metav1.Object)
			stored[object.GetName()] = string(object.GetUID()) + "@" + object.GetResourceVersion()
		}
		return equal(fresh, stored), []any{"list", fresh, "store", stored}
	})
	// The store is filled before its listeners are told.
	s.soon("every listener of "+w.kind+" was told the last of it", func() (bool, any) {
		for name, done := range w.writtenSoFar() {
			if tale := w.toldSoFar(name); !isLast(tale, done[len(done)-1], forgetful || w.listedAnew(name)) {
				return false, []any{name, "last done", done[len(done)-1], "told", tale}
			}
		}
		return true, nil
	})
	for name, done := range w.writtenSoFar() {
		tale := w.toldSoFar(name)
		if seen := unchained(tale); seen != "" {
			s.so(false, w.kind+" "+name+" was told in order", seen)
		}
		what := make([]string, len(tale))
		for i, told := range tale {
			what[i] = told.what
		}
		if !forgetful && !w.listedAnew(name) && strings.Join(what, ", ") != strings.Join(done, ", ") {
			s.so(false, "all that was done to "+w.kind+" "+name+" was told once and in order",
				"done: "+strings.Join(done, ", ")+"; told: "+strings.Join(what, ", "))
		}
	}
	say("all that was done to each " + w.kind + " was told, in order and without a gap that its client made")
}

// isLast says whether what was told last is what was done last. What came and went while nobody watched a forgetful
// server is known to nobody: it is enough to have been told how things are in the end.
func isLast(tale []told, done string, forgetful bool) bool {
	last := "delete of what was never seen"
	if len(tale) > 0 {
		last = tale[len(tale)-1].what
	}
	if !forgetful {
		return last == done
	}
	if strings.HasPrefix(done, "delete") {
		return strings.HasPrefix(last, "delete")
	}
	// Made and changed while nobody watched, it is told as made.
	_, counted, _ := strings.Cut(done, " ")
	return last == "add "+counted || last == "update "+counted
}

// unchained says where a tale does not go on from where it was.
func unchained(tale []told) string {
	var last told
	for i, now := range tale {
		there := i > 0 && !strings.HasPrefix(last.what, "delete")
		switch {
		case i > 0 && number(now.version) < number(last.version):
			return "resourceVersion " + now.version + " after " + last.version
		case strings.HasPrefix(now.what, "add") && there:
			return now.what + " of what was there"
		case !strings.HasPrefix(now.what, "add") && !there:
			return now.what + " of what was not there"
		case strings.HasPrefix(now.what, "update") && now.from != last.version:
			return now.what + " from " + now.from + ", but it was at " + last.version
		}
		last = now
	}
	return ""
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if b[key] != value {
			return false
		}
	}
	return true
}

// count reads the one field that the writers change.
func count(object any) string {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		return object.Data["count"]
	case *unstructured.Unstructured:
		count, _, _ := unstructured.NestedString(object.Object, "data", "count")
		return count
	}
	return "?"
}
