package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"math/rand"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gvks "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const (
	storiesPerKind  = 6
	writesPerStory  = 8
	lastApplied     = "kubectl.kubernetes.io/last-applied-configuration"
	ofCustom        = "example.com/v1"
	managedAbsent   = "absent"
	managedKept     = "kept"
	managedReset    = "reset"
	managedEmpty    = "empty"
	managedNonsense = "nonsense"
)

// part is a field and what it may be.
type part struct {
	path    string
	choices []string
}

type kindOf struct {
	apiVersion, kind string
	hasStatus        bool
	parts            []part
}

var everyObject = []part{
	{"metadata.labels", []string{`{"x":"1"}`, `{"x":"2","y":"1"}`, `{}`}},
	{"metadata.annotations", []string{`{"n":"1"}`, `{"n":"2","` + lastApplied + `":"@"}`}},
	{"metadata.finalizers", []string{`["a/b"]`, `["a/b","c/d"]`, `["e/f"]`}},
	{"metadata.ownerReferences", []string{
		`[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u1"}]`,
		`[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u1","controller":true},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u2"}]`}},
}

var kindsWritten = []kindOf{
	{"v1", "ConfigMap", false, []part{
		{"data", []string{`{"a":"1"}`, `{"a":"2","b":"1"}`, `{"c":"1"}`, `{}`}},
		{"immutable", []string{"true", "false"}}}},
	{"v1", "ServiceAccount", false, []part{
		{"secrets", []string{`[{"name":"a"}]`, `[{"name":"b"},{"name":"a"}]`, `[]`}},
		{"imagePullSecrets", []string{`[{"name":"a"}]`, `[{"name":"b"}]`}}}},
	{"rbac.authorization.k8s.io/v1", "RoleBinding", false, []part{
		{"roleRef", []string{`{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"}`, `{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"s"}`}},
		{"subjects", []string{`[{"kind":"User","name":"u"}]`, `[{"kind":"User","name":"u"},{"kind":"Group","name":"g"}]`}}}},
	{"coordination.k8s.io/v1", "Lease", false, []part{
		{"spec.holderIdentity", []string{`"me"`, `"you"`}},
		{"spec.leaseDurationSeconds", []string{"10", "15"}}}},
	{"v1", "Namespace", true, []part{
		{"spec.finalizers", []string{`["kubernetes"]`, `["kubernetes","x/y"]`}},
		{"status.phase", []string{`"Active"`, `"Terminating"`}},
		{"status.conditions", []string{`[{"type":"A","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]`, `[{"type":"B","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"A","status":"False","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R"}]`}}}},
	{"v1", "Node", true, []part{
		{"spec.podCIDRs", []string{`["10.0.0.0/24"]`, `["10.0.0.0/24","fd00::/64"]`}},
		{"spec.taints", []string{`[{"key":"a","effect":"NoSchedule"}]`, `[{"key":"b","effect":"NoExecute"}]`}},
		{"spec.unschedulable", []string{"true"}},
		{"status.addresses", []string{`[{"type":"InternalIP","address":"10.0.0.1"}]`, `[{"type":"Hostname","address":"h"},{"type":"InternalIP","address":"10.0.0.2"}]`}},
		{"status.conditions", []string{`[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R"}]`, `[{"type":"Ready","status":"False","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"DiskPressure","status":"False","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]`}},
		{"status.capacity", []string{`{"cpu":"4"}`, `{"cpu":"8","memory":"1Gi"}`}}}},
	{"v1", "PersistentVolumeClaim", true, []part{
		{"spec.accessModes", []string{`["ReadWriteOnce"]`, `["ReadWriteMany"]`}},
		{"spec.resources.requests", []string{`{"storage":"1Gi"}`, `{"storage":"2Gi"}`}},
		{"spec.storageClassName", []string{`"fast"`, `"slow"`}},
		{"spec.dataSource", []string{`{"kind":"PersistentVolumeClaim","name":"a"}`, `{"kind":"VolumeSnapshot","name":"b","apiGroup":"snapshot.storage.k8s.io"}`}},
		{"spec.selector", []string{`{"matchLabels":{"a":"b"}}`, `{"matchLabels":{"c":"d"}}`}},
		{"status.phase", []string{`"Pending"`, `"Bound"`}},
		{"status.conditions", []string{`[{"type":"Resizing","status":"True","lastProbeTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]`, `[{"type":"Resizing","status":"False","lastProbeTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"FileSystemResizePending","status":"True","lastProbeTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]`}},
		{"status.capacity", []string{`{"storage":"1Gi"}`, `{"storage":"2Gi"}`}}}},
	{"v1", "Pod", true, []part{
		{"spec.containers", []string{
			`[{"name":"a","image":"i","ports":[{"containerPort":80,"protocol":"TCP"}]}]`,
			`[{"name":"a","image":"j","env":[{"name":"E","value":"1"},{"name":"F","value":"2"}]},{"name":"b","image":"k"}]`,
			`[{"name":"b","image":"k","args":["1"],"ports":[{"containerPort":80,"protocol":"UDP"},{"containerPort":81,"protocol":"TCP"}],"volumeMounts":[{"name":"v","mountPath":"/v"}]}]`}},
		{"spec.volumes", []string{`[{"name":"v","emptyDir":{}}]`, `[{"name":"v","secret":{"secretName":"s"}},{"name":"w","configMap":{"name":"c"}}]`}},
		{"spec.nodeSelector", []string{`{"a":"b"}`, `{"c":"d"}`}},
		{"spec.tolerations", []string{`[{"key":"a","operator":"Exists"}]`, `[{"key":"b","operator":"Exists"}]`}},
		{"spec.topologySpreadConstraints", []string{`[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]`,
			`[{"maxSkew":2,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"},{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway"}]`}},
		{"status.phase", []string{`"Running"`, `"Failed"`}},
		{"status.podIPs", []string{`[{"ip":"10.0.0.1"}]`, `[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]`}}}},
	{ofCustom, "Thing", true, []part{
		{"spec.replicas", []string{"1", "2"}},
		{"spec.paused", []string{"true", "null"}},
		{"spec.ports", []string{`[{"port":80}]`, `[{"port":80,"name":"n"},{"port":81,"protocol":"UDP"}]`, `[]`}},
		{"spec.args", []string{`["1"]`, `["1","2"]`}},
		{"spec.selector", []string{`{"a":"b"}`, `{"c":"d"}`}},
		{"spec.template", []string{`{"image":"i"}`, `{"image":"i","tag":"t"}`, `{}`}},
		{"spec.anything", []string{`{"deep":{"er":1},"list":[1]}`, `{"deep":{"er":2,"est":3}}`}},
		{"status.deep", []string{`{"er":1}`, `{"er":2,"list":[1]}`}}}},
}

