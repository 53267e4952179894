package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"reflect"
	"sort"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Types whose JSON is not that of their fields. A type that has a mind of its own about
// JSON and is not here stops the generator.
var leaves = map[reflect.Type]string{
	reflect.TypeFor[apiextensionsv1.JSON](): "json",
	reflect.TypeFor[intstr.IntOrString]():   "intOrString",
	reflect.TypeFor[metav1.FieldsV1]():      "json",
	reflect.TypeFor[metav1.MicroTime]():     "microTime",
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[runtime.RawExtension](): "json",
}

// Types whose JSON is that of one of their fields: the first of these that is set, or
// the last.
var choices = map[reflect.Type][]string{
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():       {"JSONSchemas", "Schema"},
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():        {"Schema", "Allows"},
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray](): {"Property", "Schema"},
}

var marshaler = reflect.TypeFor[json.Marshaler]()

type tables struct {
	messages map[string][]string
}

func writeTables(out io.Writer) {
	scheme := newScheme()
	tables := tables{messages: map[string][]string{}}
	fmt.Fprintln(out, "# Written by scripts/generate-protobuf-tables from the Go modules k8s.io/*; see tables.rs.")
	for _, group := range kinds {
		for _, name := range group.names {
			object, err := scheme.New(group.version.WithKind(name))
			if err != nil {
				log.Fatal(err)
			}
			fmt.Fprintln(out, "kind", group.version, name, tables.message(reflect.TypeOf(object).Elem()))
		}
	}
	for _, name := range everywhere {
		object, err := scheme.New(schema.GroupVersionKind{Version: "v1", Kind: name})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintln(out, "kind *", name, tables.message(reflect.TypeOf(object).Elem()))
	}
	var names []string
	for name := range tables.messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, line := range tables.messages[name] {
			fmt.Fprintln(out, line)
		}
	}
}

// Adds a message and all it is made of, and says its name.
func (t *tables) message(of reflect.Type) string {
	path := strings.Split(of.PkgPath(), "/")
	name := strings.Join(append(path[len(path)-2:], of.Name()), ".")
	if _, known := t.messages[name]; known {
		return name
	}
	t.messages[name] = nil
	var lines []string
	if order, is := choices[of]; is {
		lines = append(lines, "choice "+name)
		for i, member := range order {
			field, _ := of.FieldByName(member)
			omit := " omitempty"
			if i == len(order)-1 && field.Type.Kind() == reflect.Bool {
				omit = ""
			}
			number, rule := wireTag(of, field)
			lines = append(lines, fmt.Sprintf("%d %s %s%s", number, field.Name, t.typeOf(field.Type, rule), omit))
		}
	} else {
		if of.Implements(marshaler) || reflect.PointerTo(of).Implements(marshaler) {
			log.Fatalf("%s writes its own JSON, in a way this program does not know", of)
		}
		lines = append(lines, "message "+name)
		for i := range of.NumField() {
			if line := t.field(of, of.Field(i)); line != "" {
				lines = append(lines, line)
			}
		}
	}
	t.messages[name] = lines
	return name
}

func (t *tables) field(of reflect.Type, field reflect.StructField) string {
	if field.Type == reflect.TypeFor[metav1.TypeMeta]() {
		// Never on the wire: the envelope says it.
		return ""
	}
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	omit := ""
	inline := field.Anonymous && name == ""
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			omit += " omitempty"
		case "omitzero":
			omit += " omitzero"
			if field.Type != reflect.TypeFor[metav1.Time]() {
				log.Fatalf("%s.%s: omitzero is known of times only", of, field.Name)
			}
		case "inline", "":
		default:
			log.Fatalf("%s.%s: the JSON option %q is not known", of, field.Name, option)
		}
	}
	switch {
	case inline && field.Type.Kind() != reflect.Struct:
		log.Fatalf("%s.%s: only structs are known to be inlined", of, field.Name)
	case inline:
		name = "."
	case name == "" || name == "-":
		log.Fatalf("%s.%s: on the wire and not in JSON", of, field.Name)
	}
	number, rule := wireTag(of, field)
	return fmt.Sprintf("%d %s %s%s", number, name, t.typeOf(field.Type, rule), omit)
}

// The number of a field and its rule: "opt" or "rep".
func wireTag(of reflect.Type, field reflect.StructField) (int, string) {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 3 {
		log.Fatalf("%s.%s: not on the wire", of, field.Name)
	}
	number, err := strconv.Atoi(parts[1])
	if err != nil {
		log.Fatalf("%s.%s: %v", of, field.Name, err)
	}
	return number, parts[2]
}

func (t *tables) typeOf(of reflect.Type, rule string) string {
	// A list without a name of its own is one on the wire too, also where it is marked
	// "opt" by mistake; one that has a name is a message that holds the list, unless it
	// is marked "rep".
	list := of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8 && (of.Name() == "" || rule == "rep")
	switch {
	case of.Kind() == reflect.Pointer:
		return "*" + t.single(of.Elem())
	case of.Kind() == reflect.Map:
		if of.Key().Kind() != reflect.String {
			log.Fatalf("%s: only strings are known as keys", of)
		}
		return "map:" + t.single(of.Elem())
	case list:
		return "[]" + t.single(of.Elem())
	default:
		return t.single(of)
	}
}

func (t *tables) single(of reflect.Type) string {
	if leaf, is := leaves[of]; is {
		return leaf
	}
	switch of.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64:
		return "int64"
	case reflect.Float64:
		return "double"
	case reflect.Struct:
		return t.message(of)
	case reflect.Slice:
		switch of.Elem().Kind() {
		case reflect.Uint8:
			return "bytes"
		case reflect.String:
			return "strings"
		}
	}
	log.Fatalf("%s: not a type this program knows", of)
	return ""
}
