package main

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	clientdynamic "k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
)

// dynamicClient: a kind that the client learns of while it runs.
func dynamicClient(s *story) {
	gauges := s.definesGauges()
	client := s.dynamic.Resource(gauges).Namespace(s.namespace)
	list, err := client.List(s.ctx, metav1.ListOptions{})
	s.works(err, "objects of a new kind are listed")
	s.so(len(list.Items) == 0 && list.GetKind() == "GaugeList", "and there are none", list)
	stream, err := client.Watch(s.ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	s.works(err, "and watched")
	defer stream.Stop()

	written := s.writesGauges(client)
	s.writesStatus(client, written)
	s.scales(client)

	s.works(client.Delete(s.ctx, "boiler", metav1.DeleteOptions{}), "one is deleted")
	_, err = client.Get(s.ctx, "boiler", metav1.GetOptions{})
	s.so(apierrors.IsNotFound(err), "and gone", err)

	types := []watch.EventType{}
	last := uint64(0)
	for len(types) == 0 || types[len(types)-1] != watch.Deleted {
		event := s.next(stream)
		version := number(event.Object.(*unstructured.Unstructured).GetResourceVersion())
		s.so(version > last, "the watch goes on to "+string(event.Type), event)
		types, last = append(types, event.Type), version
	}
	s.same("[ADDED MODIFIED MODIFIED MODIFIED MODIFIED MODIFIED DELETED]", types, "and told every change")

	definition, err := s.dynamic.Resource(definitions).Get(s.ctx, "gauges."+gaugeGroup, metav1.GetOptions{})
	s.must(err, "read the definition")
	definition.SetResourceVersion("")
	_, err = s.dynamic.Resource(definitions).Update(s.ctx, definition, metav1.UpdateOptions{})
	s.invalid(err, "metadata.resourceVersion", metav1.CauseTypeFieldValueInvalid, "an update of a definition without a resourceVersion")
	s.must(s.dynamic.Resource(definitions).Delete(s.ctx, "gauges."+gaugeGroup, metav1.DeleteOptions{}), "delete the definition")
	s.soon("the kind is gone with its definition", func() (bool, any) {
		_, err := client.List(s.ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err), err
	})
}

// Three events: added, updated, patched.
func (s *story) writesGauges(client clientdynamic.ResourceInterface) *unstructured.Unstructured {
	gauge := s.gauge("boiler", map[string]any{"unit": "bar"})
	unstructured.SetNestedField(gauge.Object, "ignored", "status", "reading")
	made, err := client.Create(s.ctx, gauge, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	s.works(err, "one is created")
	replicas, _, _ := unstructured.NestedInt64(made.Object, "spec", "replicas")
	s.same(1, replicas, "its default is filled in")
	_, status, _ := unstructured.NestedMap(made.Object, "status")
	s.so(!status, "a status in a create is ignored", made)
	s.same(1, made.GetGeneration(), "its generation is 1")

	unstructured.SetNestedField(made.Object, "psi", "spec", "unit")
	updated, err := client.Update(s.ctx, made, metav1.UpdateOptions{})
	s.works(err, "it is updated")
	s.same(2, updated.GetGeneration(), "its generation is 2")
	_, err = client.Update(s.ctx, made, metav1.UpdateOptions{})
	s.so(apierrors.IsConflict(err), "an update with a stale resourceVersion is Conflict", err)
	made.SetResourceVersion("")
	_, err = client.Update(s.ctx, made, metav1.UpdateOptions{})
	s.invalid(err, "metadata.resourceVersion", metav1.CauseTypeFieldValueInvalid, "an update without a resourceVersion")

	patched, err := client.Patch(s.ctx, "boiler", types.MergePatchType, []byte(`{"metadata":{"labels":{"hot":"yes"}}}`), metav1.PatchOptions{})
	s.works(err, "it is patched")
	s.same(2, patched.GetGeneration(), "its generation stays 2 when only a label changes")
	_, err = client.Patch(s.ctx, "boiler", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
	s.so(apierrors.IsUnsupportedMediaType(err), "a strategic merge patch is not for such kinds", err)

	_, err = client.Create(s.ctx, s.gauge("wrong", map[string]any{"unit": "mile"}), metav1.CreateOptions{})
	s.invalid(err, "spec.unit", metav1.CauseTypeFieldValueNotSupported, "a value that is not in the enum")
	_, err = client.Create(s.ctx, s.gauge("wrong", map[string]any{"replicas": int64(-1)}), metav1.CreateOptions{})
	s.invalid(err, "spec.replicas", metav1.CauseTypeFieldValueInvalid, "a value below its minimum")
	_, err = client.Create(s.ctx, s.gauge("wrong", map[string]any{"replicas": "two"}), metav1.CreateOptions{})
	s.invalid(err, "spec.replicas", metav1.CauseTypeTypeInvalid, "a value of another type")
	unknown := s.gauge("unknown", map[string]any{"weight": "1 kg"})
	_, err = client.Create(s.ctx, unknown, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	s.so(apierrors.IsBadRequest(err), "an unknown field is BadRequest when asked to be strict", err)
	pruned, err := client.Create(s.ctx, unknown, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	s.works(err, "and taken when not")
	_, kept, _ := unstructured.NestedString(pruned.Object, "spec", "weight")
	s.so(!kept, "but not kept", pruned)
	return patched
}

// One event: the status.
func (s *story) writesStatus(client clientdynamic.ResourceInterface, gauge *unstructured.Unstructured) {
	unstructured.SetNestedField(gauge.Object, "bar", "spec", "unit")
	unstructured.SetNestedMap(gauge.Object, map[string]any{"replicas": int64(3), "selector": "app=boiler", "reading": "high"}, "status")
	written, err := client.UpdateStatus(s.ctx, gauge, metav1.UpdateOptions{})
	s.works(err, "its status is updated")
	reading, _, _ := unstructured.NestedString(written.Object, "status", "reading")
	unit, _, _ := unstructured.NestedString(written.Object, "spec", "unit")
	s.so(reading == "high" && unit == "psi", "its status and nothing else", written)
	s.same(2, written.GetGeneration(), "its generation stays 2 when only the status changes")
}

// Two events: an update and a patch of the scale.
func (s *story) scales(gauges clientdynamic.ResourceInterface) {
	finder, err := discovery.NewDiscoveryClientForConfig(s.config)
	s.must(err, "make a discovery client")
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(finder))
	client, err := scale.NewForConfig(s.config, mapper, clientdynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(finder))
	s.must(err, "make a scale client")
	resource := definitions.GroupResource()
	resource.Group, resource.Resource = gaugeGroup, "gauges"

	found, err := client.Scales(s.namespace).Get(s.ctx, resource, "boiler", metav1.GetOptions{})
	s.works(err, "its scale is read")
	s.so(found.Spec.Replicas == 1 && found.Status.Replicas == 3 && found.Status.Selector == "app=boiler", "and has what is in the object", found)
	found.Spec.Replicas = 5
	scaled, err := client.Scales(s.namespace).Update(s.ctx, resource, found, metav1.UpdateOptions{})
	s.works(err, "its scale is updated")
	s.same(5, scaled.Spec.Replicas, "and has the new number")
	s.so(scaled.ResourceVersion != found.ResourceVersion, "and a new resourceVersion", scaled)
	patched, err := client.Scales(s.namespace).Patch(s.ctx, resource.WithVersion("v1"), "boiler", types.MergePatchType, []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{})
	s.works(err, "its scale is patched")
	s.same(7, patched.Spec.Replicas, "and has the new number")
	gauge, err := gauges.Get(s.ctx, "boiler", metav1.GetOptions{})
	s.must(err, "read the object")
	replicas, _, _ := unstructured.NestedInt64(gauge.Object, "spec", "replicas")
	s.same(7, replicas, "so has the object")
	s.same(4, gauge.GetGeneration(), "whose generation counted both")
	raw, err := gauges.Get(s.ctx, "boiler", metav1.GetOptions{}, "scale")
	s.works(err, "the scale is a subresource")
	s.same(autoscalingv1.SchemeGroupVersion.String()+" Scale", raw.GetAPIVersion()+" "+raw.GetKind(), "of the kind that all scales are")
}