// write is one request and what came of it.
type write struct {
	Op          string `json:"op"`
	Manager     string `json:"manager"`
	Subresource string `json:"subresource,omitempty"`
	Force       bool   `json:"force,omitempty"`
	// What the client sends as managedFields.
	Managed       string `json:"managed,omitempty"`
	Given         any    `json:"given"`
	Object        any    `json:"object,omitempty"`
	ManagedFields any    `json:"managedFields,omitempty"`
	Message       string `json:"message,omitempty"`
	Causes        any    `json:"causes,omitempty"`
}

type story struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Writes     []write `json:"writes"`
}

func writeWrites(out *bufio.Writer) {
	random := rand.New(rand.NewSource(2))
	for _, kind := range kindsWritten {
		kind.parts = append(append([]part{}, everyObject...), kind.parts...)
		for range storiesPerKind {
			line, err := json.Marshal(told(random, kind))
			must(err)
			out.Write(line)
			out.WriteByte('\n')
		}
	}
}

func told(random *rand.Rand, kind kindOf) story {
	group, err := gvks.ParseGroupVersion(kind.apiVersion)
	must(err)
	house := houseOf(kind, group.WithKind(kind.kind))
	var live runtime.Object
	var written []write
	for at := range writesPerStory {
		now := write{Op: "apply", Manager: pick(random, "a", "b", "kubectl")}
		if random.Intn(2) == 0 {
			now.Op, now.Manager = "update", pick(random, "u", "v")
			now.Managed = pick(random, managedKept, managedKept, managedKept, managedAbsent, managedAbsent, managedNonsense)
			if random.Intn(12) == 0 {
				now.Managed = pick(random, managedReset, managedEmpty)
			}
		}
		if at == 0 && now.Op == "update" {
			now.Op, now.Managed = "create", ""
		}
		if at > 0 && kind.hasStatus && random.Intn(3) == 0 {
			now.Subresource = "status"
		}
		now.Force = now.Op == "apply" && random.Intn(3) == 0
		given := someObject(random, kind)
		if now.Op == "update" && random.Intn(2) == 0 {
			given = kept(live)
			change(random, kind, given)
		}
		now.Given = clone(given)
		fields := house.fields[now.Subresource]
		began := time.Now()
		var result runtime.Object
		switch now.Op {
		case "create":
			result = fields.UpdateNoErrors(house.empty(), house.typed(given), now.Manager)
		case "update":
			object := clone(given).(map[string]any)
			metadata := object["metadata"].(map[string]any)
			metadata["uid"] = "the-uid"
			entries := entriesOf(live)
			switch now.Managed {
			case managedKept:
				if entries != nil {
					metadata["managedFields"] = entries
				}
			case managedReset:
				metadata["managedFields"] = []any{map[string]any{}}
			case managedEmpty:
				metadata["managedFields"] = []any{}
			case managedNonsense:
				metadata["managedFields"] = []any{map[string]any{"manager": "x", "operation": "Guess", "apiVersion": "v1"}}
			}
			result = fields.UpdateNoErrors(live.DeepCopyObject(), house.typed(object), now.Manager)
		case "apply":
			from := live
			if from == nil {
				from = house.empty()
			}
			result, err = fields.Apply(from.DeepCopyObject(), &unstructured.Unstructured{Object: clone(given).(map[string]any)}, now.Manager, now.Force)
			var status *apierrors.StatusError
			if errors.As(err, &status) {
				now.Message = status.ErrStatus.Message
				causes := []any{}
				for _, cause := range status.ErrStatus.Details.Causes {
					causes = append(causes, map[string]any{"reason": string(cause.Type), "message": cause.Message, "field": cause.Field})
				}
				now.Causes = causes
				written = append(written, now)
				if live == nil {
					break
				}
				continue
			}
			must(err)
		}
		live = house.typed(objectOf(result))
		settle(live, began, at)
		accessor, err := meta.Accessor(live)
		must(err)
		accessor.SetUID("the-uid")
		object := kept(live)
		delete(object["metadata"].(map[string]any), "managedFields")
		now.Object = object
		now.ManagedFields = entriesOf(live)
		written = append(written, now)
	}
	return story{APIVersion: kind.apiVersion, Kind: kind.kind, Writes: written}
}

