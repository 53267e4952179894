package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// The kinds that Sheaf serves itself; what they are made of follows.
var served = []string{
	"core.v1.ConfigMap", "core.v1.Event", "core.v1.LimitRange", "core.v1.Namespace", "core.v1.Node",
	"core.v1.PersistentVolume", "core.v1.PersistentVolumeClaim", "core.v1.Pod", "core.v1.ResourceQuota",
	"core.v1.Secret", "core.v1.Service", "core.v1.ServiceAccount", "coordination.v1.Lease", "events.v1.Event",
	"rbac.v1.ClusterRole", "rbac.v1.ClusterRoleBinding", "rbac.v1.Role", "rbac.v1.RoleBinding",
	"storage.v1.CSIDriver", "storage.v1.CSINode", "storage.v1.StorageClass", "storage.v1.VolumeAttachment",
}

// writeTopology writes how the fields of built-in types merge, a line per field that is out of the ordinary.
func writeTopology(out io.Writer) {
	object, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(&v1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}})
	must(err)
	types := map[string]smd.TypeDef{}
	for _, one := range object.Schema().Types {
		types[one.Name] = one
	}
	reached := map[string]bool{}
	var reach func(name string)
	var follow func(ref smd.TypeRef)
	follow = func(ref smd.TypeRef) {
		if ref.NamedType != nil {
			reach(*ref.NamedType)
		}
		if ref.Inlined.List != nil {
			follow(ref.Inlined.List.ElementType)
		}
		if ref.Inlined.Map != nil {
			follow(ref.Inlined.Map.ElementType)
		}
	}
	reach = func(name string) {
		definition, known := types[name]
		if !known {
			must(fmt.Errorf("there is no type %s", name))
		}
		if reached[name] {
			return
		}
		reached[name] = true
		if definition.Map != nil {
			for _, field := range definition.Map.Fields {
				follow(field.Type)
			}
		}
	}
	for _, name := range served {
		reach("io.k8s.api." + name)
	}
	var names []string
	for name := range reached {
		names = append(names, name)
	}
	sort.Strings(names)
	keys := map[string]bool{}
	for _, name := range names {
		definition := types[name]
		if definition.Map == nil {
			continue
		}
		for _, field := range definition.Map.Fields {
			if list := field.Type.Inlined.List; list != nil && list.ElementType.NamedType != nil {
				for _, key := range list.Keys {
					keys[*list.ElementType.NamedType+" "+key] = true
				}
			}
		}
	}
	for _, name := range names {
		definition := types[name]
		if definition.Map == nil {
			continue
		}
		if definition.Map.ElementRelationship == smd.Atomic {
			fmt.Fprintf(out, "%s . atomic\n", name)
		}
		for _, field := range definition.Map.Fields {
			write := func(format string, arguments ...any) {
				fmt.Fprintf(out, "%s %s %s\n", name, field.Name, fmt.Sprintf(format, arguments...))
			}
			if list := field.Type.Inlined.List; list != nil && list.ElementRelationship == smd.Associative {
				if len(list.Keys) == 0 {
					write("set")
				} else {
					write("map %s", strings.Join(list.Keys, ","))
				}
			}
			if inlined := field.Type.Inlined.Map; inlined != nil && inlined.ElementRelationship == smd.Atomic {
				write("atomic")
			}
			if field.Type.ElementRelationship != nil && *field.Type.ElementRelationship == smd.Atomic {
				write("atomic")
			}
			switch value := field.Default.(type) {
			case nil:
			case map[string]any, map[any]any:
				// A Go struct that is no pointer: it is there even when nobody wrote it.
				write("always")
			default:
				// What else has a default gets it when it is decoded; a key is asked for before that.
				if keys[name+" "+field.Name] {
					text, err := json.Marshal(value)
					must(err)
					write("default %s", text)
				}
			}
		}
	}
}
