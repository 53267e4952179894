package main

import "strings"

type expressionCase struct {
	schema, self, oldSelf string
	root, optional        bool
	rules                 []string
}

func lines(text string) []string {
	return strings.Split(strings.TrimSpace(text), "\n")
}

// Every type a schema can give a value, bounded and unbounded.
const everything = `{"type":"object","properties":{
"b":{"type":"boolean"},"i":{"type":"integer"},"n":{"type":"number"},
"s":{"type":"string","maxLength":100},"u":{"type":"string"},"e":{"type":"string","enum":["one","three"]},
"by":{"type":"string","format":"byte"},"d":{"type":"string","format":"duration"},"t":{"type":"string","format":"date-time"},"day":{"type":"string","format":"date"},
"l":{"type":"array","maxItems":10,"items":{"type":"string","maxLength":20}},"li":{"type":"array","maxItems":5,"items":{"type":"integer"}},
"ln":{"type":"array","maxItems":5,"items":{"type":"number"}},"unb":{"type":"array","items":{"type":"string"}},
"lm":{"type":"array","maxItems":8,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"integer"}}}},
"lm2":{"type":"array","maxItems":8,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"integer"}}}},
"ls":{"type":"array","maxItems":8,"x-kubernetes-list-type":"set","items":{"type":"string"}},"ls2":{"type":"array","maxItems":8,"x-kubernetes-list-type":"set","items":{"type":"string"}},
"ll":{"type":"array","maxItems":3,"items":{"type":"array","maxItems":3,"items":{"type":"integer"}}},
"m":{"type":"object","maxProperties":10,"additionalProperties":{"type":"string","maxLength":20}},"um":{"type":"object","additionalProperties":{"type":"integer"}},
"mo":{"type":"object","maxProperties":4,"additionalProperties":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}}},
"o":{"type":"object","required":["a"],"properties":{"a":{"type":"string","maxLength":10},"b":{"type":"integer"},"c":{"type":"object","properties":{"d":{"type":"string"}}}}},
"o2":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}},
"x":{"x-kubernetes-int-or-string":true},"y":{"x-kubernetes-int-or-string":true,"maxLength":10},
"p":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"pp":{"x-kubernetes-preserve-unknown-fields":true},
"op":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"known":{"type":"string"}}},
"emb":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
"with-dash":{"type":"string"},"dotted.name":{"type":"integer"},"namespace":{"type":"string"},"a__b":{"type":"string"},"sl/ash":{"type":"string"},"in":{"type":"boolean"},
"1st":{"type":"string"},"h@t":{"type":"string"},
"nul":{"type":"string","nullable":true},"absent":{"type":"string"},"absentO":{"type":"object","properties":{"a":{"type":"string"}}},"absentL":{"type":"array","items":{"type":"string"}},
"emptyL":{"type":"array","items":{"type":"integer"}},"big":{"type":"integer"},"neg":{"type":"integer"}}}`

const everythingValue = `{"b":true,"i":7,"n":2.5,"s":"héllo wörld","u":"k=v,k2=v2","e":"three","by":"aGk=","d":"1h30m","t":"2024-02-29T12:34:56.789Z","day":"2024-03-01",
"l":["a","bb","ccc"],"li":[3,1,2],"ln":[1,2.5],"unb":["x","y"],"lm":[{"k":"a","v":1},{"k":"b","v":2}],"lm2":[{"k":"b","v":2},{"k":"a","v":1}],
"ls":["p","q"],"ls2":["q","p"],"ll":[[1,2],[3]],"m":{"key":"value","with-dash":"1"},"um":{"one":1,"two":2},"mo":{"first":{"a":"A","b":1},"second":{"b":2}},
"o":{"a":"alpha","b":3,"c":{"d":"deep"}},"o2":{"a":"alpha","b":3},"x":"50%","y":5,"p":{"any":{"thing":[1]}},"pp":3,"op":{"known":"k","unknown":1},
"emb":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"inner","labels":{"a":"b"}},"spec":{"z":1}},
"with-dash":"dash","dotted.name":4,"namespace":"ns","a__b":"under","sl/ash":"slash","in":true,"1st":"first","h@t":"hat","nul":null,"emptyL":[],"big":9223372036854775807,"neg":-9223372036854775808}`

var expressionCases = []expressionCase{
	{schema: everything, self: everythingValue, oldSelf: everythingValue, rules: lines(language + types_ + fields + macros + strings_ + lists + times + numbers_ + networks + others + wrong)},
	{schema: everything, self: `{"x":5,"y":"str","i":0,"l":[],"m":{},"s":"","t":"2024-01-01T00:00:00+02:00","d":"-90s"}`, oldSelf: everythingValue, rules: lines(second)},
	{schema: `{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}}},"metadata":{"type":"object"}}}`, root: true,
		self:  `{"apiVersion":"g/v1","kind":"K","metadata":{"name":"nm","generateName":"gen","labels":{"a":"b"}},"spec":{"a":"x"}}`,
		rules: lines(rooted)},
	{schema: `{"type":"string","maxLength":30}`, self: `"new"`, oldSelf: `"old"`, rules: lines("self == oldSelf\nself != oldSelf\nself.size() >= oldSelf.size()\nself.startsWith(oldSelf)\noldSelf.hasValue()")},
	{schema: `{"type":"string","maxLength":30}`, self: `"new"`, oldSelf: `"old"`, optional: true, rules: lines(optionalOld)},
	{schema: `{"type":"string","maxLength":30}`, self: `"new"`, optional: true, rules: lines(optionalOld)},
	{schema: `{"type":"array","items":{"type":"array","items":{"type":"string"}}}`, self: `[["a"],["b","c"]]`, rules: lines(unbounded)},
	{schema: `{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"string"}}}`, self: `{"a":{"b":"c"}}`,
		rules: lines("self.all(k, self[k].all(j, self[k][j] == 'c'))\nself.exists(k, k == 'a')\n'a' in self\nself['a']['b'] == 'c'\nself.a.b == 'c'\nhas(self.a)\nhas(self.z)\nsize(self) == 1\nself.map(k, self[k].size()).sum() == 1")},
	{schema: `{"type":"integer"}`, self: `3`, oldSelf: `2`, rules: lines("self >= oldSelf\nself > 0\nself == 3.0\nself < 2.5\nself == 3u\nself\nself.x\nself[0]\nself in [1, 2, 3]\nself in [4]\nself in [1.0, 3.0]")},
	{schema: `{"type":"array","items":{"type":"integer"},"x-kubernetes-list-type":"set"}`, self: `[1,2,3]`, oldSelf: `[3,2]`, rules: lines("self == oldSelf\noldSelf.all(x, x in self)\nself + oldSelf == [1, 2, 3]\nself + [9] == [9, 1, 2, 3]\n[1,2,3] == self\n[3,2,1] == self\nself == [3,2,1]\nsize(self + oldSelf) == 3")},
}