// house is one kind with the bookkeepers of its subresources.
type house struct {
	gvk    gvks.GroupVersionKind
	custom bool
	fields map[string]*managedfields.FieldManager
}

func houseOf(kind kindOf, gvk gvks.GroupVersionKind) house {
	made := house{gvk: gvk, custom: kind.apiVersion == ofCustom, fields: map[string]*managedfields.FieldManager{}}
	reset := map[string]*fieldpath.Set{"": fieldpath.NewSet(), "status": fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))}
	if kind.hasStatus {
		reset[""] = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	}
	for subresource, set := range reset {
		filter := map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(kind.apiVersion): fieldpath.NewExcludeSetFilter(set)}
		var err error
		if made.custom {
			converter, converterErr := managedfields.NewTypeConverter(customSchema(), false)
			must(converterErr)
			made.fields[subresource], err = managedfields.NewDefaultCRDFieldManager(converter, asItIs{}, asItIs{}, asItIs{}, gvk, gvk.GroupVersion(), subresource, filter)
		} else {
			made.fields[subresource], err = managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), scheme.Scheme, scheme.Scheme, scheme.Scheme, gvk, gvk.GroupVersion(), subresource, filter)
		}
		must(err)
	}
	return made
}

func (h house) empty() runtime.Object {
	if h.custom {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetGroupVersionKind(h.gvk)
		return object
	}
	object, err := scheme.Scheme.New(h.gvk)
	must(err)
	object.GetObjectKind().SetGroupVersionKind(h.gvk)
	return object
}

func (h house) typed(object map[string]any) runtime.Object {
	if h.custom {
		return &unstructured.Unstructured{Object: clone(object).(map[string]any)}
	}
	made := h.empty()
	must(runtime.DefaultUnstructuredConverter.FromUnstructured(object, made))
	made.GetObjectKind().SetGroupVersionKind(h.gvk)
	return made
}

// asItIs converts, defaults and makes objects of a kind that has one version and no Go type.
type asItIs struct{}

