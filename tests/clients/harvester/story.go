package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	harvester "github.com/harvester/harvester/pkg/generated/clientset/versioned"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Far shorter than the clients' own pauses (three to ten seconds): whoever looks more often sees more of what is only
// there for a moment.
const pause = 50 * time.Millisecond

// A story is one way at work: its clients, its namespace and what it leaves to be cleaned up.
type story struct {
	ctx       context.Context
	args      []string
	config    *rest.Config
	wire      *wire
	namespace string
	// The clients as whoever goes this way has them: Harvester's own speaks JSON, Kubernetes' protobuf.
	harvester  harvester.Interface
	kubernetes kubernetes.Interface
	// subresources.kubevirt.io
	subresources rest.Interface
	cleanups     []func(context.Context)
	input        *bufio.Scanner
}

// What ends a story early. It travels as a panic, so that a story reads as a list of promises and cleaning up happens
// in one place.
type notSo string

// Tells a story in a fresh namespace, cleans up, and returns what was not so.
func tell(ctx context.Context, name string, events func(*story), args []string) (failed string) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case notSo:
			failed = string(end)
		default:
			panic(end)
		}
	}()
	s := &story{ctx: ctx, args: args, input: bufio.NewScanner(os.Stdin)}
	// Runs before the recovery above, whatever happened.
	defer s.cleanUp()

	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	s.must(err, "read the kubeconfig %q", os.Getenv("KUBECONFIG"))
	// The server is asked to keep up; the client does not hold back.
	config.QPS = -1
	s.use(config)
	s.namespace = name + "-" + utilrand.String(6)
	_, err = s.kubernetes.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
	}, metav1.CreateOptions{})
	s.must(err, "create namespace %s", s.namespace)
	client := s.kubernetes
	s.later(func(ctx context.Context) {
		_ = client.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{})
	})
	events(s)
	return ""
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

// panics says what the client would have panicked at, unless it is there.
func (s *story) panics(isThere bool, what string) {
	if !isThere {
		panic(notSo("the client panics: " + what))
	}
}

// within claims that something becomes so in the time that the client gives it.
func (s *story) within(budget time.Duration, claim string, look func() (ok bool, seen any)) {
	deadline := time.Now().Add(budget)
	for {
		ok, seen := look()
		if ok {
			say(claim)
			return
		}
		if time.Now().After(deadline) || s.ctx.Err() != nil {
			panic(notSo(fmt.Sprintf("%s, within %s; last seen: %+v", claim, budget, seen)))
		}
		time.Sleep(pause)
	}
}

// asks says a line and waits for whoever watches to have looked: a line on standard input.
func (s *story) asks(line string) {
	say(line)
	if !s.input.Scan() {
		panic(notSo("nobody answers on standard input"))
	}
}

func say(line string) {
	// In one write, so that a reader of the pipe never sees half a line.
	_, _ = io.WriteString(os.Stdout, line+"\n")
}

// The two halves of namespace/name.
func (s *story) named(name string) (string, string) {
	namespace, rest, found := strings.Cut(name, "/")
	if !found {
		panic(notSo(name + " is not of the form namespace/name"))
	}
	return namespace, rest
}