const language = `
true
false
1
null
!true
!!true
!!!false
--1 == 1
-(-1) == 1
-1 == -1
1 + 2 * 3 == 7
(1 + 2) * 3 == 9
10 / 3 == 3
-7 / 2 == -3
-7 % 3 == -1
7.0 / 2.0 == 3.5
1 / 0 == 1
1 % 0 == 1
1u / 0u == 1u
1.0 / 0.0 > 1000.0
9223372036854775807 + 1 == 0
-9223372036854775808 == self.neg
-9223372036854775808 - 1 == 0
9223372036854775807 * 2 == 0
-self.neg == 0
self.neg / -1 == 0
self.neg % -1 == 0
0u - 1u == 0u
18446744073709551615u + 1u == 0u
0x10 == 16
-0x10 == -16
0xFu == 15u
1e3 == 1000.0
.5 == 0.5
1.5E-2 == 0.015
1 == 1.0
1 < 1.5
1u < 2
1u == 1
2.0 > 1u
1 != 2
'a' < 'b'
"a" == 'a'
'''a'b''' == "a'b"
"""x
r'\d' == '\\d'
R"\d" == "\\d"
'\n' == "\n"
'\x41\u0042\U00000043\103' == 'ABCC'
'\?\"\'\` + "`" + `' == "?\"'` + "`" + `"
b'abc' == b"abc"
b'\xff' == b'\377'
size(b'é') == 2
size('é') == 1
true && false
true || false
true && true && true && true && true
false || false || false || true
1 / 0 == 1 || true
true || 1 / 0 == 1
1 / 0 == 1 && false
1 / 0 == 1 || false
1 / 0 == 1 && true
true ? 1 == 1 : 1 / 0 == 1
false ? 1 / 0 == 1 : true
self.b ? self.i == 7 : self.n == 1.0
(self.b ? self.o : self.o).a == 'alpha'
(self.b ? self.l : self.unb)[0] == 'a'
(self.b ? self.i : self.big) == 7
[1, 2] == [1, 2]
[1, 2] == [2, 1]
[1, 2][0] == 1
[1, 2][2] == 1
[1, 2][-1] == 1
[][0] == 1
{'a': 1}['a'] == 1
{'a': 1}.a == 1
{'a': 1}['b'] == 1
{'a': 1} == {'a': 1}
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
{1: 'a'}[1] == 'a'
{1: 'a', 2: 'b'}.size() == 2
{'a': 1, 'a': 2} == {'a': 2}
{true: 1}[true] == 1
{1u: 1}[1u] == 1
'a' in {'a': 1}
1 in [1, 2, 3]
4 in [1, 2, 3]
self.i in [1, 2, 7]
self.s in ['x', self.s]
self.e in ['one', 'two', 'three']
'a' in self.l
'z' in self.l
'key' in self.m
!('nokey' in self.m)
[1, 2] + [3] == [1, 2, 3]
'a' + 'b' == 'ab'
b'a' + b'b' == b'ab'
[] == []
{} == {}
[[1], [2]] == [[1], [2]]
[1, 2, 3].size() == 3
size([1, 2, 3]) == 3
size({'a': 1}) == 1
has({'a': 1}.a)
has({'a': 1}.b)
[1, 2,] == [1, 2]
{'a': 1,} == {'a': 1}
// comment only
1 == 1 // trailing
`

const types_ = `
type(1) == int
type(1u) == uint
type(1.0) == double
type('a') == string
type(b'a') == bytes
type(true) == bool
type(null) == null_type
type([]) == list
type({}) == map
type(type(1)) == type
type(duration('1s')) == google.protobuf.Duration
type(timestamp('2020-01-01T00:00:00Z')) == google.protobuf.Timestamp
type(self.x) == string
type(self.y) == int
type(self.o) == map
type(self.l) == list
type(self.i) == int
type(self.n) == double
type(self.by) == bytes
type(self.d) == google.protobuf.Duration
type(self.t) == google.protobuf.Timestamp
dyn(1) == 1
dyn(1) == 1.0
dyn('a') == 1
dyn([1]) == [1]
dyn(self.o).a == 'alpha'
dyn(self.i) + 1 == 8
dyn(self.s) + 1 == 8
dyn(1).foo == 1
dyn(1) < 'a'
dyn(1) && true
dyn('x').size() == 1
int('5') == 5
int(5.9) == 5
int(-5.9) == -5
int('x') == 5
int(1e20) == 1
int(5u) == 5
int(18446744073709551615u) == 1
int(timestamp('1970-01-01T00:01:00Z')) == 60
uint(5) == 5u
uint(-5) == 5u
uint('7') == 7u
uint(7.8) == 7u
double('1.5') == 1.5
double('x') == 1.5
double(1) == 1.0
double(1u) == 1.0
string(1) == '1'
string(1u) == '1'
string(1.5) == '1.5'
string(1.0) == '1'
string(1e30) == '1e+30'
string(0.000001) == '1e-06'
string(true) == 'true'
string(b'abc') == 'abc'
string(b'\xff') == 'abc'
string('a') == 'a'
string(duration('90m')) == '5400s'
string(duration('1.5s')) == '1.5s'
string(timestamp('2024-01-01T00:00:00Z')) == '2024-01-01T00:00:00Z'
string(timestamp('2024-01-01T00:00:00.5+01:00')) == '2023-12-31T23:00:00.5Z'
bytes('abc') == b'abc'
bytes(b'abc') == b'abc'
bool('true')
bool('false') == false
bool('maybe')
bool('1')
bool('True')
string(self.i) == '7'
int(self.x.replace('%', '')) == 50
int(self.y) == 5
self.x == '50%'
self.x == 50
self.y == 5
self.y > 4
self.x > 4
type(self.x) == string && self.x.matches(r'^\d+%$')
type(self.y) == int ? self.y < 10 : false
self.x.size() == 3
self.y + 1 == 6
string(self.y) == '5'
`

const fields = `
self.b
self.i == 7
self.n == 2.5
self.n > 2
self.i == self.n
self.s == 'héllo wörld'
self.s.size() == 11
size(self.s) == 11
self.by == b'hi'
self.d == duration('90m')
self.t == timestamp('2024-02-29T12:34:56.789Z')
self.day == timestamp('2024-03-01T00:00:00Z')
self.day > self.t
self.o.a == 'alpha'
self.o.c.d == 'deep'
self.o.nope == 1
self.nope
self.o == self.o
self.o == self.o2
self.o.c == self.o.c
has(self.o)
has(self.o.c.d)
has(self.absent)
!has(self.absent)
has(self.absentO.a)
has(self.absentO) && has(self.absentO.a)
self.absent == 'x'
self.absentO.a == 'x'
self.absentL.all(x, x == 'a')
has(self.nul)
self.nul == null
self.nul == 'x'
self.__namespace__ == 'ns'
self.namespace == 'ns'
self.with__dash__dash == 'dash'
self.dotted__dot__name == 4
self.a__underscores__b == 'under'
self.a__b == 'under'
self.sl__slash__ash == 'slash'
self.__in__
self.h == 'x'
self['s'] == 'x'
self.l[0] == 'a'
self.l[3] == 'a'
self.l[self.i] == 'a'
self.l[self.li[1]] == 'bb'
self.l[1 + 1] == 'ccc'
self.l['a'] == 'x'
self.m['key'] == 'value'
self.m.key == 'value'
self.m['with-dash'] == '1'
self.m['absent'] == 'x'
self.m.absent == 'x'
has(self.m.key)
has(self.m.absent)
self.mo.first.a == 'A'
self.mo.second.a == 'A'
has(self.mo.second.a)
self.mo['first'].b + self.mo['second'].b == 3
self.lm[0].k == 'a'
self.lm == self.lm2
self.lm2 == self.lm
self.ls == self.ls2
self.ls == ['q', 'p']
['q', 'p'] == self.ls
self.l == ['a', 'bb', 'ccc']
self.l == ['bb', 'a', 'ccc']
['a', 'bb', 'ccc'] == self.l
self.li == [3, 1, 2]
self.ln == [1.0, 2.5]
self.ls + ['p', 'z'] == ['p', 'q', 'z']
(self.ls + ['z']).size() == 3
self.l + self.unb == ['a', 'bb', 'ccc', 'x', 'y']
(self.lm + self.lm2).size() == 2
self.lm + self.lm2 == self.lm
self.ll[0][1] == 2
self.ll == [[1, 2], [3]]
self.m == {'key': 'value', 'with-dash': '1'}
self.m == {'key': 'value'}
self.um == {'one': 1, 'two': 2}
self.p == self.p
self.pp == 3
self.p.any == 1
self.op.known == 'k'
self.op.unknown == 1
self.op == self.op
self.emb.metadata.name == 'inner'
self.emb.kind == 'Pod'
self.emb.apiVersion == 'v1'
self.emb.metadata.labels == {}
self.emb.spec == {}
self.emb == self.emb
self.metadata.name == 'x'
self == oldSelf
self != oldSelf
self.i == oldSelf.i
self.l == oldSelf.l && self.m == oldSelf.m
oldSelf.all(x, true)
self.size() == 1
self.all(k, true)
self.lm.all(e, oldSelf.lm.exists(o, o.k == e.k))
size(self.m) == 2
self.m.size() == 2
self.e == 'three'
self.by.size() == 2
size(self.unb) == 2
`

const macros = `
self.l.all(x, x.size() > 0)
self.l.all(x, x.size() > 1)
self.l.exists(x, x == 'bb')
self.l.exists(x, x == 'zz')
self.l.exists_one(x, x.size() == 1)
self.l.existsOne(x, x.size() == 1)
self.l.exists_one(x, x.size() > 0)
self.l.map(x, x.size()) == [1, 2, 3]
self.l.map(x, x + '!') == ['a!', 'bb!', 'ccc!']
self.l.map(x, x.size() > 1, x + '!') == ['bb!', 'ccc!']
self.l.filter(x, x.size() > 1) == ['bb', 'ccc']
self.l.filter(x, x.size() > 1).size() == 2
self.m.all(k, k.size() > 0)
self.m.all(k, self.m[k].size() > 0)
self.m.exists(k, self.m[k] == '1')
self.m.map(k, self.m[k]).exists(v, v.size() > 0)
self.um.map(k, self.um[k]).sum() == 3
self.mo.all(k, has(self.mo[k].b) && self.mo[k].b > 0)
self.mo.exists(k, has(self.mo[k].a) && self.mo[k].a == 'A')
self.lm.all(e, e.v > 0)
self.lm.map(e, e.k) == ['a', 'b']
self.lm.exists_one(e, e.k == 'a')
self.lm.filter(e, e.v > 1)[0].k == 'b'
self.lm.all(e, self.lm.exists_one(f, f.k == e.k))
self.ll.all(r, r.all(x, x > 0))
self.ll.map(r, r.sum()) == [3, 3]
self.ll.map(r, r.map(x, x * 2)) == [[2, 4], [6]]
self.li.all(x, self.li.all(y, x == y || x != y))
self.unb.all(x, self.unb.all(y, x == y))
[1, 2, 3].all(x, x > 0)
[1, 2, 3].exists(x, x > 2)
[1, 2, 3].map(x, x * 2) == [2, 4, 6]
[1, 2, 3].filter(x, x % 2 == 1) == [1, 3]
{'a': 1, 'b': 2}.all(k, k != 'c')
[].all(x, x > 0)
[1, 0].all(x, 1 / x > 0)
[0, 1].exists(x, 1 / x > 0)
[0, 2].exists(x, 1 / x > 0)
[0, 0].exists(x, 1 / x > 0)
[1, 0].exists_one(x, 1 / x > 0)
[1, 0].map(x, 1 / x) == [1]
[1, 0].filter(x, 1 / x > 0) == [1]
self.i.all(x, true)
self.l.all(x.y, true)
self.l.all(x)
self.l.map(self.l, true)
self.l.all(__result__, true)
self.l.filter(1, true)
has(self)
has(1)
has(self.l[0])
self.l.all(i, v, i >= 0 && v.size() > 0)
self.m.all(k, v, k.size() > 0 && v.size() > 0)
self.l.exists(i, v, i == 1 && v == 'bb')
self.l.existsOne(i, v, i == 1)
self.l.transformList(i, v, v + string(i)) == ['a0', 'bb1', 'ccc2']
self.l.transformList(i, v, i > 0, v) == ['bb', 'ccc']
self.l.transformMap(i, v, v.size()) == {0: 1, 1: 2, 2: 3}
self.m.transformMap(k, v, v.size()) == {'key': 5, 'with-dash': 1}
self.m.transformMap(k, v, k == 'key', v.size()) == {'key': 5}
self.m.transformMapEntry(k, v, {v: k}) == {'value': 'key', '1': 'with-dash'}
self.l.transformMapEntry(i, v, {v: i})['bb'] == 1
self.l.exists(i, i, true)
self.l.all(x, self.m.exists(k, self.m[k] == x || x.size() > 0))
self.l.exists(x, x == self.absent)
self.l.map(x, {'n': x}).exists(y, y.n == 'a')
self.l.map(x, [x, x]).all(y, y[0] == y[1])
`

const strings_ = `
self.s.contains('llo')
self.s.startsWith('hé')
self.s.endsWith('ld')
self.s.matches('^h.*d$')
self.s.matches('[')
self.s.matches(self.u)
matches(self.s, 'wör')
'abc'.matches('^a')
'tacocat'.charAt(3) == 'o'
'tacocat'.charAt(7) == ''
'tacocat'.charAt(8) == ''
'tacocat'.charAt(-1) == ''
'hello mellow'.indexOf('') == 0
'hello mellow'.indexOf('ello') == 1
'hello mellow'.indexOf('jello') == -1
'hello mellow'.indexOf('', 2) == 2
'hello mellow'.indexOf('ello', 2) == 7
'hello mellow'.indexOf('ello', 20) == -1
'hello mellow'.indexOf('ello', -1) == 1
'hello mellow'.lastIndexOf('') == 12
'hello mellow'.lastIndexOf('ello') == 7
'hello mellow'.lastIndexOf('jello') == -1
'hello mellow'.lastIndexOf('ello', 6) == 1
'hello mellow'.lastIndexOf('ello', 20) == 1
'ta©o©αT'.indexOf('α') == 5
'ta©o©αT'.lastIndexOf('©') == 4
['a', 'b'].join() == 'ab'
['a', 'b'].join(', ') == 'a, b'
[].join() == ''
self.l.join('-') == 'a-bb-ccc'
self.unb.join(',') == 'x,y'
'TacoCat'.lowerAscii() == 'tacocat'
'TacoCÆt'.lowerAscii() == 'tacocÆt'
'TacoCat'.upperAscii() == 'TACOCAT'
'TacoCÆt xii'.upperAscii() == 'TACOCÆT XII'
'hello hello'.replace('he', 'we') == 'wello wello'
'hello hello'.replace('he', 'we', 1) == 'wello hello'
'hello hello'.replace('he', 'we', 0) == 'hello hello'
'hello hello'.replace('he', 'we', -1) == 'wello wello'
'hello'.replace('', '_') == '_h_e_l_l_o_'
'hello hello'.replace('h', '') == 'ello ello'
self.s.replace('l', 'L') == 'héLLo wörLd'
self.u.replace(self.s, self.u) == self.u
'hello hello hello'.split(' ') == ['hello', 'hello', 'hello']
'hello hello hello'.split(' ', 0) == []
'hello hello hello'.split(' ', 1) == ['hello hello hello']
'hello hello hello'.split(' ', 2) == ['hello', 'hello hello']
'hello'.split('') == ['h', 'e', 'l', 'l', 'o']
'héllo'.split('') == ['h', 'é', 'l', 'l', 'o']
''.split(',') == ['']
self.u.split(',').all(p, p.contains('='))
self.u.split(',').map(p, p.split('=')[0]) == ['k', 'k2']
'tacocat'.substring(4) == 'cat'
'tacocat'.substring(0, 4) == 'taco'
'tacocat'.substring(-1) == ''
'tacocat'.substring(2, 1) == ''
'tacocat'.substring(8) == ''
'tacocat'.substring(7) == ''
'ta©o©αT'.substring(2, 6) == '©o©α'
'  \ttrim\n  '.trim() == 'trim'
' x '.trim() == 'x'
strings.quote('a "b" c\n') == '"a \\"b\\" c\\n"'
'%s is %d'.format(['x', 3]) == 'x is 3'
'%s %s %s %s'.format([1, 1.5, true, null]) == '1 1.5 true null'
'%s'.format([[1, 2, 'a', b'x', 1.5, null]]) == '[1, 2, "a", b"x", 1.500000, null]'
'%s'.format([{'b': 2, 'a': 1}]) == '{"a":1, "b":2}'
'%s'.format([b'hi']) == 'hi'
'%s'.format([duration('90m')]) == '5400s'
'%s'.format([timestamp('2024-01-01T00:00:00Z')]) == '2024-01-01T00:00:00Z'
'%s'.format([1u]) == '1'
'%s'.format([type(1)]) == 'int'
'%d'.format([5u]) == '5'
'%f'.format([1.5]) == '1.500000'
'%.2f'.format([3.14159]) == '3.14'
'%.3f'.format([2]) == '2.000'
'%e'.format([1234.5678]) == '1.234568×10⁰³'
'%f'.format([-1234567.5]) == '-1,234,567.500000'
'%s'.format([123456789.0]) == '1.23456789e+08'
'%.2e'.format([-0.000012]) == '-1.200000×10⁻⁰⁵'
'%x'.format([255]) == 'ff'
'%X'.format([255]) == 'FF'
'%x'.format(['hi']) == '6869'
'%X'.format([b'\xab']) == 'AB'
'%o'.format([8]) == '10'
'%b'.format([5]) == '101'
'%b'.format([true]) == '1'
'%%'.format([]) == '%'
'%s'.format([]) == ''
'%q'.format(['a']) == ''
'%d'.format(['a']) == ''
'%s %s'.format(['a']) == ''
'%s'.format([self.l]) == '["a", "bb", "ccc"]'
'%s'.format([self.o2]) == 'x'
'%d'.format([self.i]) == '7'
'%s'.format([self.x]) == '50%'
'abc 123 def 456'.find('[0-9]+') == '123'
'abc'.find('[0-9]+') == ''
'abc 123 def 456'.findAll('[0-9]+') == ['123', '456']
'abc 123 def 456'.findAll('[0-9]+', 1) == ['123']
'abc 123 def 456'.findAll('[0-9]+', 0) == []
'abc 123 def 456'.findAll('[0-9]*') == ['1']
'abc'.findAll('x') == []
'abc'.find('(') == ''
self.s.find('w.r') == 'wör'
self.u.findAll(self.s) == []
self.s < 'z'
self.s >= self.u
self.s + self.u == 'x'
self.s.size() + self.u.size() > 3
self.s == self.u
self.s.contains(self.u)
self.u.matches('^[a-z]+$')
'a'.nosuch()
nosuch('a')
self.s.reverse() == 'x'
`

const lists = `
[1, 2, 3].isSorted()
[3, 2].isSorted()
[].isSorted()
['a', 'b'].isSorted()
self.li.isSorted()
self.l.isSorted()
[1, 2, 3].sum() == 6
[1.5, 2.5].sum() == 4.0
[].sum() == 0
[duration('1m'), duration('1s')].sum() == duration('1m1s')
['a'].sum() == 'a'
self.li.sum() == 6
[1, 2, 3].max() == 3
[1, 2, 3].min() == 1
self.li.max() == 3
self.l.max() == 'ccc'
self.emptyL.max() == 1
self.emptyL.min() == 1
self.emptyL.sum() == 0
['x'].max() == 'x'
[1, 2, 3, 2].indexOf(2) == 1
[1, 2, 3, 2].lastIndexOf(2) == 3
[1].indexOf(9) == -1
self.l.indexOf('bb') == 1
self.l.lastIndexOf('zz') == -1
self.ls.indexOf('q') == 1
[1, 2].first() == optional.of(1)
self.l.first().orValue('none') == 'a'
self.l.last().value() == 'ccc'
self.emptyL.first().hasValue()
sets.contains([1, 2, 3], [1, 2])
sets.contains([1], [1, 2])
sets.contains([], [])
sets.equivalent([1, 2], [2, 1, 1])
sets.equivalent([1], [1, 2])
sets.intersects([1, 2], [2, 3])
sets.intersects([1], [2])
sets.contains(self.l, ['a'])
sets.contains(self.unb, self.l)
sets.equivalent(self.ls, self.ls2)
sets.intersects(self.l, self.unb)
optional.of(1).hasValue()
optional.none().hasValue()
optional.of(1).value() == 1
optional.none().value() == 1
optional.of(1).orValue(2) == 1
optional.none().orValue(2) == 2
optional.of(1).or(optional.of(2)).value() == 1
optional.none().or(optional.of(2)).value() == 2
optional.ofNonZeroValue(0).hasValue()
optional.ofNonZeroValue('').hasValue()
optional.ofNonZeroValue(1).hasValue()
optional.ofNonZeroValue([]).hasValue()
self.?absent.hasValue()
self.?s.hasValue()
self.?s.orValue('none') == 'héllo wörld'
self.?absent.orValue('none') == 'none'
self.?absentO.a.orValue('none') == 'none'
self.?absentO.?a.orValue('none') == 'none'
self.?o.a.orValue('none') == 'alpha'
self.?o.c.d.value() == 'deep'
self.l[?0].orValue('x') == 'a'
self.l[?9].orValue('x') == 'x'
self.m[?'key'].orValue('x') == 'value'
self.m[?'nokey'].orValue('x') == 'x'
self.?absent.optMap(x, x.size()).orValue(0) == 0
self.?s.optMap(x, x.size()).orValue(0) == 11
self.?s.optFlatMap(x, optional.of(x.size())).value() == 11
self.?absent.optFlatMap(x, optional.of(x.size())).hasValue()
[?self.?absent, 'x'] == ['x']
[?self.?s].size() == 1
{?'a': self.?absent}.size() == 0
{?'a': self.?s}.a == self.s
optional.of(1) == optional.of(1)
optional.of(1) == optional.none()
optional.unwrap([optional.of(1), optional.none()]) == [1]
[optional.of(1), optional.none()].unwrapOpt() == [1]
has(self.?o.a)
has(self.?absentO.a)
self.?nope.hasValue()
optional.of(self.o).a.hasValue()
optional.of(self.l)[0].value() == 'a'
`

const times = `
duration('1h') == duration('60m')
duration('1h30m').getHours() == 1
duration('1h30m').getMinutes() == 90
duration('90s').getSeconds() == 90
duration('1.5s').getMilliseconds() == 1500
duration('1500ms') > duration('1s')
duration('-1.5h') < duration('0s')
duration('1us') == duration('1000ns')
duration('1d') == duration('24h')
duration('x') == duration('1s')
duration('') == duration('1s')
duration(5) == duration('5s')
duration(self.s) == duration('1s')
duration('9223372036s') + duration('9223372036s') == duration('1s')
duration('1h') + duration('1m') == duration('61m')
duration('1h') - duration('1m') == duration('59m')
-duration('1h') == duration('-1h')
self.d > duration('1h')
self.d.getMinutes() == 90
string(self.d) == '5400s'
self.d + self.d == duration('3h')
timestamp('2024-02-29T12:34:56Z').getFullYear() == 2024
timestamp('2024-02-29T12:34:56Z').getMonth() == 1
timestamp('2024-02-29T12:34:56Z').getDate() == 29
timestamp('2024-02-29T12:34:56Z').getDayOfMonth() == 28
timestamp('2024-02-29T12:34:56Z').getDayOfWeek() == 4
timestamp('2024-02-29T12:34:56Z').getDayOfYear() == 59
timestamp('2024-02-29T12:34:56Z').getHours() == 12
timestamp('2024-02-29T12:34:56Z').getMinutes() == 34
timestamp('2024-02-29T12:34:56Z').getSeconds() == 56
timestamp('2024-02-29T12:34:56.789Z').getMilliseconds() == 789
timestamp('2024-02-29T12:34:56Z').getHours('+02:00') == 14
timestamp('2024-02-29T12:34:56Z').getHours('-05:30') == 7
timestamp('2024-02-29T12:34:56Z').getMinutes('05:30') == 4
timestamp('2024-02-29T12:34:56Z').getHours('UTC') == 12
timestamp('2024-02-29T23:34:56Z').getDate('+02:00') == 1
timestamp('2024-01-01T00:00:00Z') + duration('1h') == timestamp('2024-01-01T01:00:00Z')
duration('1h') + timestamp('2024-01-01T00:00:00Z') == timestamp('2024-01-01T01:00:00Z')
timestamp('2024-01-01T00:00:00Z') - duration('1h') == timestamp('2023-12-31T23:00:00Z')
timestamp('2024-01-01T00:00:00Z') - timestamp('2023-12-31T23:00:00Z') == duration('1h')
timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-02T00:00:00Z')
timestamp('2024-01-01') == timestamp('2024-01-01T00:00:00Z')
timestamp('x') == timestamp('2024-01-01T00:00:00Z')
timestamp(0) == timestamp('1970-01-01T00:00:00Z')
timestamp('9999-12-31T23:59:59Z') + duration('1h') == timestamp('2024-01-01T00:00:00Z')
timestamp(self.s) == timestamp(0)
self.t.getFullYear() == 2024
self.t.getMilliseconds() == 789
self.t + self.d > self.t
self.t - self.day < duration('0s')
self.day.getDayOfWeek() == 5
string(self.t) == '2024-02-29T12:34:56.789Z'
int(self.t) == 1709210096
[self.t, self.day].max() == self.day
self.t.getHours(self.s) == 1
`

const numbers_ = `
quantity('1Gi').isGreaterThan(quantity('1G'))
quantity('50k').isLessThan(quantity('51k'))
quantity('1000m') == quantity('1')
quantity('1Ki') == quantity('1024')
quantity('1').compareTo(quantity('2')) == -1
quantity('2').compareTo(quantity('2')) == 0
quantity('3').compareTo(quantity('2')) == 1
quantity('50k').add(quantity('20')) == quantity('50020')
quantity('50k').sub(quantity('20k')) == quantity('30k')
quantity('50k').add(20) == quantity('50020')
quantity('50k').sub(20000) == quantity('30k')
quantity('50k').asInteger() == 50000
quantity('1.5').asInteger() == 1
quantity('1.5').isInteger()
quantity('2').isInteger()
quantity('1500m').asApproximateFloat() == 1.5
quantity('50.703k').asApproximateFloat() == 50703.0
sign(quantity('-1')) == -1
sign(quantity('0')) == 0
isQuantity('1Mi')
isQuantity('1Mib')
isQuantity('1.3Gi')
isQuantity('x')
isQuantity('')
isQuantity('1e3')
isQuantity('10E')
isQuantity('-5m')
quantity('x') == quantity('1')
quantity(self.s) == quantity('1')
quantity('9223372036854775808').isInteger()
quantity('1e-3').compareTo(quantity('1m')) == 0
quantity('1n').isLessThan(quantity('1u'))
isQuantity(self.u)
semver('1.2.3').major() == 1
semver('1.2.3').minor() == 2
semver('1.2.3').patch() == 3
semver('1.2.3').isLessThan(semver('1.10.0'))
semver('1.2.3-alpha.1').isLessThan(semver('1.2.3'))
semver('1.2.3-alpha.2').isGreaterThan(semver('1.2.3-alpha.1'))
semver('1.2.3-alpha.beta').compareTo(semver('1.2.3-alpha.1')) == 1
semver('1.2.3+build') == semver('1.2.3')
semver('1.2.3') == semver('1.2.3')
isSemver('1.2.3')
isSemver('1.2')
isSemver('v1.2.3')
isSemver('01.2.3')
isSemver('v1.0', true)
isSemver('1', true)
isSemver('v01.01', true)
isSemver('1.0-alpha', true)
semver('v1.2', true).compareTo(semver('1.2.0')) == 0
semver('x') == semver('1.0.0')
isSemver(self.u)
`

const networks = `
ip('127.0.0.1').isLoopback()
ip('::1').isLoopback()
ip('10.0.0.1').family() == 4
ip('fe80::1').family() == 6
ip('0.0.0.0').isUnspecified()
ip('::').isUnspecified()
ip('224.0.0.1').isLinkLocalMulticast()
ip('224.0.1.1').isLinkLocalMulticast()
ip('ff02::1').isLinkLocalMulticast()
ip('169.254.1.1').isLinkLocalUnicast()
ip('fe80::1').isLinkLocalUnicast()
ip('192.168.0.1').isGlobalUnicast()
ip('255.255.255.255').isGlobalUnicast()
ip('2001:db8::abcd').isGlobalUnicast()
ip('127.0.0.1') == ip('127.0.0.1')
ip('2001:DB8::1') == ip('2001:db8::1')
ip('127.0.0.1') == ip('10.0.0.1')
string(ip('2001:DB8::1')) == '2001:db8::1'
ip.isCanonical('127.0.0.1')
ip.isCanonical('2001:DB8::1')
ip.isCanonical('2001:db8::1')
ip.isCanonical('x')
isIP('127.0.0.1')
isIP('127.0.0.256')
isIP('127.0.0.01')
isIP('::ffff:1.2.3.4')
isIP('fe80::1%en0')
isIP('')
isIP(self.u)
ip('x').family() == 4
ip('::ffff:1.2.3.4').family() == 4
cidr('192.168.0.0/24').containsIP('192.168.0.1')
cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))
cidr('192.168.0.0/24').containsIP('x')
cidr('192.168.0.0/24').containsCIDR('192.168.0.0/25')
cidr('192.168.0.0/24').containsCIDR(cidr('192.168.0.0/23'))
cidr('192.168.0.0/24').containsCIDR('10.0.0.0/25')
cidr('192.168.0.1/24').ip() == ip('192.168.0.1')
cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24')
cidr('192.168.0.1/24').prefixLength() == 24
cidr('::1/128').ip().family() == 6
cidr('2001:db8::/32').containsIP('2001:db8::1')
cidr('192.168.0.0/24').containsIP('::1')
string(cidr('192.168.0.1/24')) == '192.168.0.1/24'
isCIDR('192.168.0.0/24')
isCIDR('192.168.0.0/33')
isCIDR('192.168.0.0')
isCIDR('::/0')
isCIDR('1.2.3.4/024')
isCIDR(self.u)
cidr('x') == cidr('y')
cidr(self.u).containsIP(self.u)
url('https://example.com:8080/path?query=val#frag').getScheme() == 'https'
url('https://example.com:8080/path').getHost() == 'example.com:8080'
url('https://example.com:8080/path').getHostname() == 'example.com'
url('https://[::1]:8080/path').getHostname() == '::1'
url('https://[::1]/path').getHost() == '[::1]'
url('https://example.com:8080/path').getPort() == '8080'
url('https://example.com/path').getPort() == ''
url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'
url('https://example.com').getEscapedPath() == ''
url('https://example.com/a%2Fb').getEscapedPath() == '/a%2Fb'
url('https://example.com/path?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}
url('https://example.com/path?key=with%20space').getQuery()['key'] == ['with space']
url('/absolute/path').getScheme() == ''
url('/absolute/path').getEscapedPath() == '/absolute/path'
url('../relative') == url('x')
url('https://user:pw@example.com/').getHost() == 'example.com'
url('https://example.com/') == url('https://example.com/')
url('https://example.com/') == url('https://example.org/')
isURL('https://example.com')
isURL('/path')
isURL('example.com')
isURL('../x')
isURL('https://a:port/')
isURL('mailto:x@y.z')
isURL('')
isURL('http://a b.com/')
isURL('https://exa%mple')
url(self.u).getHost() == 'x'
isURL(self.u)
`

const others = `
format.dns1123Label().validate('my-name').hasValue()
format.dns1123Label().validate('My_Name').hasValue()
!format.dns1123Label().validate('my-name').hasValue()
format.dns1123Label().validate('My').value() == ["a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"]
format.dns1123Subdomain().validate('a.b').hasValue()
format.dns1123Subdomain().validate('a..b').hasValue()
format.dns1035Label().validate('1a').hasValue()
format.dns1123LabelPrefix().validate('a-').hasValue()
format.dns1123SubdomainPrefix().validate('a.b-').hasValue()
format.dns1035LabelPrefix().validate('a-').hasValue()
format.qualifiedName().validate('example.com/name').hasValue()
format.qualifiedName().validate('a/b/c').hasValue()
format.labelValue().validate('ok').hasValue()
format.labelValue().validate('not ok').hasValue()
format.uri().validate('http://x').hasValue()
format.uri().validate('x y').hasValue()
format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()
format.uuid().validate('x').value() == ['does not match the UUID format']
format.byte().validate('aGk=').hasValue()
format.byte().validate('!').value() == ['invalid base64']
format.date().validate('2024-02-30').value() == ['invalid date']
format.datetime().validate('2024-02-29T00:00:00Z').hasValue()
format.datetime().validate('x').value() == ['invalid datetime']
format.named('dns1123Label').hasValue()
format.named('nope').hasValue()
format.named('dns1123Label').value() == format.dns1123Label()
format.dns1123Label() == format.dns1035Label()
format.dns1123Label().validate(self.s).hasValue()
self.l.all(x, !format.dns1123Label().validate(x).hasValue())
`

const wrong = `
self.b == 1
self.i + 'a' == 'b'
self.s + 1 == 2
self.s && true
!self.i
-self.s == 'x'
self.i ? true : false
true ? 1 : 'a'
[1, 'a'] == []
{'a': 1, 'b': 'c'} == {}
{'a': 1, 2: 3} == {}
[1, 1.0] == []
[dyn(1), 'a'].size() == 2
[1, dyn('a')].size() == 2
undeclared
undeclared.x == 1
self.l.nosuch(x, true)
self.l.size(1)
size()
size(1)
self.s.startsWith(1)
self.s.startsWith()
'a' in 'abc'
1 in 'abc'
1 in self.l
self.l[0] == 1
self.m[1] == 'a'
self.o['a'] == 'x'
self.s.x == 1
self.l.x == 1
self.i == 'a' || self.s == 1
self.i > 'a'
self.d > 5
self.t > self.d
self.t == 'x'
self.by == 'x'
null == self.s
self.o == null
self.t == null
self.x == null
1 == null
self.l == null
self.o == {'a': 'alpha', 'b': 3}
self.emb.metadata.name == 1
int == string
type(1) == type('a')
duration
google.protobuf.Duration == type(self.d)
Foo{a: 1} == 1
self.
self..a
1 +
(1
[1
{1
{1: 2
'abc
self.s ==
== 1
&& true
self.a b
self.b = true
a ? b
foo(
self.l.all(
1 2
@
self.s == "a
#
'\q' == 'a'
'\xZZ' == 'a'
'\u12' == 'a'
99999999999999999999 == 1
99999999999999999999u == 1u
0xFFFFFFFFFFFFFFFFF == 1
1.5.5 == 1
as == 1
for == 1
self.for == 1
package.a == 1
if(true)
true()
null.x
self.l.map(x, y) == []
self.i.b.c == 1
.self.b
.undeclared
self.l.all(self, self == 'a')
self.l.all(i, i == 'a' || self.i == 7)
self . b
self.  i   ==   7
`

const second = `
self == oldSelf
self.x == 5
self.x > 4
type(self.x) == int
self.y.size() == 3
self.x.size() == 3
self.y + 'a' == 'stra'
self.l == []
self.l.all(x, false)
self.l.exists(x, true)
self.l.map(x, x) == []
self.m == {}
self.m.all(k, false)
self.s == ''
self.s.matches('^$')
self.s.split('') == []
self.s.find('x') == ''
self.s.replace('', 'a') == 'a'
self.i == 0
1 / self.i == 1
1 % self.i == 1
self.t == timestamp('2023-12-31T22:00:00Z')
self.t.getHours() == 22
self.t.getHours('+02:00') == 0
string(self.t) == '2023-12-31T22:00:00Z'
self.d.getSeconds() == -90
string(self.d) == '-90s'
self.n == 1.0
has(self.n) && self.n == 1.0
!has(self.n) || self.n == 1.0
has(self.o.a)
oldSelf.o.a == 'alpha' && !has(self.o)
oldSelf.l.all(x, x in self.l)
oldSelf.m.all(k, k in self.m)
self.s.size() < oldSelf.s.size()
self.?o.?c.?d.orValue('z') == 'z'
oldSelf.?o.?c.?d.orValue('z') == 'z'
`

const rooted = `
self.metadata.name == 'nm'
self.metadata.generateName == 'gen'
self.metadata.labels == {}
self.metadata.namespace == 'x'
self.kind == 'K'
self.apiVersion == 'g/v1'
self.spec.a == 'x'
self.spec.a.startsWith(self.metadata.name)
self == self
has(self.metadata.name)
self.metadata.name.size() < 253
self.metadata == self.metadata
`

const optionalOld = `
oldSelf.hasValue()
!oldSelf.hasValue() || self == oldSelf.value()
oldSelf.orValue('none') == self
oldSelf == self
oldSelf.optMap(o, o.size() <= self.size()).orValue(true)
oldSelf.optMap(o, o == self).orValue(false)
oldSelf.size() > 1
self != oldSelf.value()
`

const unbounded = `
self.all(x, x.all(y, y == 'a'))
self.all(x, x.all(y, self.all(z, z.size() > 0)))
self.map(x, x.size()).sum() == 3
self.map(x, x.join(',')).join(';') == 'a;b,c'
self[0][0] == 'a'
self.exists(x, x.exists(y, y.matches('^a$')))
self.filter(x, x.size() > 1)[0][1] == 'c'
self.map(x, x.filter(y, y == 'b')).size() == 2
self + self == self
(self + [['z']]).size() == 3
self.map(x, x[0]) == ['a', 'b']
self.all(x, x[0].contains('a') || x[0].startsWith('b'))
self.map(x, x.map(y, y + 'z'))[0] == ['az']
sets.contains(self[0], self[1])
`
