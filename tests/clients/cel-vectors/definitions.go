package main

import (
	"bufio"
	"context"
	"sort"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/warning"
)

type definition struct {
	Schema any      `json:"schema"`
	Errors []string `json:"errors"`
}

// writeDefinitions tells what is said against definitions of a kind with each schema.
func writeDefinitions(out *bufio.Writer) {
	for _, schema := range definitionCases {
		crd := &apiextensions.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
			Spec: apiextensions.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensions.NamespaceScoped,
				Names:                 apiextensions.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
				Versions:              []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
				Validation:            &apiextensions.CustomResourceValidation{OpenAPIV3Schema: internal(schema)},
				PreserveUnknownFields: new(bool),
			},
			Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
		}
		told := definition{Schema: decode(schema), Errors: []string{}}
		for _, err := range validation.ValidateCustomResourceDefinition(context.Background(), crd) {
			told.Errors = append(told.Errors, settled(err.Error()))
		}
		sort.Strings(told.Errors)
		write(out, told)
	}
}

type object struct {
	Schema   any      `json:"schema"`
	New      any      `json:"new"`
	Old      any      `json:"old,omitempty"`
	Budget   int64    `json:"budget"`
	Errors   []string `json:"errors"`
	Reasons  []string `json:"reasons"`
	Warnings []string `json:"warnings"`
	Left     int64    `json:"left"`
}

type warnings struct{ told []string }

func (w *warnings) AddWarning(_, text string) { w.told = append(w.told, text) }

// writeObjects tells what is said against objects, without what the schema says beside its rules.
func writeObjects(out *bufio.Writer) {
	for _, one := range objectCases {
		schema := structural(one.schema)
		validator := schemacel.NewValidator(schema, true, celconfig.PerCallLimit)
		told := object{Schema: decode(one.schema), New: decode(one.new), Old: decode(one.old), Budget: one.budget, Errors: []string{}, Reasons: []string{}}
		if told.Budget == 0 {
			told.Budget = celconfig.RuntimeCELCostBudget
		}
		heard := &warnings{told: []string{}}
		ctx := warning.WithWarningRecorder(context.Background(), heard)
		var options []schemacel.Option
		if one.old != "" {
			options = append(options, schemacel.WithRatcheting(common.NewCorrelatedObject(decode(one.new), decode(one.old), &model.Structural{Structural: schema})))
		}
		var errs field.ErrorList
		errs, told.Left = validator.Validate(ctx, nil, schema, decode(one.new), decode(one.old), told.Budget, options...)
		for _, err := range errs {
			told.Errors = append(told.Errors, settled(err.Error()))
			told.Reasons = append(told.Reasons, string(err.Type))
		}
		sort.Strings(told.Errors)
		sort.Strings(told.Reasons)
		sort.Strings(heard.told)
		told.Warnings = heard.told
		write(out, told)
	}
}
