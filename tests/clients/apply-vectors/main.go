// Writes what server-side apply is built from and judged by:
//
//	apply-vectors topology   how the lists and objects of built-in kinds merge
//	apply-vectors stories    managers who apply and update one object, and what the original's library makes of each
//	                         step: one JSON document per line
//	apply-vectors writes     the same for real kinds, through all of the original's bookkeeping: what clients send as
//	                         managedFields, what subresources reach, times, the words of conflicts
//	apply-vectors patches    strategic merge patches and what comes of them
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"sort"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

const (
	stories = 120
	steps   = 8
	version = fieldpath.APIVersion("v1")
)

// The kind that the Rust tests have, in the original's words.
const schema = typed.YAMLObject(`types:
- name: thing
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: meta}}
    - {name: spec, type: {namedType: spec}}
    - {name: status, type: {namedType: __untyped_deduced_}}
- name: meta
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: finalizers, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
- name: spec
  map:
    fields:
    - {name: replicas, type: {scalar: numeric}}
    - {name: paused, type: {scalar: boolean}}
    - {name: ports, type: {list: {elementType: {namedType: port}, elementRelationship: associative, keys: [port, protocol]}}}
    - {name: args, type: {list: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: selector, type: {map: {elementType: {scalar: string}, elementRelationship: atomic}}}
    - {name: template, type: {namedType: template}}
- name: port
  map:
    fields:
    - {name: port, type: {scalar: numeric}}
    - {name: protocol, type: {scalar: string}, default: TCP}
    - {name: name, type: {scalar: string}}
- name: template
  map:
    fields:
    - {name: image, type: {scalar: string}}
    - {name: tag, type: {scalar: string}}
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`)

type oneVersion struct{}

func (oneVersion) Convert(object *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return object, nil
}
func (oneVersion) IsMissingVersionError(error) bool { return false }

// step is one write and what came of it.
type step struct {
	Op        string                     `json:"op"`
	Manager   string                     `json:"manager"`
	Force     bool                       `json:"force,omitempty"`
	Given     any                        `json:"given"`
	Conflicts []string                   `json:"conflicts,omitempty"`
	Object    any                        `json:"object,omitempty"`
	Managers  map[string]json.RawMessage `json:"managers,omitempty"`
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "topology":
		writeTopology(out)
	case len(os.Args) == 2 && os.Args[1] == "stories":
		writeStories(out)
	case len(os.Args) == 2 && os.Args[1] == "writes":
		writeWrites(out)
	case len(os.Args) == 2 && os.Args[1] == "patches":
		writePatches(out)
	default:
		fmt.Fprintln(os.Stderr, "usage: apply-vectors topology|stories|writes|patches")
		os.Exit(2)
	}
}

func writeStories(out *bufio.Writer) {
	parser, err := typed.NewParser(schema)
	must(err)
	kind := parser.Type("thing")
	// What the API server takes out of the sets before it writes them down.
	nobodys := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"),
		fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("metadata", "name"))
	builder := merge.UpdaterBuilder{Converter: oneVersion{}, ReturnInputOnNoop: true}
	updater := builder.BuildUpdater()
	random := rand.New(rand.NewSource(1))
	for range stories {
		live := map[string]any{"apiVersion": "v1", "kind": "Thing", "metadata": map[string]any{"name": "one"}}
		managers := fieldpath.ManagedFields{}
		var told []step
		for range steps {
			now := step{Op: "apply", Manager: pick(random, "a", "b", "c")}
			if random.Intn(3) == 0 {
				now.Op, now.Manager = "update", pick(random, "u", "v")
			}
			given := thing(random)
			if now.Op == "update" && random.Intn(2) == 0 {
				given = edited(random, live)
			}
			now.Given = given
			now.Force = now.Op == "apply" && random.Intn(3) == 0
			liveTyped, err := kind.FromUnstructured(live)
			must(err)
			givenTyped, err := kind.FromUnstructured(given)
			must(err)
			before := managers.Copy()
			var result *typed.TypedValue
			if now.Op == "apply" {
				result, managers, err = updater.Apply(liveTyped, givenTyped, version, managers.Copy(), now.Manager, now.Force)
			} else {
				result, managers, err = updater.Update(liveTyped, givenTyped, version, managers.Copy(), now.Manager)
			}
			var conflicts merge.Conflicts
			if errors.As(err, &conflicts) {
				for _, one := range conflicts {
					now.Conflicts = append(now.Conflicts, fmt.Sprintf("%s %s", one.Manager, one.Path))
				}
				sort.Strings(now.Conflicts)
				managers = before
				told = append(told, now)
				continue
			}
			must(err)
			live = clone(result.AsValue().Unstructured()).(map[string]any)
			now.Object = live
			now.Managers = map[string]json.RawMessage{}
			for name, set := range managers {
				left := set.Set().Difference(nobodys)
				if left.Empty() {
					delete(managers, name)
					continue
				}
				managers[name] = fieldpath.NewVersionedSet(left, version, set.Applied())
				text, err := left.ToJSON()
				must(err)
				now.Managers[name] = text
			}
			told = append(told, now)
		}
		line, err := json.Marshal(told)
		must(err)
		out.Write(bytes.TrimSpace(line))
		out.WriteByte('\n')
	}
}

