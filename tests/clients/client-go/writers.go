package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

const writersPerKind = 4

// watched is one kind that is written to and watched at once.
type watched struct {
	kind         string
	client       dynamic.ResourceInterface
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
	// How often this kind's informer listed, by the plural that it listed.
	lists  *relists
	plural string

	sync.Mutex
	// By name: how often it had listed when the name was first written.
	listed map[string]int
	// By name, in order: what was done, and what the informer told of it.
	done map[string][]string
	told map[string][]told

	writing sync.WaitGroup
	failed  error
}

// told is one call of a listener: what, to which resourceVersion, from which.
type told struct {
	what, version, from string
}

func (w *watched) note(verb string, old, new any) {
	object := new.(metav1.Object)
	entry := told{what: verb + " " + count(new), version: object.GetResourceVersion()}
	if old != nil {
		entry.from = old.(metav1.Object).GetResourceVersion()
	}
	w.Lock()
	defer w.Unlock()
	w.told[object.GetName()] = append(w.told[object.GetName()], entry)
}

func (w *watched) toldSoFar(name string) []told {
	w.Lock()
	defer w.Unlock()
	return append([]told(nil), w.told[name]...)
}

func (w *watched) writtenSoFar() map[string][]string {
	w.Lock()
	defer w.Unlock()
	done := map[string][]string{}
	for name, steps := range w.done {
		done[name] = append([]string(nil), steps...)
	}
	return done
}

// startWriting has objects made, changed and deleted over and over, until `back` is closed and then
// once more. Every other writer leaves its object there in the end.
func (w *watched) startWriting(ctx context.Context, round int, back <-chan struct{}) {
	w.Lock()
	defer w.Unlock()
	if w.done == nil {
		w.done, w.listed = map[string][]string{}, map[string]int{}
	}
	for i := range writersPerKind {
		name := fmt.Sprintf("round-%d-%d", round, i)
		w.listed[name] = w.lists.of(w.plural)
		w.writing.Go(func() {
			if err := w.write(ctx, name, i%2 == 0, back); err != nil {
				w.Lock()
				w.failed = fmt.Errorf("writing %s %s: %w", w.kind, name, err)
				w.Unlock()
			}
		})
	}
}

// listedAnew says whether the informer listed since the name was first written: it may have missed what was undone
// before it did.
func (w *watched) listedAnew(name string) bool {
	w.Lock()
	defer w.Unlock()
	return w.lists.of(w.plural) > w.listed[name]
}

func (w *watched) wait() error {
	w.writing.Wait()
	w.Lock()
	defer w.Unlock()
	return w.failed
}

func (w *watched) write(ctx context.Context, name string, leave bool, back <-chan struct{}) error {
	for life := 0; ; life++ {
		last := false
		select {
		case <-back:
			last = true
		default:
		}
		for change := range 4 {
			if err := w.put(ctx, name, fmt.Sprintf("%d.%d", life, change), change == 0); err != nil {
				return err
			}
		}
		if last && leave {
			return nil
		}
		if err := w.remove(ctx, name, fmt.Sprintf("%d.3", life)); err != nil {
			return err
		}
		if last {
			return nil
		}
		// A steady stream rather than a flood.
		time.Sleep(20 * time.Millisecond)
	}
}

// put writes a count exactly once. An answer may be lost with the server that gave it; since
// nobody else writes this object, what is there then tells whether the write was.
func (w *watched) put(ctx context.Context, name, count string, create bool) error {
	object, err := w.read(ctx, name)
	if err != nil {
		return err
	}
	for {
		if object == nil && create {
			made := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"count": count}}}
			made.SetAPIVersion(w.apiVersion())
			made.SetKind(w.kind)
			made.SetName(name)
			_, err = w.client.Create(ctx, made, metav1.CreateOptions{})
		} else if object != nil {
			if err := unstructured.SetNestedField(object.Object, count, "data", "count"); err != nil {
				return err
			}
			_, err = w.client.Update(ctx, object, metav1.UpdateOptions{})
		} else {
			return fmt.Errorf("what was written before %s is not there", count)
		}
		if err == nil {
			break
		}
		if final(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if object, err = w.read(ctx, name); err != nil {
			return err
		}
		if object != nil && countOf(object) == count {
			break
		}
	}
	verb := "update "
	if create {
		verb = "add "
	}
	w.did(name, verb+count)
	return nil
}

func (w *watched) remove(ctx context.Context, name, count string) error {
	for {
		err := w.client.Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		if final(err) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	w.did(name, "delete "+count)
	return nil
}

// read reads what is there, or nil, as soon as there is a server that knows.
func (w *watched) read(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	for {
		object, err := w.client.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			return object, nil
		case apierrors.IsNotFound(err) && !unknownKind(err):
			return nil, nil
		case final(err) && !unknownKind(err):
			return nil, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

func (w *watched) did(name, what string) {
	w.Lock()
	defer w.Unlock()
	w.done[name] = append(w.done[name], what)
}

func (w *watched) apiVersion() string {
	if w.kind == gaugeKind {
		return gaugeGroup + "/v1"
	}
	return "v1"
}

func countOf(object *unstructured.Unstructured) string { return count(object) }

// final says whether an error is the server's considered answer, and not that of a server which is
// going, gone or not there yet.
func final(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout:
		return false
	}
	return true
}

// unknownKind says whether it is the path that was not found, not the object: a server that starts
// may not serve definitions yet.
func unknownKind(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && apierrors.IsNotFound(err) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}
