//! Label selectors: what parses, what matches, and what is refused in which words.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn selector(text: &str) -> LabelSelector {
    LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    LabelSelector::parse(text).expect_err(text).to_string()
}

const WEB: &[(&str, &str)] = &[("app", "web"), ("empty", ""), ("in", "notin"), ("size", "7")];

#[test]
fn every_operator_means_what_it_says() {
    for (text, wanted) in [
        ("", true),
        ("  ", true),
        ("app", true),
        ("!app", false),
        ("gone", false),
        ("!gone", true),
        ("! gone", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web", true),
        ("app!=web", false),
        ("gone!=web", true),
        ("app in (db, web)", true),
        ("app in (db)", false),
        ("gone in (web)", false),
        ("app notin (db)", true),
        ("app notin (web)", false),
        ("gone notin (web)", true),
        ("size>6", true),
        ("size>7", false),
        ("size<8", true),
        ("app>1", false),
        ("gone<1", false),
        ("empty=", true),
        ("empty in ()", true),
        ("empty in (,x)", true),
        ("empty in (x,)", true),
        ("empty notin (x,,y)", false),
        ("in=notin", true),
        ("in in (notin)", true),
        ("app=web,size=7,!gone", true),
        ("app=web,size=8", false),
    ] {
        assert_eq!(selector(text).matches(WEB), wanted, "{text}");
    }
}

#[test]
fn what_does_not_parse_is_refused_in_the_words_of_the_original() {
    for (text, words) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("x,", "found '', expected: identifier after ','"),
        ("x y", "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt"),
        ("!x=y", "found '=', expected: ',' or 'end of string'"),
        ("x in a", "unable to parse requirement: found 'a' expected: '('"),
        ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("x in (a,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("x in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("x=(", "unable to parse requirement: found '(', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("x=a=b", "found '=', expected: ',' or 'end of string'"),
    ] {
        assert_eq!(refusal(text), words, "{text}");
    }
    assert!(
        refusal("-x=y").starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"-x\": name part must consist of"
        )
    );
    assert!(refusal("x=-y").starts_with(
        "unable to parse requirement: values[0][x]: Invalid value: \"-y\": a valid label must be"
    ));
    assert_eq!(
        refusal("x>y"),
        "unable to parse requirement: values[0]: Invalid value: \"y\": for 'Gt', 'Lt' operators, the value \
         must be an integer"
    );
}

#[test]
fn the_objects_spelling_means_the_same() {
    let spelled = LabelSelector::from_object(&json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "size", "operator": "In", "values": ["7", "5"]},
            {"key": "gone", "operator": "DoesNotExist"},
            {"key": "empty", "operator": "Exists"},
            {"key": "in", "operator": "NotIn", "values": ["x"]},
        ],
    }))
    .unwrap();
    assert!(spelled.matches(WEB));
    assert_eq!(spelled.to_string(), "app=web,empty,!gone,in notin (x),size in (5,7)");
}

#[test]
fn an_absent_selector_chooses_nothing_and_an_empty_one_everything() {
    assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches(WEB));
    assert!(LabelSelector::from_object(&json!({})).unwrap().is_everything());
    assert!(!LabelSelector::nothing().is_everything());
}

#[test]
fn an_unknown_operator_is_refused() {
    let error = LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}));
    assert_eq!(error.unwrap_err().to_string(), "\"Near\" is not a valid label selector operator");
    let error = LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "In"}]}));
    assert!(
        error.unwrap_err().to_string().contains("for 'in', 'notin' operators, values set can't be empty")
    );
}

fn a_word() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{1,2}", Just("in".to_owned()), Just("notin".to_owned()), "[1-3]"]
}

fn a_requirement() -> impl Strategy<Value = Requirement> {
    use LabelOperator::*;
    let operators =
        vec![Equals, DoubleEquals, NotEquals, In, NotIn, Exists, DoesNotExist, GreaterThan, LessThan];
    (
        a_word(),
        prop::sample::select(operators),
        prop::collection::vec(prop_oneof![Just(String::new()), a_word()], 1..4),
        -1i64..4,
    )
        .prop_filter_map("a negative bound is no label value", |(key, operator, mut values, bound)| {
            match operator {
                Exists | DoesNotExist => values.clear(),
                Equals | DoubleEquals | NotEquals => values.truncate(1),
                GreaterThan | LessThan => values = vec![bound.to_string()],
                In | NotIn => {}
            }
            Requirement::new(key, operator, values).ok()
        })
}

/// The meaning of one requirement, spelled out a second time in the dullest way.
fn naive(requirement: &Requirement, labels: &BTreeMap<String, String>) -> bool {
    let mut equal = false;
    let mut present = false;
    let mut number = None;
    for (key, value) in labels {
        if key == requirement.key() {
            present = true;
            number = value.parse::<i64>().ok();
            for wanted in requirement.values() {
                equal = equal || wanted == value;
            }
        }
    }
    let bound = requirement.values().first().and_then(|value| value.parse::<i64>().ok());
    match requirement.operator() {
        LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In => equal,
        LabelOperator::NotEquals | LabelOperator::NotIn => !equal,
        LabelOperator::Exists => present,
        LabelOperator::DoesNotExist => !present,
        LabelOperator::GreaterThan => number.zip(bound).is_some_and(|(number, bound)| number > bound),
        LabelOperator::LessThan => number.zip(bound).is_some_and(|(number, bound)| number < bound),
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}|[a-b=!(), <>in\\x00\n]{0,20}") {
        if let Ok(parsed) = LabelSelector::parse(&text) {
            parsed.matches(WEB);
        }
    }

    #[test]
    fn what_is_printed_reads_back_the_same(requirements in prop::collection::vec(a_requirement(), 0..4)) {
        let printed = LabelSelector::all_of(requirements);
        prop_assert_eq!(LabelSelector::parse(&printed.to_string()).unwrap(), printed);
    }

    #[test]
    fn matching_agrees_with_the_naive_model(
        requirements in prop::collection::vec(a_requirement(), 0..4),
        labels in prop::collection::btree_map(a_word(), prop_oneof![Just(String::new()), a_word()], 0..5),
    ) {
        let wanted = requirements.iter().all(|requirement| naive(requirement, &labels));
        let sorted: Vec<(&String, &String)> = labels.iter().collect();
        let object: Map<String, Value> = labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let selector = LabelSelector::all_of(requirements);
        prop_assert_eq!(selector.matches(&labels), wanted);
        prop_assert_eq!(selector.matches(sorted.as_slice()), wanted);
        prop_assert_eq!(selector.matches(&object), wanted);
    }
}
