package main

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
)

// owners: what becomes of what an object owns, and of what is in a namespace. It needs
// a cluster whose controllers run.
func owners(s *story) {
	client := s.typed.CoreV1().ConfigMaps(s.namespace)
	background(s, client)
	orphan(s, client)
	foreground(s, client)
	emptied(s)
}

func background(s *story, client v1.ConfigMapInterface) {
	owner := s.owned(client, "background")
	err := client.Delete(s.ctx, owner.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	s.works(err, "an owner is deleted in the background")
	_, err = client.Get(s.ctx, owner.Name, metav1.GetOptions{})
	s.so(apierrors.IsNotFound(err), "it is gone at once", err)
	s.gone(client, "background-part", "and what it owned is gone")
}

func orphan(s *story, client v1.ConfigMapInterface) {
	owner := s.owned(client, "orphan")
	err := client.Delete(s.ctx, owner.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
	s.works(err, "an owner is deleted and leaves orphans")
	s.gone(client, owner.Name, "it is gone")
	left, err := client.Get(s.ctx, "orphan-part", metav1.GetOptions{})
	s.works(err, "what it owned is there")
	s.so(len(left.OwnerReferences) == 0 && left.DeletionTimestamp == nil, "and has no owner any more", left)
}

func foreground(s *story, client v1.ConfigMapInterface) {
	owner := s.owned(client, "foreground")
	// Holds the part back, so that the owner can be seen to wait for it.
	part, err := client.Get(s.ctx, "foreground-part", metav1.GetOptions{})
	s.must(err, "read the part")
	part.Finalizers = []string{"story.test/guard"}
	_, err = client.Update(s.ctx, part, metav1.UpdateOptions{})
	s.must(err, "guard the part")

	err = client.Delete(s.ctx, owner.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	s.works(err, "an owner is deleted in the foreground")
	s.soon("what it owned is marked for deletion", func() (bool, any) {
		part, err = client.Get(s.ctx, "foreground-part", metav1.GetOptions{})
		return err == nil && part.DeletionTimestamp != nil, part
	})
	waiting, err := client.Get(s.ctx, owner.Name, metav1.GetOptions{})
	s.works(err, "the owner waits for it")
	s.so(waiting.DeletionTimestamp != nil && strings.Join(waiting.Finalizers, " ") == metav1.FinalizerDeleteDependents,
		"marked, with the finalizer of those who wait", waiting)
	part.Finalizers = nil
	_, err = client.Update(s.ctx, part, metav1.UpdateOptions{})
	s.must(err, "let the part go")
	s.gone(client, owner.Name, "the owner is gone after what it owned")
	s.gone(client, part.Name, "and that is gone")
}

// emptied: a namespace goes when all that is in it has gone.
func emptied(s *story) {
	name := "client-go-emptied-" + s.suffix
	_, err := s.typed.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err, "create a namespace")
	client := s.typed.CoreV1().ConfigMaps(name)
	guarded := configMap("guarded", "n", "0")
	guarded.Finalizers = []string{"story.test/guard"}
	_, err = client.Create(s.ctx, guarded, metav1.CreateOptions{})
	s.must(err, "create a ConfigMap")

	s.works(s.typed.CoreV1().Namespaces().Delete(s.ctx, name, metav1.DeleteOptions{}), "a namespace is deleted")
	_, err = client.Create(s.ctx, configMap("late", "n", "0"), metav1.CreateOptions{})
	s.so(apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		"nothing more is created in it, and the refusal says that it is terminating", err)
	s.soon("what is in it is marked for deletion", func() (bool, any) {
		guarded, err = client.Get(s.ctx, "guarded", metav1.GetOptions{})
		return err == nil && guarded.DeletionTimestamp != nil, err
	})
	s.soon("it says what it waits for", func() (bool, any) {
		namespace, err := s.typed.CoreV1().Namespaces().Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range namespace.Status.Conditions {
			if condition.Type == corev1.NamespaceFinalizersRemaining && condition.Status == corev1.ConditionTrue {
				return namespace.Status.Phase == corev1.NamespaceTerminating, namespace.Status
			}
		}
		return false, namespace.Status
	})
	guarded.Finalizers = nil
	_, err = client.Update(s.ctx, guarded, metav1.UpdateOptions{})
	s.must(err, "let the ConfigMap go")
	s.soon("it is gone when that is", func() (bool, any) {
		_, err := s.typed.CoreV1().Namespaces().Get(s.ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}

// owned makes an owner and a part of it that blocks its deletion in the foreground.
func (s *story) owned(client v1.ConfigMapInterface, name string) *corev1.ConfigMap {
	owner, err := client.Create(s.ctx, configMap(name, "n", "0"), metav1.CreateOptions{})
	s.must(err, "create an owner")
	part := configMap(name+"-part", "n", "0")
	part.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true),
	}}
	_, err = client.Create(s.ctx, part, metav1.CreateOptions{})
	s.must(err, "create what it owns")
	return owner
}

func (s *story) gone(client v1.ConfigMapInterface, name, claim string) {
	s.soon(claim, func() (bool, any) {
		left, err := client.Get(s.ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), left
	})
}
