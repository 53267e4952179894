package main

import (
	"bufio"
	"encoding/json"
	"math/rand"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

const patchesPerKind = 250

// patched is a document, a patch and what comes of it: another document, or words.
type patched struct {
	Kind     string `json:"kind"`
	Document any    `json:"document"`
	Patch    any    `json:"patch"`
	Result   any    `json:"result,omitempty"`
	Error    string `json:"error,omitempty"`
}

func writePatches(out *bufio.Writer) {
	random := rand.New(rand.NewSource(3))
	kinds := []struct {
		name   string
		object any
		some   func(*rand.Rand) map[string]any
		patch  func(*rand.Rand) map[string]any
	}{
		{"Pod", v1.Pod{}, somePod, patchOfPod},
		{"Node", v1.Node{}, someNode, patchOfNode},
		{"ServiceAccount", v1.ServiceAccount{}, someAccount, patchOfAccount},
	}
	for _, kind := range kinds {
		for range patchesPerKind {
			one := patched{Kind: kind.name, Document: kind.some(random), Patch: kind.patch(random)}
			if !agreed(&one, kind.object) {
				continue
			}
			line, err := json.Marshal(one)
			must(err)
			out.Write(line)
			out.WriteByte('\n')
		}
	}
}

// agreed applies a patch several times: what comes of some depends on the order in which Go walks a map.
func agreed(one *patched, object any) bool {
	var first string
	for attempt := range 12 {
		result, err := strategicpatch.StrategicMergeMapPatch(clone(one.Document).(map[string]any), clone(one.Patch).(map[string]any), object)
		text := ""
		if err == nil {
			encoded, err := json.Marshal(result)
			must(err)
			text = string(encoded)
			one.Result = map[string]any(result)
		} else if one.Error == "" || err.Error() < one.Error {
			one.Error = err.Error()
		}
		if attempt == 0 {
			first = text
		}
		if text != first {
			return false
		}
	}
	return true
}

func somePod(random *rand.Rand) map[string]any {
	spec := map[string]any{}
	if maybe(random) {
		spec["containers"] = elements(random, "name", container)
	}
	if maybe(random) {
		spec["volumes"] = elements(random, "name", volume)
	}
	if maybe(random) {
		spec["nodeSelector"] = texts(random, "k", "l")
	}
	if maybe(random) {
		spec["tolerations"] = []any{map[string]any{"key": pick(random, "a", "b")}}
	}
	return map[string]any{"metadata": someMeta(random), "spec": spec}
}

func patchOfPod(random *rand.Rand) map[string]any {
	patch := somePod(random)
	metadata, spec := patch["metadata"].(map[string]any), patch["spec"].(map[string]any)
	directMeta(random, metadata)
	directList(random, spec, "containers", "name")
	directList(random, spec, "volumes", "name")
	if volumes, there := spec["volumes"].([]any); there && maybe(random) {
		for _, one := range volumes {
			if one := one.(map[string]any); one["name"] != nil && one["$patch"] == nil && maybe(random) {
				keys := []any{}
				for key := range one {
					keys = append(keys, key)
				}
				sortTexts(keys)
				one["$retainKeys"] = keys
			}
		}
	}
	if containers, there := spec["containers"].([]any); there {
		for _, one := range containers {
			if one := one.(map[string]any); maybe(random) && one["$patch"] == nil {
				directList(random, one, "env", "name")
			}
		}
	}
	direct(random, spec, "nodeSelector")
	if random.Intn(12) == 0 {
		spec["$patch"] = pick(random, "replace", "delete", "merge")
	}
	return patch
}

func container(random *rand.Rand, one map[string]any) {
	if maybe(random) {
		one["image"] = pick(random, "i", "j")
	}
	if maybe(random) {
		one["env"] = elements(random, "name", func(random *rand.Rand, one map[string]any) {
			one["value"] = pick(random, "1", "2")
		})
	}
	if maybe(random) {
		one["args"] = some(random, "1", "2")
	}
}

func volume(random *rand.Rand, one map[string]any) {
	if maybe(random) {
		one["emptyDir"] = map[string]any{}
	} else {
		one["secret"] = map[string]any{"secretName": pick(random, "s", "t")}
	}
}

func someNode(random *rand.Rand) map[string]any {
	node := map[string]any{"metadata": someMeta(random)}
	spec := map[string]any{}
	if maybe(random) {
		spec["podCIDRs"] = some(random, "1", "2", "3")
	}
	if maybe(random) {
		spec["taints"] = []any{map[string]any{"key": pick(random, "a", "b")}}
	}
	node["spec"] = spec
	status := map[string]any{}
	if maybe(random) {
		status["conditions"] = elements(random, "type", func(random *rand.Rand, one map[string]any) {
			one["status"] = pick(random, "True", "False")
		})
	}
	if maybe(random) {
		status["capacity"] = texts(random, "cpu", "memory")
	}
	node["status"] = status
	return node
}

func patchOfNode(random *rand.Rand) map[string]any {
	patch := someNode(random)
	directMeta(random, patch["metadata"].(map[string]any))
	directSet(random, patch["spec"].(map[string]any), "podCIDRs", "1", "2", "3")
	status := patch["status"].(map[string]any)
	directList(random, status, "conditions", "type")
	direct(random, status, "capacity")
	if random.Intn(8) == 0 {
		patch["status"] = nil
	}
	return patch
}

func someAccount(random *rand.Rand) map[string]any {
	account := map[string]any{"metadata": someMeta(random)}
	if maybe(random) {
		account["secrets"] = elements(random, "name", func(random *rand.Rand, one map[string]any) {
			if maybe(random) {
				one["kind"] = pick(random, "x", "y")
			}
		})
	}
	if maybe(random) {
		account["imagePullSecrets"] = elements(random, "name", func(*rand.Rand, map[string]any) {})
	}
	return account
}

func patchOfAccount(random *rand.Rand) map[string]any {
	patch := someAccount(random)
	directMeta(random, patch["metadata"].(map[string]any))
	directList(random, patch, "secrets", "name")
	return patch
}

func someMeta(random *rand.Rand) map[string]any {
	metadata := map[string]any{"name": "one"}
	if maybe(random) {
		metadata["labels"] = texts(random, "x", "y", "z")
	}
	if maybe(random) {
		metadata["finalizers"] = some(random, "p", "q", "r", "s")
	}
	return metadata
}

func directMeta(random *rand.Rand, metadata map[string]any) {
	direct(random, metadata, "labels")
	directSet(random, metadata, "finalizers", "p", "q", "r", "s")
}

// direct puts directives into an object of scalars.
func direct(random *rand.Rand, parent map[string]any, field string) {
	object, there := parent[field].(map[string]any)
	if !there {
		return
	}
	switch random.Intn(6) {
	case 0:
		object["$patch"] = pick(random, "replace", "delete", "merge")
	case 1:
		object["$retainKeys"] = keysOf(object)
	case 2:
		for _, key := range keysOf(object) {
			object[key.(string)] = nil
			break
		}
	case 3:
		parent[field] = nil
	}
}

func keysOf(object map[string]any) []any {
	keys := []any{}
	for key := range object {
		keys = append(keys, key)
	}
	sortTexts(keys)
	return keys
}

// directList puts directives into a list of objects that are told apart by a key, and beside it.
func directList(random *rand.Rand, parent map[string]any, field, key string) {
	list, there := parent[field].([]any)
	if !there {
		if random.Intn(6) == 0 {
			parent[field] = nil
		}
		return
	}
	for _, one := range list {
		if random.Intn(4) == 0 {
			object := one.(map[string]any)
			for name := range object {
				if name != key {
					delete(object, name)
				}
			}
			object["$patch"] = "delete"
		}
	}
	if random.Intn(8) == 0 {
		list = append(list, map[string]any{"$patch": "replace"})
	}
	if random.Intn(8) == 0 {
		list = append(list, map[string]any{key: pick(random, "a", "b", "c", "d"), "$patch": pick(random, "merge", "replace")})
	}
	parent[field] = list
	if random.Intn(3) == 0 {
		order := []any{}
		for _, one := range list {
			object := one.(map[string]any)
			if object["$patch"] != "delete" && object[key] != nil {
				order = append(order, map[string]any{key: object[key]})
			}
		}
		if maybe(random) {
			order = append(order, map[string]any{key: pick(random, "a", "b", "c", "d")})
		}
		parent["$setElementOrder/"+field] = order
	}
}

// directSet puts directives beside a list of scalars.
func directSet(random *rand.Rand, parent map[string]any, field string, from ...string) {
	list, _ := parent[field].([]any)
	if random.Intn(3) == 0 {
		gone := []any{}
		for _, one := range some(random, from...) {
			kept := true
			for _, added := range list {
				kept = kept && added != one
			}
			// What is added and removed at once is settled by chance.
			if kept {
				gone = append(gone, one)
			}
		}
		parent["$deleteFromPrimitiveList/"+field] = gone
	}
	if random.Intn(3) == 0 {
		order := append([]any{}, list...)
		for _, one := range some(random, from...) {
			missing := true
			for _, there := range order {
				missing = missing && there != one
			}
			if missing {
				order = append(order, one)
			}
		}
		parent["$setElementOrder/"+field] = order
	}
}

func elements(random *rand.Rand, key string, fill func(*rand.Rand, map[string]any)) []any {
	all := []any{}
	for _, name := range some(random, "a", "b", "c", "d") {
		one := map[string]any{key: name}
		fill(random, one)
		all = append(all, one)
	}
	return all
}

func sortTexts(texts []any) {
	for at := range texts {
		for next := at + 1; next < len(texts); next++ {
			if texts[next].(string) < texts[at].(string) {
				texts[at], texts[next] = texts[next], texts[at]
			}
		}
	}
}
