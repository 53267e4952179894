package main

import "strings"

// spec is the schema of a kind whose spec has the given schema.
func spec(schema string) string {
	return `{"type":"object","properties":{"spec":` + schema + `}}`
}

// ruled is a schema with rules put into it.
func ruled(schema string, rules ...string) string {
	return strings.TrimSuffix(schema, "}") + `,"x-kubernetes-validations":[` + strings.Join(rules, ",") + `]}`
}

const person = `{"type":"object","properties":{"name":{"type":"string","maxLength":20},"age":{"type":"integer"},"tags":{"type":"array","maxItems":5,"items":{"type":"string","maxLength":10}},"any":{"type":"array","items":{"type":"string"}}}}`

var definitionCases = []string{
	spec(ruled(person, `{"rule":"self.age > 0"}`)),
	spec(ruled(person, `{"rule":"self.age > 0","message":"must be born","reason":"FieldValueForbidden","fieldPath":".age"}`)),
	spec(ruled(person, `{"rule":"self.nope > 0"}`)),
	spec(ruled(person, `{"rule":"self.age"}`)),
	spec(ruled(person, `{"rule":"self.age >"}`)),
	spec(ruled(person, `{"rule":"nosuch(self.age)"}`)),
	spec(ruled(person, `{"rule":"self.age == 'x'"}`, `{"rule":"self.name == 1"}`)),
	spec(ruled(person, `{"rule":""}`)),
	spec(ruled(person, `{"rule":"  "}`)),
	spec(ruled(person, `{"rule":"true","message":"  "}`)),
	spec(ruled(person, `{"rule":"true","message":"a\nb"}`)),
	spec(ruled(person, `{"rule":"true &&\ntrue"}`)),
	spec(ruled(person, `{"rule":"true &&\ntrue","message":"fine"}`)),
	spec(ruled(person, `{"rule":"true &&\nself.nope","message":"fine"}`)),
	spec(ruled(person, `{"rule":"true","messageExpression":"'a' + self.name"}`)),
	spec(ruled(person, `{"rule":"true","messageExpression":"1"}`)),
	spec(ruled(person, `{"rule":"true","messageExpression":"self.nope"}`)),
	spec(ruled(person, `{"rule":"true","messageExpression":"  "}`)),
	spec(ruled(person, `{"rule":"true","messageExpression":"self.any.join(',')"}`)),
	spec(ruled(person, `{"rule":"true","messageExpression":"self.any.map(x, self.any.join(',')).join(',')"}`)),
	spec(ruled(person, `{"rule":"true","reason":"Nonsense"}`)),
	spec(ruled(person, `{"rule":"true","reason":"FieldValueDuplicate"}`)),
	spec(ruled(person, `{"rule":"true","fieldPath":".nope"}`)),
	spec(ruled(person, `{"rule":"true","fieldPath":"age"}`)),
	spec(ruled(person, `{"rule":"true","fieldPath":".tags[0]"}`)),
	spec(ruled(person, `{"rule":"true","fieldPath":"['age']"}`)),
	spec(ruled(person, `{"rule":"true","fieldPath":"  "}`)),
	spec(ruled(person, `{"rule":"true","fieldPath":".a\nb"}`)),
	spec(ruled(person, `{"rule":"self == oldSelf"}`)),
	spec(ruled(person, `{"rule":"self == oldSelf.value()","optionalOldSelf":true}`)),
	spec(ruled(person, `{"rule":"!oldSelf.hasValue() || self == oldSelf.value()","optionalOldSelf":true}`)),
	spec(ruled(person, `{"rule":"true","optionalOldSelf":true}`)),
	spec(ruled(person, `{"rule":"true","optionalOldSelf":false}`)),
	spec(ruled(person, `{"rule":"self.any.all(x, self.any.all(y, x == y))"}`)),
	spec(ruled(person, `{"rule":"self.any.all(x, x.contains('a'))"}`)),
	spec(ruled(person, `{"rule":"self.tags.all(x, self.tags.all(y, x == y))"}`)),
	spec(ruled(person, `{"rule":"self.name.matches('[')"}`)),
	spec(ruled(person, `{"rule":"self.name.find('[') == ''"}`)),
	spec(ruled(person, `{"rule":"int('x') == 1"}`)),
	spec(ruled(person, `{"rule":"dyn(self.age)"}`)),
	ruled(spec(person), `{"rule":"self.metadata.name.startsWith('x')"}`, `{"rule":"self.spec.age > 0"}`, `{"rule":"self.metadata.labels == {}"}`),
	spec(`{"type":"array","items":` + ruled(person, `{"rule":"self.age > 0"}`) + `}`),
	spec(`{"type":"array","items":` + ruled(person, `{"rule":"self.age > oldSelf.age"}`) + `}`),
	spec(`{"type":"array","maxItems":10,"items":` + ruled(person, `{"rule":"self.age > 0"}`) + `}`),
	spec(`{"type":"array","items":` + ruled(person, `{"rule":"self.tags.all(t, t.matches('^a'))"}`) + `}`),
	spec(`{"type":"array","maxItems":100000,"items":` + ruled(person, `{"rule":"self.tags.all(t, t.matches('^a'))"}`) + `}`),
	spec(`{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"maxItems":10,"items":` +
		ruled(`{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"integer"}}}`, `{"rule":"self.v >= oldSelf.v"}`) + `}`),
	spec(`{"type":"array","x-kubernetes-list-type":"set","maxItems":10,"items":` + ruled(`{"type":"string"}`, `{"rule":"self == oldSelf"}`) + `}`),
	spec(`{"type":"object","additionalProperties":` + ruled(person, `{"rule":"self.age > 0"}`) + `}`),
	spec(`{"type":"object","maxProperties":3,"additionalProperties":` + ruled(person, `{"rule":"self.age > oldSelf.age"}`) + `}`),
	spec(`{"type":"object","additionalProperties":{"type":"object","additionalProperties":` + ruled(`{"type":"string"}`, `{"rule":"self.contains('a')"}`) + `}}`),
	spec(`{"type":"object","properties":{"a":` + ruled(`{"type":"string"}`, `{"rule":"self != ''"}`) + `,"b-c":` + ruled(`{"type":"integer"}`, `{"rule":"self > 0"}`) + `,"h@t":` + ruled(`{"type":"integer"}`, `{"rule":"self > 0"}`) + `}}`),
	spec(ruled(`{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}`, `{"rule":"self.kind == 'Pod'"}`, `{"rule":"self.spec.x == 1"}`)),
	spec(ruled(`{"x-kubernetes-int-or-string":true}`, `{"rule":"self == 1 || self == 'a'"}`)),
	spec(ruled(`{"x-kubernetes-preserve-unknown-fields":true}`, `{"rule":"self == 1"}`)),
	spec(ruled(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, `{"rule":"self == self"}`)),
	spec(ruled(`{"type":"string","format":"date-time"}`, `{"rule":"self < timestamp('2030-01-01T00:00:00Z')"}`)),
	spec(ruled(`{"type":"string","default":"a"}`, `{"rule":"self == 'b'"}`)),
	spec(`{"type":"object","allOf":[{"x-kubernetes-validations":[{"rule":"true"}]}]}`),
	spec(`{"type":"object","anyOf":[{"x-kubernetes-validations":[{"rule":"true"}]}]}`),
	spec(`{"type":"object","not":{"x-kubernetes-validations":[{"rule":"true"}]}}`),
	spec(`{"type":"object","properties":{"a":` + ruled(`{"type":"array","items":{"type":"string"}}`, `{"rule":"self.all(x, x.contains('a'))"}`) + `,"b":` +
		ruled(`{"type":"array","items":{"type":"string"}}`, `{"rule":"self.all(x, x.contains('a'))"}`, `{"rule":"self.all(x, x != 'b')"}`, `{"rule":"self.all(x, x.startsWith('ccc'))"}`) + `}}`),
	spec(many(24, `{"type":"array","items":{"type":"string"}}`)),
}

