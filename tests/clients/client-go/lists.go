package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"
)

// deletions: only what was meant, and many at once.
func deletions(s *story) {
	client := s.typed.CoreV1().ConfigMaps(s.namespace)
	made, err := client.Create(s.ctx, configMap("precondition", "n", "0"), metav1.CreateOptions{})
	s.must(err, "create a ConfigMap")
	other := types.UID("00000000-0000-0000-0000-000000000000")
	err = client.Delete(s.ctx, made.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	s.so(apierrors.IsConflict(err), "a delete of another uid is Conflict", err)
	err = client.Delete(s.ctx, made.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("1")}})
	s.so(apierrors.IsConflict(err), "a delete of another resourceVersion is Conflict", err)
	err = client.Delete(s.ctx, made.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	s.works(err, "a dry run of a delete is taken")
	err = client.Delete(s.ctx, made.Name, metav1.DeleteOptions{
		Preconditions:      &metav1.Preconditions{UID: &made.UID, ResourceVersion: &made.ResourceVersion},
		PropagationPolicy:  ptr.To(metav1.DeletePropagationBackground),
		GracePeriodSeconds: ptr.To(int64(0)),
	})
	s.works(err, "a delete of this uid and resourceVersion is done")

	guarded := configMap("guarded", "n", "0")
	guarded.Finalizers = []string{"story.test/guard"}
	guarded, err = client.Create(s.ctx, guarded, metav1.CreateOptions{})
	s.must(err, "create a ConfigMap with a finalizer")
	s.works(client.Delete(s.ctx, "guarded", metav1.DeleteOptions{}), "a delete of what has a finalizer is taken")
	guarded, err = client.Get(s.ctx, "guarded", metav1.GetOptions{})
	s.works(err, "and it is still there")
	s.so(guarded.DeletionTimestamp != nil, "marked for deletion", guarded)
	more := guarded.DeepCopy()
	more.Finalizers = append(more.Finalizers, "story.test/late")
	_, err = client.Update(s.ctx, more, metav1.UpdateOptions{})
	s.invalid(err, "metadata.finalizers", metav1.CauseTypeForbidden, "a finalizer that comes too late")
	guarded.Finalizers = nil
	_, err = client.Update(s.ctx, guarded, metav1.UpdateOptions{})
	s.works(err, "its finalizer is taken off")
	_, err = client.Get(s.ctx, "guarded", metav1.GetOptions{})
	s.so(apierrors.IsNotFound(err), "and it is gone", err)

	for i := range 6 {
		object := configMap(fmt.Sprintf("herd-%d", i), "n", "0")
		object.Labels = map[string]string{"herd": []string{"even", "odd"}[i%2]}
		_, err := client.Create(s.ctx, object, metav1.CreateOptions{})
		s.must(err, "create a ConfigMap")
	}
	err = client.DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "herd=odd"})
	s.works(err, "a collection is deleted by its label")
	left, err := client.List(s.ctx, metav1.ListOptions{LabelSelector: "herd"})
	s.must(err, "list what is left")
	even := 0
	for _, object := range left.Items {
		if object.Labels["herd"] == "even" {
			even++
		}
	}
	s.so(even == 3 && len(left.Items) == 3, "and only what had the label is gone", left.Items)
}

// pages: a long list in parts is the list as it was when the first part was asked for.
func pages(s *story) {
	// Leases: nobody but this story makes any in its namespace.
	client := s.typed.CoordinationV1().Leases(s.namespace)
	for i := range 25 {
		_, err := client.Create(s.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("page-%02d", i)}}, metav1.CreateOptions{})
		s.must(err, "create a Lease")
	}
	first, err := client.List(s.ctx, metav1.ListOptions{Limit: 10})
	s.works(err, "a first page of ten is listed")
	s.so(len(first.Items) == 10 && first.Continue != "", "with ten items and a token to continue", first.ListMeta)
	s.so(first.RemainingItemCount != nil && *first.RemainingItemCount == 15, "and 15 remain", first.ListMeta)

	s.must(client.Delete(s.ctx, "page-24", metav1.DeleteOptions{}), "delete a Lease of the last page")
	names := namesOf(first.Items)
	next := first
	for next.Continue != "" {
		next, err = client.List(s.ctx, metav1.ListOptions{Limit: 10, Continue: next.Continue})
		s.works(err, "a next page is listed")
		s.same(first.ResourceVersion, next.ResourceVersion, "of the same resourceVersion")
		names = append(names, namesOf(next.Items)...)
	}
	s.so(len(names) == 25 && names[0] == "page-00" && names[24] == "page-24", "all pages have each item once, in order, also the one deleted meanwhile", names)

	_, err = client.List(s.ctx, metav1.ListOptions{Limit: 10, Continue: "nonsense"})
	s.so(apierrors.IsBadRequest(err), "a token that is not one is BadRequest", err)

	seen := 0
	reader := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return client.List(s.ctx, options)
	}))
	reader.PageSize = 7
	err = reader.EachListItem(s.ctx, metav1.ListOptions{}, func(runtime.Object) error { seen++; return nil })
	s.works(err, "the pager reads page by page")
	s.same(24, seen, "and comes by every item")
}

