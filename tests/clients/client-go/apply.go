package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// apply: server-side apply with the generated apply configurations, several managers at once.
func apply(s *story) {
	fieldsHaveManagers(s)
	listsAreShared(s)
	updatesOwnToo(s)
	statusIsApplied(s)
}

func by(manager string) metav1.ApplyOptions { return metav1.ApplyOptions{FieldManager: manager} }

func forcedBy(manager string) metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: manager, Force: true}
}

func fieldsHaveManagers(s *story) {
	client := s.typed.CoreV1().ConfigMaps(s.namespace)
	wanted := func(data map[string]string) *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap("shared", s.namespace).WithData(data)
	}

	made, err := client.Apply(s.ctx, wanted(map[string]string{"colour": "blue", "size": "9"}), by("alice"))
	s.works(err, "what is not there is created by an apply")
	s.managed(made, "alice Apply", `{"f:data":{"f:colour":{},"f:size":{}}}`)

	same, err := client.Apply(s.ctx, wanted(map[string]string{"colour": "blue", "size": "9"}), by("alice"))
	s.works(err, "the same is applied again")
	s.same(made.ResourceVersion, same.ResourceVersion, "and changes nothing, not even the resourceVersion")

	both, err := client.Apply(s.ctx, wanted(map[string]string{"shape": "round", "size": "9"}), by("bob"))
	s.works(err, "another manager applies a field of its own, and one that it agrees on")
	s.managed(both, "alice Apply", `{"f:data":{"f:colour":{},"f:size":{}}}`, "bob Apply", `{"f:data":{"f:shape":{},"f:size":{}}}`)

	_, err = client.Apply(s.ctx, wanted(map[string]string{"shape": "round", "size": "9", "colour": "red"}), by("bob"))
	s.so(apierrors.IsConflict(err), "an apply of another's field with another value is Conflict", err)
	s.causes(err, `FieldManagerConflict .data.colour conflict with "alice"`)
	s.same(`Apply failed with 1 conflict: conflict with "alice": .data.colour`, err, "and the message says so")

	forced, err := client.Apply(s.ctx, wanted(map[string]string{"shape": "round", "size": "9", "colour": "red"}), forcedBy("bob"))
	s.works(err, "it is taken when forced")
	s.same("red", forced.Data["colour"], "and written")
	s.managed(forced, "alice Apply", `{"f:data":{"f:size":{}}}`, "bob Apply", `{"f:data":{"f:colour":{},"f:shape":{},"f:size":{}}}`)

	extracted, err := corev1ac.ExtractConfigMap(forced, "bob")
	s.works(err, "what a manager applied is extracted")
	s.so(reflect.DeepEqual(extracted.Data, map[string]string{"shape": "round", "size": "9", "colour": "red"}) && *extracted.Name == "shared",
		"and is what it applied", extracted.Data)
	delete(extracted.Data, "shape")
	extracted.Data["colour"] = "green"
	changed, err := client.Apply(s.ctx, extracted, by("bob"))
	s.works(err, "the extract is changed and applied")
	s.so(reflect.DeepEqual(changed.Data, map[string]string{"colour": "green", "size": "9"}), "what it left out is gone, the rest is there", changed.Data)

	left, err := client.Apply(s.ctx, wanted(map[string]string{"colour": "green"}), by("bob"))
	s.works(err, "a manager leaves out a field that another one has too")
	s.same("9", left.Data["size"], "and it stays")
	s.managed(left, "alice Apply", `{"f:data":{"f:size":{}}}`, "bob Apply", `{"f:data":{"f:colour":{}}}`)

	_, err = client.Apply(s.ctx, wanted(nil).WithResourceVersion(made.ResourceVersion).WithData(map[string]string{"size": "1"}), by("alice"))
	s.so(apierrors.IsConflict(err), "an apply with a stale resourceVersion is Conflict", err)
	_, err = client.Apply(s.ctx, wanted(map[string]string{"not a key": "1"}), by("alice"))
	s.invalid(err, "data[not a key]", metav1.CauseTypeFieldValueInvalid, "an apply of a bad key")
	_, err = client.Apply(s.ctx, wanted(nil), by(""))
	s.so(err != nil && strings.Contains(err.Error(), "fieldManager"), "an apply without a manager is refused", err)
}

func listsAreShared(s *story) {
	client := s.typed.CoreV1().ServiceAccounts(s.namespace)
	wanted := func(finalizer string, secrets ...string) *corev1ac.ServiceAccountApplyConfiguration {
		account := corev1ac.ServiceAccount("shared", s.namespace).WithFinalizers(finalizer)
		for _, name := range secrets {
			account.WithSecrets(corev1ac.ObjectReference().WithName(name))
		}
		return account
	}
	_, err := client.Apply(s.ctx, wanted("story.test/alice", "a"), by("alice"))
	s.works(err, "a list by key and a set are applied")
	both, err := client.Apply(s.ctx, wanted("story.test/bob", "b"), by("bob"))
	s.works(err, "another manager applies items of its own")
	s.same("[story.test/alice story.test/bob]", both.Finalizers, "the set has both")
	s.same("[a b]", secretNames(both), "the list has both")
	s.managed(both,
		"alice Apply", `{"f:metadata":{"f:finalizers":{"v:\"story.test/alice\"":{}}},"f:secrets":{"k:{\"name\":\"a\"}":{}}}`,
		"bob Apply", `{"f:metadata":{"f:finalizers":{"v:\"story.test/bob\"":{}}},"f:secrets":{"k:{\"name\":\"b\"}":{}}}`)
	one, err := client.Apply(s.ctx, corev1ac.ServiceAccount("shared", s.namespace), by("alice"))
	s.works(err, "one of them applies nothing any more")
	s.so(fmt.Sprint(one.Finalizers) == "[story.test/bob]" && fmt.Sprint(secretNames(one)) == "[b]", "only its items are gone", one)
	none, err := client.Apply(s.ctx, corev1ac.ServiceAccount("shared", s.namespace), by("bob"))
	s.works(err, "and the other one")
	s.so(len(none.Finalizers) == 0 && len(none.Secrets) == 0, "nothing is left", none)
}