// many is an object of fields that all have the same schema and rules, each a little more expensive than the last.
func many(count int, schema string) string {
	var fields []string
	for n := range count {
		rule := `{"rule":"self.all(x, x.startsWith('` + strings.Repeat("0123456789", n) + `'))"}`
		fields = append(fields, `"f`+string(rune('a'+n))+`":`+ruled(schema, rule))
	}
	return `{"type":"object","properties":{` + strings.Join(fields, ",") + `}}`
}

type objectCase struct {
	schema, new, old string
	budget           int64
}

const (
	grown   = `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","x-kubernetes-validations":[{"rule":"self >= 18","message":" must be of age "}]},"home":{"type":"object","x-kubernetes-validations":[{"rule":"self.street != ''","messageExpression":"'no street in ' + self.city","fieldPath":".street"}],"properties":{"street":{"type":"string"},"city":{"type":"string"}}}}}`
	fixed   = `{"type":"object","properties":{"id":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf","message":"id is immutable"}]},"size":{"type":"integer","x-kubernetes-validations":[{"rule":"self >= oldSelf","messageExpression":"'must not shrink below %d'.format([oldSelf])","reason":"FieldValueForbidden"}]}}}`
	keyed   = `{"type":"array","maxItems":9,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"integer","x-kubernetes-validations":[{"rule":"self >= oldSelf","message":"v only grows"},{"rule":"self < 100"}]}}}}`
	plain   = `{"type":"array","maxItems":9,"items":{"type":"object","properties":{"v":{"type":"integer","x-kubernetes-validations":[{"rule":"self < 100"}]}}}}`
	perhaps = `{"type":"object","properties":{"mode":{"type":"string","x-kubernetes-validations":[{"rule":"oldSelf.hasValue() || self == 'new'","optionalOldSelf":true,"message":"begins as new"},{"rule":"!oldSelf.hasValue() || oldSelf.value() != 'old' || self == 'old'","optionalOldSelf":true,"message":"old stays old"}]}}}`
)

