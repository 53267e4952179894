// Writes what Sheaf's validation rules are built from and judged by, from the original's own libraries:
//
//	cel-vectors functions    the functions a rule may call, with their overloads: one per line
//	cel-vectors expressions  rules over one schema: what the compiler says, the estimated cost, the result and its cost
//	cel-vectors definitions  schemas with rules, and what is said against them when a definition is created
//	cel-vectors objects      objects written under schemas with rules, and what is said against them
//
// All but the first write one JSON document per line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"

	"github.com/google/cel-go/common/types"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiserver/pkg/cel/environment"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	what := ""
	if len(os.Args) == 2 {
		what = os.Args[1]
	}
	switch what {
	case "functions":
		writeFunctions(out)
	case "expressions":
		writeExpressions(out)
	case "definitions":
		writeDefinitions(out)
	case "objects":
		writeObjects(out)
	default:
		fmt.Fprintln(os.Stderr, "usage: cel-vectors functions|expressions|definitions|objects")
		os.Exit(2)
	}
}

func base() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion(), true)
}

// writeFunctions lists `name overload member|global (parameters) result`.
func writeFunctions(out *bufio.Writer) {
	functions := base().NewExpressionsEnv().Functions()
	var names []string
	for name := range functions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, overload := range functions[name].OverloadDecls() {
			style := "global"
			if overload.IsMemberFunction() {
				style = "member"
			}
			var parameters []string
			authorizer := false
			for _, parameter := range overload.ArgTypes() {
				parameters = append(parameters, typeName(parameter))
				authorizer = authorizer || strings.Contains(typeName(parameter), "kubernetes.authorization")
			}
			// Nothing in a rule of a custom resource is an authorizer.
			if authorizer {
				continue
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", name, overload.ID(), style, strings.Join(parameters, "; "), typeName(overload.ResultType()))
		}
	}
}

func typeName(t *types.Type) string {
	var inner []string
	for _, parameter := range t.Parameters() {
		inner = append(inner, typeName(parameter))
	}
	name := t.TypeName()
	switch t.Kind() {
	case types.TypeParamKind:
		name = "$" + name
	case types.DurationKind:
		name = "duration"
	case types.TimestampKind:
		name = "timestamp"
	}
	if len(inner) == 0 {
		return name
	}
	return name + "<" + strings.Join(inner, ", ") + ">"
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func write(out *bufio.Writer, document any) {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	must(encoder.Encode(document))
}

// decode reads JSON the way the API server does: whole numbers as int64.
func decode(text string) any {
	if text == "" {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return numbers(value)
}

func numbers(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		float, err := value.Float64()
		must(err)
		return float
	case []any:
		for i := range value {
			value[i] = numbers(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = numbers(value[key])
		}
	}
	return value
}

func internal(schema string) *apiextensions.JSONSchemaProps {
	var external apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(schema), &external); err != nil {
		panic(fmt.Sprintf("%s: %v", schema, err))
	}
	var result apiextensions.JSONSchemaProps
	must(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &result, nil))
	return &result
}

func structural(schema string) *structuralschema.Structural {
	result, err := structuralschema.NewStructural(internal(schema))
	must(err)
	return result
}

var selfType = regexp.MustCompile(`selfType\d+`)

// settled takes the clock's part out of a message.
func settled(message string) string {
	return selfType.ReplaceAllString(message, "selfType")
}
