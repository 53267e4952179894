package main

import (
	"bufio"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"

	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// expression is one rule and what the original makes of it.
type expression struct {
	Rule     string  `json:"rule"`
	Issues   string  `json:"issues,omitempty"`
	Type     string  `json:"type,omitempty"`
	Estimate *uint64 `json:"estimate,omitempty"`
	Result   string  `json:"result,omitempty"`
	Error    string  `json:"error,omitempty"`
	Cost     *uint64 `json:"cost,omitempty"`
}

type group struct {
	Schema      any          `json:"schema"`
	Root        bool         `json:"root,omitempty"`
	Self        any          `json:"self"`
	OldSelf     any          `json:"oldSelf,omitempty"`
	Optional    bool         `json:"optional,omitempty"`
	Expressions []expression `json:"expressions"`
}

// sizes is the original's own estimator of sizes, which it does not export.
type sizes struct{ root *apiservercel.DeclType }

func (s sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	if len(element.Path()) == 0 {
		return nil
	}
	now := s.root
	for _, name := range element.Path()[1:] {
		switch name {
		case "@items", "@values":
			now = now.ElemType
		case "@keys":
			now = now.KeyType
		default:
			field, found := now.Fields[name]
			if !found {
				return nil
			}
			now = field.Type
		}
		if now == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(now.MaxElements)}
}

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func writeExpressions(out *bufio.Writer) {
	for _, cases := range expressionCases {
		schema := structural(cases.schema)
		declared := model.SchemaDeclType(schema, cases.root)
		named := declared.MaybeAssignTypeName("selfType1")
		old := named.CelType()
		if cases.optional {
			old = types.NewOptionalType(old)
		}
		set, err := base().Extend(environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 0),
			EnvOptions:        []cel.EnvOption{cel.Variable("self", named.CelType()), cel.Variable("oldSelf", old)},
			DeclTypes:         []*apiservercel.DeclType{named},
		})
		must(err)
		env := set.NewExpressionsEnv()
		if cases.root {
			schema = model.WithTypeAndObjectMeta(schema)
		}
		told := group{Schema: decode(cases.schema), Root: cases.root, Self: decode(cases.self), OldSelf: decode(cases.oldSelf), Optional: cases.optional}
		activation := map[string]any{"self": schemacel.UnstructuredToVal(decode(cases.self), schema)}
		if cases.oldSelf != "" {
			value := schemacel.UnstructuredToVal(decode(cases.oldSelf), schema)
			activation["oldSelf"] = value
			if cases.optional {
				activation["oldSelf"] = types.OptionalOf(value)
			}
		} else if cases.optional {
			activation["oldSelf"] = types.OptionalNone
		}
		estimator := &library.CostEstimator{SizeEstimator: sizes{named}}
		for _, rule := range cases.rules {
			told.Expressions = append(told.Expressions, judge(env, estimator, rule, activation))
		}
		write(out, told)
	}
}

func judge(env *cel.Env, estimator *library.CostEstimator, rule string, activation map[string]any) expression {
	result := expression{Rule: rule}
	ast, issues := env.Compile(rule)
	if issues != nil {
		result.Issues = settled(issues.String())
		return result
	}
	result.Type = settled(checker.FormatCELType(ast.OutputType()))
	program, err := env.Program(ast, cel.CostLimit(celconfig.PerCallLimit), cel.CostTracking(estimator), cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		result.Issues = "program instantiation failed: " + err.Error()
		return result
	}
	estimate, err := env.EstimateCost(ast, estimator)
	must(err)
	result.Estimate = &estimate.Max
	value, details, err := program.Eval(activation)
	result.Cost = details.ActualCost()
	if err != nil {
		result.Error = err.Error()
		return result
	}
	if boolean, is := value.(types.Bool); is {
		result.Result = "false"
		if boolean {
			result.Result = "true"
		}
	} else {
		result.Result = "?"
	}
	return result
}