func secretNames(account *corev1.ServiceAccount) (names []string) {
	for _, secret := range account.Secrets {
		names = append(names, secret.Name)
	}
	return names
}

func updatesOwnToo(s *story) {
	client := s.typed.CoreV1().ConfigMaps(s.namespace)
	made, err := client.Create(s.ctx, configMap("written", "colour", "blue"), metav1.CreateOptions{FieldManager: "carol"})
	s.must(err, "create a ConfigMap")
	s.managed(made, "carol Update", `{"f:data":{".":{},"f:colour":{}}}`)
	_, err = client.Apply(s.ctx, corev1ac.ConfigMap("written", s.namespace).WithData(map[string]string{"colour": "red"}), by("alice"))
	s.so(apierrors.IsConflict(err), "an apply of what somebody wrote is Conflict", err)
	s.causes(err, `FieldManagerConflict .data.colour conflict with "carol" using v1`)
	taken, err := client.Apply(s.ctx, corev1ac.ConfigMap("written", s.namespace).WithData(map[string]string{"colour": "red"}), forcedBy("alice"))
	s.works(err, "it is taken when forced")
	s.managed(taken, "alice Apply", `{"f:data":{"f:colour":{}}}`, "carol Update", `{"f:data":{}}`)
	taken.Data["colour"] = "blue"
	back, err := client.Update(s.ctx, taken, metav1.UpdateOptions{FieldManager: "carol"})
	s.works(err, "an update takes it back without asking")
	for _, entry := range back.ManagedFields {
		s.so(entry.Manager != "alice", "and whoever applied it has it no more", back.ManagedFields)
	}
}

func statusIsApplied(s *story) {
	client := s.typed.CoreV1().PersistentVolumeClaims(s.namespace)
	made, err := client.Create(s.ctx, claim("waiting"), metav1.CreateOptions{FieldManager: "carol"})
	s.must(err, "create a PersistentVolumeClaim")
	condition := corev1ac.PersistentVolumeClaimCondition().WithType("StoryTold").WithStatus(corev1.ConditionTrue).WithReason("Because")
	wanted := corev1ac.PersistentVolumeClaim("waiting", s.namespace).
		WithLabels(map[string]string{"not": "status"}).
		WithStatus(corev1ac.PersistentVolumeClaimStatus().WithConditions(condition))
	applied, err := client.ApplyStatus(s.ctx, wanted, by("alice"))
	s.works(err, "a status is applied")
	s.so(len(applied.Status.Conditions) == 1 && applied.Status.Conditions[0].Reason == "Because", "and has the condition", applied.Status)
	s.so(equality.Semantic.DeepEqual(applied.Spec, made.Spec), "the spec is as it was", applied.Spec)
	var entry *metav1.ManagedFieldsEntry
	for i := range applied.ManagedFields {
		if applied.ManagedFields[i].Manager == "alice" {
			entry = &applied.ManagedFields[i]
		}
	}
	s.so(entry != nil && entry.Subresource == "status" && entry.Operation == metav1.ManagedFieldsOperationApply,
		"the manager has it through the status subresource", applied.ManagedFields)
	extracted, err := corev1ac.ExtractPersistentVolumeClaimStatus(applied, "alice")
	s.works(err, "what was applied to the status is extracted")
	s.so(extracted.Status != nil && len(extracted.Status.Conditions) == 1 && *extracted.Status.Conditions[0].Type == "StoryTold", "and has the condition", extracted)
	without, err := client.ApplyStatus(s.ctx, corev1ac.PersistentVolumeClaim("waiting", s.namespace), by("alice"))
	s.works(err, "a status without it is applied")
	s.so(len(without.Status.Conditions) == 0, "and it is gone", without.Status)
}

// causes claims why an apply was refused: type, field and message of each cause.
func (s *story) causes(err error, wanted ...string) {
	status, ok := err.(apierrors.APIStatus)
	s.so(ok && status.Status().Details != nil, "the refusal has details", err)
	found := []string{}
	for _, cause := range status.Status().Details.Causes {
		found = append(found, fmt.Sprintf("%s %s %s", cause.Type, cause.Field, cause.Message))
	}
	s.same(wanted, found, "the refusal names the field and whose it is")
}

// managed claims who has which fields: pairs of `manager operation` and the fields as JSON.
func (s *story) managed(object metav1.Object, pairs ...string) {
	found := map[string]any{}
	for _, entry := range object.GetManagedFields() {
		var fields any
		s.must(json.Unmarshal(entry.FieldsV1.Raw, &fields), "read the fields of %s", entry.Manager)
		if entry.APIVersion != "v1" || entry.FieldsType != "FieldsV1" || entry.Time.IsZero() {
			s.so(false, "managed fields have a version, a type and a time", entry)
		}
		found[entry.Manager+" "+string(entry.Operation)] = fields
	}
	wanted := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		var fields any
		s.must(json.Unmarshal([]byte(pairs[i+1]), &fields), "read %s", pairs[i+1])
		wanted[pairs[i]] = fields
	}
	s.so(reflect.DeepEqual(found, wanted), "each field has its manager", fmt.Sprintf("%v, wanted %v", found, wanted))
}
