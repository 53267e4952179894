package main

import (
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// typed: the generated clients, with protobuf bodies.
func typed(s *story) {
	media := &mediaTypes{sent: map[string]int{}, received: map[string]int{}}
	var err error
	s.typed, err = kubernetes.NewForConfig(s.speaking(protobuf, media.note))
	s.must(err, "make a typed client")

	configMaps(s)
	secrets(s)
	namespaces(s)
	serviceAccounts(s)
	roles(s)
	leases(s)
	claims(s)
	storageClasses(s)
	nodes(s)
	accessReviews(s)
	refusals(s)
	deletions(s)
	pages(s)
	watches(s)
	counter(s)

	media.Lock()
	defer media.Unlock()
	s.so(len(media.sent) == 1 && media.sent[protobuf] > 0, "every body that was sent was protobuf", media.sent)
	say(fmt.Sprintf("answers came as %v", media.received))
}

// refusals: each reason not to do something has its own predicate.
func refusals(s *story) {
	client := s.typed.CoreV1().ConfigMaps(s.namespace)
	created, err := client.Create(s.ctx, configMap("refused", "n", "0"), metav1.CreateOptions{})
	s.must(err, "create a ConfigMap")

	_, err = client.Create(s.ctx, configMap("refused", "n", "0"), metav1.CreateOptions{})
	s.so(apierrors.IsAlreadyExists(err), "a second create of the same name is AlreadyExists", err)

	_, err = client.Get(s.ctx, "nobody", metav1.GetOptions{})
	s.so(apierrors.IsNotFound(err), "a get of a name that is not there is NotFound", err)
	s.same(`configmaps "nobody" not found`, err, "and says so")
	_, err = client.Update(s.ctx, configMap("nobody", "n", "0"), metav1.UpdateOptions{})
	s.so(apierrors.IsNotFound(err), "an update of a name that is not there is NotFound", err)
	err = client.Delete(s.ctx, "nobody", metav1.DeleteOptions{})
	s.so(apierrors.IsNotFound(err), "a delete of a name that is not there is NotFound", err)

	fresh := created.DeepCopy()
	fresh.Data["n"] = "1"
	fresh, err = client.Update(s.ctx, fresh, metav1.UpdateOptions{})
	s.works(err, "an update with the current resourceVersion is taken")
	stale := created.DeepCopy()
	stale.Data["n"] = "2"
	_, err = client.Update(s.ctx, stale, metav1.UpdateOptions{})
	s.so(apierrors.IsConflict(err), "an update with a stale resourceVersion is Conflict", err)
	stale.ResourceVersion = ""
	stale, err = client.Update(s.ctx, stale, metav1.UpdateOptions{})
	s.works(err, "an update of a ConfigMap without a resourceVersion is taken")
	s.so(stale.Data["n"] == "2" && stale.ResourceVersion != fresh.ResourceVersion, "and written", stale)
	same, err := client.Update(s.ctx, stale, metav1.UpdateOptions{})
	s.works(err, "an update that changes nothing is taken")
	s.same(stale.ResourceVersion, same.ResourceVersion, "and leaves the resourceVersion as it was")

	_, err = client.Create(s.ctx, configMap("Not_A_Name", "n", "0"), metav1.CreateOptions{})
	s.invalid(err, "metadata.name", metav1.CauseTypeFieldValueInvalid, "a ConfigMap with a bad name")
	_, err = client.Create(s.ctx, configMap("bad-key", "not a key", "0"), metav1.CreateOptions{})
	s.invalid(err, "data[not a key]", metav1.CauseTypeFieldValueInvalid, "a ConfigMap with a bad key")
	wrong := configMap("elsewhere", "n", "0")
	wrong.Namespace = "default"
	_, err = client.Create(s.ctx, wrong, metav1.CreateOptions{})
	s.so(apierrors.IsBadRequest(err), "a create with another namespace in its body is BadRequest", err)
	_, err = s.typed.CoreV1().ConfigMaps(s.namespace+"-nowhere").Create(s.ctx, configMap("a", "n", "0"), metav1.CreateOptions{})
	s.so(apierrors.IsNotFound(err), "a create in a namespace that is not there is NotFound", err)

	_, err = client.Create(s.ctx, configMap("rehearsed", "n", "0"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	s.works(err, "a dry run of a create is taken")
	_, err = client.Get(s.ctx, "rehearsed", metav1.GetOptions{})
	s.so(apierrors.IsNotFound(err), "and leaves nothing behind", err)
}

// invalid claims that a write was refused as Invalid, for the given field.
func (s *story) invalid(err error, field string, cause metav1.CauseType, what string) {
	s.so(apierrors.IsInvalid(err), what+" is Invalid", err)
	found, ok := apierrors.StatusCause(err, cause)
	s.so(ok && found.Field == field, "and its cause is "+string(cause)+" of "+field, err)
}

// counter: many writers, each sure of its own increments.
func counter(s *story) {
	const writers, increments = 8, 10
	client := s.typed.CoreV1().ConfigMaps(s.namespace)
	_, err := client.Create(s.ctx, configMap("counter", "n", "0"), metav1.CreateOptions{})
	s.must(err, "create the counter")

	increment := func() error {
		current, err := client.Get(s.ctx, "counter", metav1.GetOptions{})
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(current.Data["n"])
		if err != nil {
			return err
		}
		current.Data["n"] = strconv.Itoa(n + 1)
		_, err = client.Update(s.ctx, current, metav1.UpdateOptions{})
		return err
	}
	// As many tries as it takes: here a writer that is overtaken is the point.
	backoff := retry.DefaultRetry
	backoff.Steps = 1000
	backoff.Factor = 1

	errs := make(chan error, writers)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range increments {
				if err := retry.RetryOnConflict(backoff, increment); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	s.works(<-errs, fmt.Sprintf("%d writers increment one counter %d times each, retrying on conflict", writers, increments))
	counted, err := client.Get(s.ctx, "counter", metav1.GetOptions{})
	s.must(err, "read the counter")
	s.same(writers*increments, counted.Data["n"], "and it stands at the exact sum")
}

func configMap(name, key, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{key: value},
	}
}