var objectCases = []objectCase{
	{schema: spec(grown), new: `{"spec":{"age":20,"home":{"street":"a","city":"b"}}}`},
	{schema: spec(grown), new: `{"spec":{"age":10,"home":{"street":"","city":"b"}}}`},
	{schema: spec(grown), new: `{"spec":{"age":10,"home":{"street":""}}}`},
	{schema: spec(grown), new: `{"spec":{"age":10,"home":{"city":"b"}}}`},
	{schema: spec(grown), new: `{"spec":{"age":10,"name":"x"}}`, old: `{"spec":{"age":10}}`},
	{schema: spec(grown), new: `{"spec":{"age":11}}`, old: `{"spec":{"age":10}}`},
	{schema: spec(grown), new: `{"spec":{"age":20,"home":{"street":"","city":"b"}}}`, old: `{"spec":{"age":19,"home":{"street":"","city":"b"}}}`},
	{schema: spec(grown), new: `{"spec":{"age":20,"home":{"street":"","city":"c"}}}`, old: `{"spec":{"age":19,"home":{"street":"","city":"b"}}}`},
	{schema: spec(fixed), new: `{"spec":{"id":"a","size":1}}`},
	{schema: spec(fixed), new: `{"spec":{"id":"a","size":1}}`, old: `{"spec":{"id":"a","size":1}}`},
	{schema: spec(fixed), new: `{"spec":{"id":"b","size":1}}`, old: `{"spec":{"id":"a","size":2}}`},
	{schema: spec(fixed), new: `{"spec":{"id":"b"}}`, old: `{"spec":{"size":2}}`},
	{schema: spec(keyed), new: `{"spec":[{"k":"a","v":1},{"k":"b","v":200}]}`},
	{schema: spec(keyed), new: `{"spec":[{"k":"a","v":1},{"k":"b","v":200}]}`, old: `{"spec":[{"k":"b","v":200},{"k":"a","v":2}]}`},
	{schema: spec(keyed), new: `{"spec":[{"k":"a","v":1},{"k":"c","v":200}]}`, old: `{"spec":[{"k":"b","v":200},{"k":"a","v":2}]}`},
	{schema: spec(plain), new: `{"spec":[{"v":1},{"v":200}]}`},
	{schema: spec(plain), new: `{"spec":[{"v":1},{"v":200}]}`, old: `{"spec":[{"v":1},{"v":200}]}`},
	{schema: spec(plain), new: `{"spec":[{"v":2},{"v":200}]}`, old: `{"spec":[{"v":1},{"v":200}]}`},
	{schema: spec(perhaps), new: `{"spec":{"mode":"new"}}`},
	{schema: spec(perhaps), new: `{"spec":{"mode":"old"}}`},
	{schema: spec(perhaps), new: `{"spec":{"mode":"new"}}`, old: `{"spec":{"mode":"old"}}`},
	{schema: spec(perhaps), new: `{"spec":{"mode":"old"}}`, old: `{"spec":{"mode":"old"}}`},
	{schema: spec(`{"type":"object","additionalProperties":` + ruled(`{"type":"string"}`, `{"rule":"self.startsWith('x')"}`) + `}`), new: `{"spec":{"a.b":"y","c":"x"}}`},
	{schema: spec(`{"type":"object","additionalProperties":` + ruled(`{"type":"string"}`, `{"rule":"self.startsWith('x')"}`) + `}`), new: `{"spec":{"a.b":"y","c":"x"}}`, old: `{"spec":{"a.b":"y"}}`},
	{schema: spec(`{"type":"array","items":` + ruled(`{"type":"string","nullable":true}`, `{"rule":"self.startsWith('x')"}`) + `}`), new: `{"spec":[null,"y"]}`},
	{schema: ruled(spec(`{"type":"object","properties":{"a":{"type":"string"}}}`), `{"rule":"self.metadata.name == self.spec.a","message":"name and a differ"}`), new: `{"apiVersion":"v1","kind":"K","metadata":{"name":"x"},"spec":{"a":"y"}}`},
	{schema: ruled(spec(`{"type":"object","properties":{"a":{"type":"string"}}}`), `{"rule":"self.metadata.name == self.spec.a"}`), new: `{"apiVersion":"v1","kind":"K","metadata":{"name":"x"},"spec":{}}`},
	{schema: spec(ruled(`{"type":"object","properties":{"x":{"x-kubernetes-int-or-string":true},"i":{"type":"integer"}}}`, `{"rule":"self.x > 3"}`, `{"rule":"1 / self.i == 1"}`)), new: `{"spec":{"x":"a","i":0}}`},
	{schema: spec(ruled(`{"type":"object","properties":{"x":{"type":"string"}}}`, `{"rule":"self.x == 'a'","reason":"FieldValueRequired","message":"need a"}`, `{"rule":"self.x == 'b'","reason":"FieldValueDuplicate"}`, `{"rule":"self.x == 'c'","reason":"FieldValueInvalid","fieldPath":".x"}`)), new: `{"spec":{"x":"z"}}`},
	{schema: spec(ruled(`{"type":"object","properties":{"x":{"type":"string"}}}`, `{"rule":"self.x == 'a'","messageExpression":"self.x + '\n'"}`, `{"rule":"self.x == 'a'","messageExpression":"'a\nb'"}`, `{"rule":"self.x == 'a'","messageExpression":"' '"}`, `{"rule":"self.x == 'a'","messageExpression":"'x'[0]","message":"plain"}`)), new: `{"spec":{"x":"z"}}`},
	{schema: spec(ruled(`{"type":"object","properties":{"x":{"type":"string"},"l":{"type":"array","items":{"type":"integer"}}}}`, `{"rule":"self.x == 'a'"}`, `{"rule":"self.l.all(i, i > 0)"}`, `{"rule":"self.x == 'b'"}`)), new: `{"spec":{"x":"z","l":[1,2,3,4,5,6,7,8,9]}}`, budget: 20},
	{schema: spec(ruled(`{"type":"object","properties":{"l":{"type":"array","items":{"type":"integer"}}}}`, `{"rule":"self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, self.l.all(e, self.l.all(f, self.l.all(g, a + b + c + d + e + f + g > 0)))))))"}`, `{"rule":"false"}`)), new: `{"spec":{"l":[1,2,3,4,5,6,7,8,9]}}`},
	{schema: spec(`{"type":"object","properties":{"e":` + ruled(`{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}`, `{"rule":"self.metadata.name == 'x'"}`) + `,"b-c":` + ruled(`{"type":"string"}`, `{"rule":"self == 'q'"}`) + `,"h@t":` + ruled(`{"type":"string"}`, `{"rule":"self == 'q'"}`) + `}}`), new: `{"spec":{"e":{"apiVersion":"v1","kind":"K","metadata":{"name":"y"}},"b-c":"r","h@t":"r"}}`},
}