func namesOf(leases []coordinationv1.Lease) (names []string) {
	for _, lease := range leases {
		names = append(names, lease.Name)
	}
	return names
}

// watches: from a resourceVersion on, everything, in order, and bookmarks.
func watches(s *story) {
	client := s.typed.CoreV1().ConfigMaps(s.namespace)
	list, err := client.List(s.ctx, metav1.ListOptions{})
	s.must(err, "list ConfigMaps")

	made := configMap("watched", "n", "0")
	made.Labels = map[string]string{"watched": "yes"}
	made, err = client.Create(s.ctx, made, metav1.CreateOptions{})
	s.must(err, "create a ConfigMap")
	versions := []string{made.ResourceVersion}
	for n := 1; n <= 3; n++ {
		made.Data["n"] = strconv.Itoa(n)
		made, err = client.Update(s.ctx, made, metav1.UpdateOptions{})
		s.must(err, "update a ConfigMap")
		versions = append(versions, made.ResourceVersion)
	}
	// Out of the selector, and back in.
	made.Labels["watched"] = "no"
	made, err = client.Update(s.ctx, made, metav1.UpdateOptions{})
	s.must(err, "update a ConfigMap")
	made.Labels["watched"] = "yes"
	made, err = client.Update(s.ctx, made, metav1.UpdateOptions{})
	s.must(err, "update a ConfigMap")
	s.must(client.Delete(s.ctx, "watched", metav1.DeleteOptions{}), "delete a ConfigMap")

	options := metav1.ListOptions{
		ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true,
		LabelSelector: "watched=yes", TimeoutSeconds: ptr.To(int64(8)),
	}
	stream, err := client.Watch(s.ctx, options)
	s.works(err, "a watch from the resourceVersion of a list begins")
	// Something that the watch does not tell and a bookmark can stand for: it need not come when nothing happened.
	_, err = client.Create(s.ctx, configMap("unwatched", "n", "0"), metav1.CreateOptions{})
	s.must(err, "create a ConfigMap")
	var story []string
	var bookmark string
	end := time.After(60 * time.Second)
read:
	for {
		select {
		case event, open := <-stream.ResultChan():
			if !open {
				break read
			}
			object, err := meta.Accessor(event.Object)
			s.must(err, "read an event of type %s: %v", event.Type, event.Object)
			if event.Type == watch.Bookmark {
				_, typed := event.Object.(*corev1.ConfigMap)
				if !typed || object.GetName() != "" {
					s.so(false, "a bookmark is an empty object of the kind that is watched", event.Object)
				}
				bookmark = object.GetResourceVersion()
				continue
			}
			line := string(event.Type) + " " + event.Object.(*corev1.ConfigMap).Data["n"]
			if n := len(story); n < 4 && event.Type != watch.Error && object.GetResourceVersion() != versions[n] {
				line += " at another resourceVersion"
			}
			story = append(story, line)
		case <-end:
			s.so(false, "a watch ends when its time is over", story)
		}
	}
	s.same("[ADDED 0 MODIFIED 1 MODIFIED 2 MODIFIED 3 DELETED 3 ADDED 3 DELETED 3]", story,
		"the watch tells everything since then in order, each with the resourceVersion its writer was told")
	s.so(bookmark != "", "and a bookmark before it ends", "none")
	s.so(number(bookmark) >= number(made.ResourceVersion), "that is not behind the events", bookmark)

	options.ResourceVersion = bookmark
	again, err := client.Watch(s.ctx, options)
	s.works(err, "a watch from the bookmark begins")
	defer again.Stop()
	late := configMap("later", "n", "9")
	late.Labels = map[string]string{"watched": "yes"}
	_, err = client.Create(s.ctx, late, metav1.CreateOptions{})
	s.must(err, "create a ConfigMap")
	event := s.next(again)
	s.so(event.Type == watch.Added && event.Object.(*corev1.ConfigMap).Name == "later", "and tells only what came after it", event)

	streamed(s)
}

// streamed: a list told as a watch, which ends with a bookmark that says so.
func streamed(s *story) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stream, err := s.typed.CoordinationV1().Leases(s.namespace).Watch(ctx, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	s.works(err, "a watch that begins with what is there begins")
	defer stream.Stop()
	added := 0
	for {
		event := s.next(stream)
		if event.Type == watch.Added {
			added++
			continue
		}
		object, err := meta.Accessor(event.Object)
		s.must(err, "read an event of type %s: %v", event.Type, event.Object)
		s.so(event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true",
			"it says when all that was there was told", event)
		break
	}
	s.same(24, added, "and that was every item once")
}

// next is the next event of a watch; none in good time is a failure.
func (s *story) next(stream watch.Interface) watch.Event {
	select {
	case event, open := <-stream.ResultChan():
		if !open {
			panic(notSo("a watch ended before its time"))
		}
		return event
	case <-time.After(60 * time.Second):
		panic(notSo("a watch told nothing for a minute"))
	}
}

// number reads a resourceVersion; since 1.35 the original promises that they compare so.
func number(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		panic(notSo("a resourceVersion is a number: " + resourceVersion))
	}
	return n
}
