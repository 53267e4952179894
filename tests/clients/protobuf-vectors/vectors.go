package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// Three lines a vector: what it is, the body in base64, and the JSON of the object that
// the original's own decoder makes of that body.
func writeVectors(out io.Writer) {
	scheme := newScheme()
	serializer := protobuf.NewSerializer(scheme, scheme)
	write := func(manner string, gvk schema.GroupVersionKind, object runtime.Object) {
		object.GetObjectKind().SetGroupVersionKind(gvk)
		var body bytes.Buffer
		if err := serializer.Encode(object, &body); err != nil {
			log.Fatalf("%s: %v", gvk, err)
		}
		read, actual, err := serializer.Decode(body.Bytes(), nil, nil)
		if err != nil {
			log.Fatalf("%s: %v", gvk, err)
		}
		read.GetObjectKind().SetGroupVersionKind(*actual)
		text, err := json.Marshal(read)
		if err != nil {
			log.Fatalf("%s: %v", gvk, err)
		}
		fmt.Fprintln(out, manner, gvk.GroupVersion(), gvk.Kind)
		fmt.Fprintln(out, base64.StdEncoding.EncodeToString(body.Bytes()))
		fmt.Fprintln(out, string(text))
	}
	add := func(gvk schema.GroupVersionKind) {
		for _, manner := range []string{"unset", "hollow", "full"} {
			// A full list would only repeat what its items already show.
			if manner == "full" && strings.HasSuffix(gvk.Kind, "List") && gvk.Kind != "ConfigMapList" {
				continue
			}
			object, err := scheme.New(gvk)
			if err != nil {
				log.Fatal(err)
			}
			filler := filler{full: manner == "full", open: map[reflect.Type]int{}}
			if manner != "unset" {
				filler.fill(reflect.ValueOf(object).Elem())
			}
			write(manner, gvk, object)
		}
	}
	for _, group := range kinds {
		for _, name := range group.names {
			add(group.version.WithKind(name))
		}
	}
	for _, name := range everywhere {
		add(schema.GroupVersionKind{Version: "v1", Kind: name})
	}
	// As a typed client of another group sends it.
	add(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "DeleteOptions"})
}