func (asItIs) Convert(in, out, context any) error { return errors.New("not asked for") }
func (asItIs) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
func (asItIs) ConvertFieldLabel(_ gvks.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
func (asItIs) Default(runtime.Object) {}
func (asItIs) New(gvk gvks.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(gvk)
	return object, nil
}

// customSchema is the kind of the Rust tests as the API server would publish it.
func customSchema() map[string]*spec.Schema {
	text := `{
	"thing": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Thing"}], "properties": {
		"apiVersion": {"type": "string"}, "kind": {"type": "string"},
		"metadata": {"$ref": "#/definitions/meta"},
		"spec": {"type": "object", "properties": {
			"replicas": {"type": "integer"}, "paused": {"type": "boolean"},
			"ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
				"items": {"type": "object", "properties": {"port": {"type": "integer"},
					"protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}}}},
			"args": {"type": "array", "items": {"type": "string"}},
			"selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
			"template": {"type": "object", "properties": {"image": {"type": "string"}, "tag": {"type": "string"}}},
			"anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}},
		"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}},
	"meta": {"type": "object", "properties": {
		"name": {"type": "string"}, "namespace": {"type": "string"}, "uid": {"type": "string"}, "resourceVersion": {"type": "string"},
		"labels": {"type": "object", "additionalProperties": {"type": "string", "default": ""}},
		"annotations": {"type": "object", "additionalProperties": {"type": "string", "default": ""}},
		"finalizers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
		"ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"], "items": {"$ref": "#/definitions/owner"}},
		"managedFields": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	}},
	"owner": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
		"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "name": {"type": "string"}, "uid": {"type": "string"},
		"controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"}}}
	}`
	schemas := map[string]*spec.Schema{}
	must(json.Unmarshal([]byte(text), &schemas))
	return schemas
}

func someObject(random *rand.Rand, kind kindOf) map[string]any {
	object := map[string]any{"apiVersion": kind.apiVersion, "kind": kind.kind, "metadata": map[string]any{"name": "one", "namespace": "ns"}}
	for _, one := range kind.parts {
		// A binding without its role is no object that a server would keep.
		if one.path == "roleRef" || random.Intn(3) == 0 {
			set(object, one.path, choice(random, one))
		}
	}
	return object
}

// change puts other values into some parts of an object, or takes them out.
func change(random *rand.Rand, kind kindOf, object map[string]any) {
	for _, one := range kind.parts {
		switch random.Intn(6) {
		case 0:
			set(object, one.path, choice(random, one))
		case 1:
			if one.path != "roleRef" {
				unset(object, one.path)
			}
		}
	}
}

// choice is one of the values a part may have. An annotation of what was last applied is made of some object.
func choice(random *rand.Rand, one part) any {
	text := pick(random, one.choices...)
	text = strings.ReplaceAll(text, `"@"`, `"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"labels\":{\"x\":\"1\"},\"name\":\"one\",\"namespace\":\"ns\"},\"data\":{\"a\":\"1\"}}"`)
	var value any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	must(decoder.Decode(&value))
	return whole(value)
}

func whole(value any) any {
	switch value := value.(type) {
	case json.Number:
		number, err := value.Int64()
		must(err)
		return number
	case map[string]any:
		for name, inner := range value {
			value[name] = whole(inner)
		}
	case []any:
		for at, inner := range value {
			value[at] = whole(inner)
		}
	}
	return value
}

func set(object map[string]any, path string, value any) {
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		inner, there := object[step].(map[string]any)
		if !there {
			inner = map[string]any{}
			object[step] = inner
		}
		object = inner
	}
	object[steps[len(steps)-1]] = value
}

func unset(object map[string]any, path string) {
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		inner, there := object[step].(map[string]any)
		if !there {
			return
		}
		object = inner
	}
	delete(object, steps[len(steps)-1])
}

func objectOf(object runtime.Object) map[string]any {
	if custom, ok := object.(*unstructured.Unstructured); ok {
		return clone(custom.Object).(map[string]any)
	}
	made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	must(err)
	return made
}

// kept is an object as a client reads it.
func kept(live runtime.Object) map[string]any {
	object := objectOf(live)
	metadata := object["metadata"].(map[string]any)
	delete(metadata, "creationTimestamp")
	delete(metadata, "managedFields")
	delete(metadata, "uid")
	// What a Go structure shows although nobody wrote it.
	if status, there := object["status"].(map[string]any); there {
		delete(status, "nodeInfo")
		delete(status, "daemonEndpoints")
	}
	return object
}

func entriesOf(object runtime.Object) []any {
	if object == nil {
		return nil
	}
	entries, _, err := unstructured.NestedSlice(objectOf(object), "metadata", "managedFields")
	must(err)
	return entries
}

// settle gives what was written just now the hour of its step.
func settle(object runtime.Object, began time.Time, at int) {
	accessor, err := meta.Accessor(object)
	must(err)
	entries := accessor.GetManagedFields()
	hour := metav1.NewTime(time.Date(2026, 1, 1, at, 0, 0, 0, time.UTC))
	for at := range entries {
		if entries[at].Time != nil && !entries[at].Time.Time.Before(began.Truncate(time.Second)) {
			entries[at].Time = &hour
		}
	}
	accessor.SetManagedFields(entries)
}
