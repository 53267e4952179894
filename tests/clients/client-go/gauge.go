package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const gaugeKind = "Gauge"

// Each run has a group of its own: definitions are the whole cluster's.
var gaugeGroup string

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definesGauges makes a kind that has everything a definition can give it, and waits until it is served.
func (s *story) definesGauges() schema.GroupVersionResource {
	gaugeGroup = s.suffix + ".client-go.test"
	name := "gauges." + gaugeGroup
	text := map[string]any{"type": "string"}
	whole := map[string]any{"type": "integer", "minimum": int64(0)}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"group": gaugeGroup,
			"scope": "Namespaced",
			"names": map[string]any{"plural": "gauges", "singular": "gauge", "kind": gaugeKind, "listKind": "GaugeList",
				"shortNames": []any{"gg"}},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{
					"status": map[string]any{},
					"scale": map[string]any{
						"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
						"labelSelectorPath": ".status.selector",
					},
				},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{
						"data": map[string]any{"type": "object", "properties": map[string]any{"count": text}},
						"spec": map[string]any{"type": "object", "properties": map[string]any{
							"replicas": map[string]any{"type": "integer", "minimum": int64(0), "default": int64(1)},
							"unit":     map[string]any{"type": "string", "enum": []any{"bar", "psi"}},
						}},
						"status": map[string]any{"type": "object", "properties": map[string]any{
							"replicas": whole, "selector": text, "reading": text,
						}},
					},
				}},
			}},
		},
	}}
	client := s.dynamic.Resource(definitions)
	s.later(func(ctx context.Context) { _ = client.Delete(ctx, name, metav1.DeleteOptions{}) })
	_, err := client.Create(s.ctx, definition, metav1.CreateOptions{})
	s.works(err, "a definition is created")
	s.soon("it is Established", func() (bool, any) {
		found, err := client.Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
		for _, condition := range conditions {
			condition := condition.(map[string]any)
			if condition["type"] == "Established" && condition["status"] == "True" {
				return true, nil
			}
		}
		return false, conditions
	})
	gauges := schema.GroupVersionResource{Group: gaugeGroup, Version: "v1", Resource: "gauges"}
	// The condition may be there a moment before the handler is.
	s.soon("and served", func() (bool, any) {
		_, err := s.dynamic.Resource(gauges).Namespace(s.namespace).List(s.ctx, metav1.ListOptions{})
		return err == nil, err
	})
	return gauges
}

func (s *story) gauge(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gaugeGroup + "/v1",
		"kind":       gaugeKind,
		"metadata":   map[string]any{"name": name},
		"spec":       spec,
	}}
}
