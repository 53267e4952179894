//! Expressions nobody would write in good faith: refused or run within bounds, never a crash, never a long wait.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::sync::Arc;

use proptest::prelude::*;
use regex::Regex;
use serde_json::json;
use sheaf_cel::{
    Fault, Host, Meter, OldSelf, Program, Value, compile,
    data::{Declaration, Keyed, Shape},
};

static HOST: Host = Host { formats: &[], pattern, foreign_pattern: pattern };

fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|why| why.to_string())
}

/// An object with a text `s`, a number `i` and a list of numbers `l`.
fn declared() -> Arc<Declaration> {
    let list = Shape::List { items: Arc::new(Declaration::new(Shape::Int, 0, 1)), keyed: Keyed::Position };
    let fields = [
        ("s", Declaration::new(Shape::String, 100, 2)),
        ("i", Declaration::new(Shape::Int, 0, 1)),
        ("l", Declaration::new(list, 100, 2)),
    ];
    let fields = fields.into_iter().map(|(name, declared)| (name.to_owned(), Arc::new(declared), false));
    Arc::new(Declaration::object("selfType", fields))
}

fn compiled(rule: &str) -> Result<Program, String> {
    compile(rule, &declared(), OldSelf::Required, &HOST)
}

#[test]
fn what_nests_too_deep_is_refused_and_what_nests_less_runs_on_a_small_stack() {
    let nested =
        |open: &str, close: &str, depth: usize| format!("{}true{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in
        [("(", ")"), ("!(", ")"), ("[", "][0]"), ("[true].all(x, ", ")"), ("true ? true : ", "")]
    {
        let why = compiled(&nested(open, close, 5_000)).unwrap_err();
        assert!(why.contains("expression recursion limit exceeded"), "{why:.200}");
        let program = compiled(&nested(open, close, 20)).unwrap();
        assert!(matches!(program.run(&json!({}), None, 1_000_000).result, Ok(Value::Bool(true))));
    }
    for chain in [
        "1 + ".repeat(5_000) + "1 == 1",
        format!("self{} == 1", ".a".repeat(5_000)),
        "-".repeat(90_001) + "1 == 1",
    ] {
        // Refused or not, it is done at once.
        drop(compiled(&chain));
    }
    // As deep as it may be.
    let deepest = format!("{} == 49", ["1"; 49].join(" + "));
    assert!(matches!(
        compiled(&deepest).unwrap().run(&json!({}), None, 1_000_000).result,
        Ok(Value::Bool(true))
    ));
}

#[test]
fn a_long_expression_takes_no_longer_than_its_length() {
    let long = vec!["self.i == 1"; 5_000].join(" || ");
    let program = compiled(&long).unwrap();
    assert!(matches!(program.run(&json!({"i": 1}), None, 1_000_000).result, Ok(Value::Bool(true))));
    assert!(compiled(&"x".repeat(100_001)).unwrap_err().contains("expression code point size exceeds limit"));
    // Texts that are never closed, looked for over and over.
    assert!(compiled(&r"'''\".repeat(20_000)).is_err());
}

#[test]
fn a_rule_that_costs_more_than_it_may_is_stopped() {
    let loops = "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d >= 0))))";
    let numbers: Vec<i64> = (0..100).collect();
    let program = compiled(loops).unwrap();
    let (data, limit) = (json!({"l": numbers}), 100_000);
    let outcome = program.run(&data, None, limit);
    assert_eq!(outcome.result.unwrap_err(), Fault::OverBudget);
    assert!(outcome.cost < limit + 1_000);
    // What would absorb a fault does not absorb this.
    let program = compiled(&format!("({loops}) || true")).unwrap();
    assert_eq!(program.run(&data, None, limit).result.unwrap_err(), Fault::OverBudget);
}

#[test]
fn patterns_out_of_data_are_not_compiled_without_end() {
    let program = compiled("self.l.all(x, self.s.matches(string(x)))").unwrap();
    let numbers: Vec<i64> = vec![1; 100_000];
    let outcome_of = |numbers: &[i64]| {
        let data = json!({"l": numbers, "s": "111"});
        let outcome = program.run(&data, None, 1_000_000);
        outcome.result.map(|value| matches!(value, Value::Bool(true)))
    };
    assert_eq!(outcome_of(&numbers[..100]), Ok(true));
    assert_eq!(outcome_of(&numbers), Err(Fault::OverBudget));
}

#[test]
fn a_long_pattern_is_taken_from_a_rule_and_not_from_data() {
    let long = "a".repeat(5_000);
    let why = said("'a'.matches(self.s)", &json!({"s": long}));
    assert!(why.starts_with("error parsing regexp: expression too large"), "{why}");
    assert_eq!(said(&format!("self.s.matches('{long}')"), &json!({"s": long})), "Bool(true)");
    assert_eq!(said("'a'.matches(self.s)", &json!({"s": "^a$"})), "Bool(true)");
}

#[test]
fn what_a_loop_gathers_is_not_copied_each_time_round() {
    let numbers: Vec<i64> = (0..30_000).collect();
    let data = json!({"l": numbers});
    for rule in [
        "self.l.map(x, x + 1).size() == 30000",
        "self.l.filter(x, x >= 0).size() == 30000",
        "self.l.transformMap(i, x, x).size() == 30000",
    ] {
        let program = compiled(rule).unwrap();
        assert!(matches!(program.run(&data, None, u64::MAX).result, Ok(Value::Bool(true))), "{rule}");
    }
}

/// What a rule says of some data, as text.
fn said(rule: &str, data: &serde_json::Value) -> String {
    let program = compiled(rule).unwrap();
    match program.run(data, None, 1_000_000).result {
        Ok(value) => format!("{value:?}"),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn an_address_may_break_off_inside_a_character() {
    for text in ["http://%aé/", "http://%é", "http://%", "http://a%€b/", "/%aé", "/%é"] {
        assert_eq!(said("isURL(self.s)", &json!({"s": text})), "Bool(false)", "{text}");
        let why = said("url(self.s).getHost() == ''", &json!({"s": text}));
        assert!(why.contains("invalid URL escape"), "{text}: {why}");
    }
}

#[test]
fn amounts_with_the_largest_exponents_are_amounts() {
    let sizes = [("1e2147483647", "Int(1)"), ("1e-2147483648", "Int(-1)"), ("1.5e2147483640", "Int(1)")];
    for (text, order) in sizes {
        assert_eq!(said("quantity(self.s).compareTo(quantity('1'))", &json!({"s": text})), order, "{text}");
    }
}

#[test]
fn a_time_zone_of_any_size_is_refused_or_used() {
    let rule = "timestamp('2024-01-01T00:00:00Z').getHours(self.s)";
    for zone in ["9223372036854775807:00", "-9223372036854775808:00", "00:9223372036854775807", "+24:00"] {
        assert_eq!(said(rule, &json!({"s": zone})), format!("unknown time zone {zone}"));
    }
    assert_eq!(said(rule, &json!({"s": "-05:30"})), "Int(18)");
}

#[test]
fn a_short_expression_does_not_become_a_tree_without_end() {
    let copies = format!("optional.of(1){}.hasValue()", ".optFlatMap(y, y)".repeat(32));
    let why = compiled(&copies).unwrap_err();
    assert!(why.contains("expression size limit exceeded"), "{why:.200}");
    compiled("optional.of(optional.of(1)).optFlatMap(y, y).optFlatMap(y, optional.of(y)).hasValue()")
        .unwrap();
}

#[test]
fn a_short_expression_has_no_types_without_end() {
    for (start, step) in
        [("[1]", ".map(a, {a: a})"), ("[[]]", ".map(a, {1: {a: a}})"), ("[1]", ".map(a, [{a: a}])")]
    {
        let rule = |times: usize| format!("{start}{} == []", step.repeat(times));
        let why = compiled(&rule(20)).unwrap_err();
        assert!(why.contains("type size limit exceeded"), "{step}: {why:.200}");
        compiled(&rule(3)).unwrap();
    }
}

#[test]
fn work_that_costs_nothing_in_the_original_ends_all_the_same() {
    let text = "x".repeat(1_000_000);
    let numbers: Vec<i64> = (0..5_000).collect();
    let data = json!({"s": text, "l": numbers});
    for rule in [
        // Lists that double, and lists of lists that do.
        format!("[[1]]{}.size() == 1", ".map(x, x + x)".repeat(40)),
        format!("[[1]]{0} == [[1]]{0}", ".map(x, [x, x])".repeat(35)),
        format!("'%s'.format([[1]{}]) == ''", ".map(x, [x, x])".repeat(35)),
        // A long text that is read, shown or kept over and over.
        "self.l.all(x, self.s.charAt(x) == 'x')".to_owned(),
        "self.l.all(x, size(self.s) > 0)".to_owned(),
        "self.l.map(x, self.s).join('') == ''".to_owned(),
        "self.l.map(x, '%s'.format([self.s])) == []".to_owned(),
        "self.l.map(x, {self.s: x}) == []".to_owned(),
        "self.s.replace('x', self.s) == ''".to_owned(),
        "self.s.replace('', self.s, 100) == ''".to_owned(),
    ] {
        let program = compiled(&rule).unwrap();
        let outcome = program.run(&data, None, 1_000_000);
        assert!(matches!(outcome.result, Err(Fault::OverBudget)), "{rule:.80}: {}", outcome.cost);
    }
    let fine =
        "self.s.replace('x', 'yy').size() == 2000000 && self.l == self.l && self.l.map(x, x) == self.l";
    assert_eq!(said(fine, &data), "Bool(true)");
}

#[test]
fn runs_about_one_object_share_what_they_may_do() {
    let data = json!({"s": "x".repeat(1_000_000), "l": [1]});
    let program = compiled("size(self.s) > 0").unwrap();
    let mut meter = Meter::default();
    let mut runs = 0;
    while program.run_within(&data, None, 1_000_000, &mut meter).result.is_ok() {
        runs += 1;
        assert!(runs < 2_000, "nothing is counted");
    }
    assert!(runs > 500, "ended after {runs}");
    let program = compiled("self.s.matches(string(self.l[0]))").unwrap();
    let (mut meter, mut cost) = (Meter::default(), 0);
    for _ in 0..101 {
        let outcome = program.run_within(&data, None, 1_000_000, &mut meter);
        assert!(outcome.result.is_ok());
        cost = outcome.cost;
    }
    let first = program.run(&data, None, 1_000_000);
    assert_eq!(cost, first.cost + 1_000);
}

#[test]
fn a_fault_tells_no_more_of_the_data_than_anyone_reads() {
    let data = json!({"s": "é".repeat(1_000_000)});
    let why = said("url(self.s).getHost() == ''", &data);
    assert!(why.starts_with("URL parse error") && why.len() < 1_100, "{}", why.len());
}

proptest! {
    #[test]
    fn no_text_makes_the_compiler_crash(text in r#"[a-z0-9 ().,+*/<>=!&|?:\[\]{}'"\\`-]{0,60}"#) {
        drop(compiled(&text));
    }

    #[test]
    fn no_rule_of_known_words_makes_anything_crash(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "self", ".s", ".i", ".l", "[0]", "(", ")", "==", "+", "-", "1", "'a'", "1.5", "&&", "||", "!", "?", ":",
                ".all(x, ", ".map(x, ", "x", ".size()", ".split('a')", "has(", "int(", "string(", "duration('1s')",
                ".matches('a')", ".join(',')", "[", "]", ",", "{", "}", ".?s", "[?0]", ".orValue(1)", "in", "null", "true",
            ]),
            0..14,
        )
    ) {
        if let Ok(program) = compiled(&words.join(" ")) {
            let data = json!({"s": "aéa", "i": i64::MIN, "l": [1, 2]});
            let outcome = program.run(&data, None, 10_000);
            prop_assert!(outcome.cost < 20_000);
        }
    }
}