// thing is an object with some of everything.
func thing(random *rand.Rand) map[string]any {
	object := map[string]any{"apiVersion": "v1", "kind": "Thing"}
	metadata := map[string]any{"name": "one"}
	if maybe(random) {
		metadata["labels"] = texts(random, "x", "y", "z")
	}
	if maybe(random) {
		metadata["finalizers"] = some(random, "p", "q", "r", "s")
	}
	object["metadata"] = metadata
	spec := map[string]any{}
	if maybe(random) {
		spec["replicas"] = int64(random.Intn(3))
	}
	if maybe(random) {
		spec["paused"] = maybe(random)
	}
	if maybe(random) {
		spec["ports"] = ports(random)
	}
	if maybe(random) {
		spec["args"] = some(random, "1", "2")
	}
	if maybe(random) {
		spec["selector"] = texts(random, "k", "l")
	}
	if maybe(random) {
		spec["template"] = texts(random, "image", "tag")
	}
	if len(spec) > 0 || maybe(random) {
		object["spec"] = spec
	}
	if random.Intn(4) == 0 {
		object["status"] = map[string]any{"deep": map[string]any{"er": int64(random.Intn(2))}, "list": some(random, "1", "2")}
	}
	return object
}

// edited is the object with a part of another.
func edited(random *rand.Rand, live map[string]any) map[string]any {
	object := clone(live).(map[string]any)
	other := thing(random)
	part := pick(random, "metadata", "spec", "status")
	if value, there := other[part]; there {
		object[part] = value
	} else if part != "metadata" {
		delete(object, part)
	}
	return object
}

func ports(random *rand.Rand) []any {
	all := []any{}
	for _, at := range random.Perm(3)[:random.Intn(4)] {
		port := map[string]any{"port": int64(80 + at)}
		if maybe(random) {
			port["protocol"] = pick(random, "TCP", "UDP")
		}
		if maybe(random) {
			port["name"] = pick(random, "n", "m")
		}
		all = append(all, port)
	}
	return all
}

func texts(random *rand.Rand, names ...string) map[string]any {
	all := map[string]any{}
	for _, name := range names {
		if maybe(random) {
			all[name] = pick(random, "1", "2")
		}
	}
	return all
}

func some(random *rand.Rand, from ...string) []any {
	all := []any{}
	for _, at := range random.Perm(len(from))[:random.Intn(len(from)+1)] {
		all = append(all, from[at])
	}
	return all
}

func pick(random *rand.Rand, from ...string) string { return from[random.Intn(len(from))] }

func maybe(random *rand.Rand) bool { return random.Intn(2) == 0 }

func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := map[string]any{}
		for name, inner := range value {
			copied[name] = clone(inner)
		}
		return copied
	case []any:
		copied := []any{}
		for _, inner := range value {
			copied = append(copied, clone(inner))
		}
		return copied
	default:
		return value
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
