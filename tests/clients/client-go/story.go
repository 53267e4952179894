package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A story is one subcommand at work: its clients, its namespace and what it leaves
// to be cleaned up.
type story struct {
	ctx       context.Context
	args      []string
	config    *rest.Config
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
	// Part of every name that is not inside the namespace.
	suffix   string
	cleanups []func(context.Context)
}

// What ends a story early. It travels as a panic, so that a story reads as a list
// of promises and cleaning up happens in one place.
type notSo string

// Tells a story in a fresh namespace, cleans up, and returns what was not so.
func tell(ctx context.Context, events func(*story), args []string) (failed string) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case notSo:
			failed = string(end)
		default:
			panic(end)
		}
	}()
	s := &story{ctx: ctx, args: args, suffix: utilrand.String(6)}
	// Runs before the recovery above, whatever happened.
	defer s.cleanUp()

	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	s.must(err, "read the kubeconfig %q", os.Getenv("KUBECONFIG"))
	// The server is asked to keep up; the client does not hold back.
	config.QPS = -1
	s.config = config
	s.typed, err = kubernetes.NewForConfig(s.speaking(protobuf, nil))
	s.must(err, "make a typed client")
	s.dynamic, err = dynamic.NewForConfig(config)
	s.must(err, "make a dynamic client")

	s.namespace = "client-go-" + s.suffix
	_, err = s.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
	}, metav1.CreateOptions{})
	s.must(err, "create namespace %s", s.namespace)
	s.later(func(ctx context.Context) {
		_ = s.typed.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{})
	})
	events(s)
	return ""
}

const protobuf = "application/vnd.kubernetes.protobuf"

// The configuration of a client that sends bodies of the given type and takes that
// or JSON, and that shows each request and answer to `spy`.
func (s *story) speaking(contentType string, spy roundTripperFunc) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.ContentType = contentType
	config.AcceptContentTypes = contentType + ",application/json"
	if spy != nil {
		config.Wrap(spy.around)
	}
	return config
}

// later has something done when the story is over, however it ends; the last comes first.
func (s *story) later(cleanup func(context.Context)) {
	s.cleanups = append(s.cleanups, cleanup)
}

func (s *story) cleanUp() {
	// Also after the story's own time is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 30*time.Second)
	defer cancel()
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i](ctx)
	}
}

// so claims something; `seen` is what to show when it is not so.
func (s *story) so(ok bool, claim string, seen any) {
	if !ok {
		panic(notSo(fmt.Sprintf("%s; seen: %+v", claim, seen)))
	}
	say(claim)
}

// same claims that two printed values agree.
func (s *story) same(wanted, found any, claim string) {
	w, f := fmt.Sprint(wanted), fmt.Sprint(found)
	s.so(w == f, claim, fmt.Sprintf("%s, wanted %s", f, w))
}

// works claims that something was done without an error.
func (s *story) works(err error, claim string) {
	s.so(err == nil, claim, err)
}

// must ends the story when a step that is not itself a claim failed.
func (s *story) must(err error, attempt string, args ...any) {
	if err != nil {
		panic(notSo(fmt.Sprintf("cannot "+attempt, args...) + ": " + err.Error()))
	}
}

// soon claims that something becomes so within a time that is generous on a busy
// machine.
func (s *story) soon(claim string, look func() (ok bool, seen any)) {
	deadline := time.Now().Add(90 * time.Second)
	for {
		ok, seen := look()
		if ok {
			say(claim)
			return
		}
		if time.Now().After(deadline) || s.ctx.Err() != nil {
			panic(notSo(fmt.Sprintf("%s, in the end; last seen: %+v", claim, seen)))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func say(line string) {
	// In one write, so that a reader of the pipe never sees half a line.
	_, _ = io.WriteString(os.Stdout, line+"\n")
}
