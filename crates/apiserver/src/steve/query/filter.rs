//! `filter=`: which objects of a collection are shown.
//!
//! | | |
//! |---|---|
//! | `field=text` | has the text in it; `field="text"` and `field~text` as well |
//! | `field='text'`, `field==text` | is the text |
//! | `field!=...`, `field!~...` | the opposite |
//! | `field in (a,b)`, `field notin (a,b)` | is one of these, or none |
//! | `field<7`, `field>7` | of numbers |
//! | `field`, `!field` | is there, or is not |
//!
//! Terms with commas between them are alternatives; of several filters each must hold.

use serde_json::Value;

use super::field::Field;
use crate::{request::Query, status::ApiError};

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Contains(String),
    Is(Vec<String>),
    Below(f64),
    Above(f64),
    Exists,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    field: Field,
    test: Test,
    negated: bool,
}

impl Term {
    fn holds(&self, object: &Value) -> bool {
        let texts = self.field.texts(object);
        let numbers = || texts.iter().filter_map(|text| text.parse::<f64>().ok());
        let found = match &self.test {
            Test::Contains(part) => texts.iter().any(|text| text.contains(part)),
            Test::Is(all) => texts.iter().any(|text| all.contains(text)),
            Test::Below(limit) => numbers().any(|number| number < *limit),
            Test::Above(limit) => numbers().any(|number| number > *limit),
            Test::Exists => !texts.is_empty(),
        };
        found != self.negated
    }
}

/// All filters of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters(Vec<Vec<Term>>);

impl Filters {
    pub fn read(query: &Query) -> Result<Self, ApiError> {
        let filters = query.all("filter").filter(|text| !text.trim().is_empty());
        filters.map(parse).collect::<Result<_, _>>().map(Filters)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object is shown.
    pub fn pass(&self, object: &Value) -> bool {
        self.0.iter().all(|alternatives| alternatives.iter().any(|term| term.holds(object)))
    }
}

fn parse(text: &str) -> Result<Vec<Term>, ApiError> {
    let wrong = || {
        ApiError::bad_request(format!(
            "the filter {text:?} cannot be read: it should be like metadata.name=web"
        ))
    };
    let terms = split(text).ok_or_else(wrong)?;
    terms.into_iter().map(|term| term_of(term.trim()).ok_or_else(wrong)).collect()
}

/// The alternatives: commas within quotes, brackets and parentheses are none between terms.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_usize, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.checked_sub(1)?,
            (None, ',') if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            (None, _) => {}
        }
    }
    parts.push(&text[from..]);
    (depth == 0 && quote.is_none()).then_some(parts)
}

fn term_of(text: &str) -> Option<Term> {
    let end = end_of_field(text);
    let (field, rest) = (&text[..end], text[end..].trim_start());
    if let (Some(field), "") = (field.strip_prefix('!'), rest) {
        return Some(Term { field: Field::parse(field)?, test: Test::Exists, negated: true });
    }
    let field = Field::parse(field)?;
    let term = |test, negated| Some(Term { field: field.clone(), test, negated });
    if rest.is_empty() {
        return term(Test::Exists, false);
    }
    for (operator, negated) in [("notin", true), ("in", false)] {
        let same = rest.get(..operator.len()).is_some_and(|start| start.eq_ignore_ascii_case(operator));
        if let Some(list) = rest.get(operator.len()..).filter(|_| same) {
            let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
            let values: Vec<String> =
                split(list)?.into_iter().map(|one| unquoted(one.trim()).to_owned()).collect();
            return term(Test::Is(values), negated);
        }
    }
    let with = |operator: &str| rest.strip_prefix(operator).map(str::trim);
    if let Some(value) = with("!~") {
        return term(Test::Contains(unquoted(value).to_owned()), true);
    }
    if let Some(value) = with("~") {
        return term(Test::Contains(unquoted(value).to_owned()), false);
    }
    if let Some(value) = with("==") {
        return term(Test::Is(vec![unquoted(value).to_owned()]), false);
    }
    if let Some(value) = with("!=") {
        return term(compared(value), true);
    }
    if let Some(value) = with("=") {
        return term(compared(value), false);
    }
    if let Some(value) = with("<") {
        return term(Test::Below(value.parse().ok()?), false);
    }
    if let Some(value) = with(">") {
        return term(Test::Above(value.parse().ok()?), false);
    }
    None
}

fn end_of_field(text: &str) -> usize {
    let mut within = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => within = true,
            ']' => within = false,
            '=' | '<' | '>' | '~' | ' ' if !within => return at,
            '!' if !within && at > 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// Single quotes ask for the very text.
fn compared(value: &str) -> Test {
    let exact = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match exact {
        Some(text) => Test::Is(vec![text.to_owned()]),
        None => Test::Contains(unquoted(value).to_owned()),
    }
}

fn unquoted(value: &str) -> &str {
    let within = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    within('\'').or_else(|| within('"')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sheaf_resources::path::encoded;

    fn filters(texts: &[&str]) -> Result<Filters, ApiError> {
        let query: Vec<String> = texts.iter().map(|text| format!("filter={}", encoded(text))).collect();
        Filters::read(&Query::parse(Some(&query.join("&"))))
    }

    fn passes(texts: &[&str]) -> bool {
        let object = json!({
            "id": "team/web-1", "metadata": {"name": "web-1", "namespace": "team", "state": {"name": "running"},
                "labels": {"app.io/name": "web, main"}, "fields": ["web-1", 12]},
            "spec": {"disks": [{"name": "root"}, {"name": "data"}], "on": true},
        });
        filters(texts).unwrap().pass(&object)
    }

    #[test]
    fn a_text_is_looked_for_within_unless_it_is_in_single_quotes() {
        assert!(
            passes(&["metadata.name=web"])
                && passes(&["metadata.name=\"eb-\""])
                && passes(&["metadata.name~eb"])
        );
        assert!(!passes(&["metadata.name='web'"]) && !passes(&["metadata.name==web"]));
        assert!(passes(&["metadata.name='web-1'"]) && passes(&["metadata.name==web-1"]));
        assert!(!passes(&["metadata.name!=web"]) && passes(&["metadata.name!='web'"]));
        assert!(!passes(&["metadata.name!~eb"]) && passes(&["metadata.name!~x"]));
    }

    #[test]
    fn commas_are_alternatives_and_several_filters_must_all_hold() {
        assert!(passes(&["metadata.name=nope,metadata.namespace=team"]));
        assert!(!passes(&["metadata.name=web", "metadata.namespace=other"]));
        assert!(passes(&["metadata.name=web", "metadata.state.name=running"]));
        assert!(passes(&["id=team/web-1"]));
    }

    #[test]
    fn sets_labels_lists_and_numbers_are_understood() {
        assert!(
            passes(&["metadata.namespace in (other,team)"]) && passes(&["metadata.namespace IN ('team')"])
        );
        assert!(!passes(&["metadata.namespace notin (team)"]) && passes(&["metadata.namespace notin (a,b)"]));
        assert!(passes(&["metadata.labels[app.io/name]='web, main'"]));
        assert!(passes(&["metadata.labels[app.io/name]"]) && passes(&["!metadata.labels[none]"]));
        assert!(passes(&["spec.disks.name='data'"]) && passes(&["spec.on=true"]));
        assert!(passes(&["metadata.fields[1]>7"]) && !passes(&["metadata.fields[1]<7"]));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for wrong in ["=a", "metadata.name in a", "a[b=c", "a in (b", "a='b", "a<b", "a ? b"] {
            assert_eq!(filters(&[wrong]).unwrap_err().reason(), "BadRequest", "{wrong}");
        }
        assert!(filters(&[""]).unwrap().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_filter_makes_the_reader_panic(text in "[a-c.=!~<>(),'\"\\[\\] in]{0,20}") {
            if let Ok(filters) = filters(&[&text]) {
                filters.pass(&json!({"a": {"b": "c"}}));
            }
        }

        #[test]
        fn a_filter_and_its_opposite_never_agree(value in "[a-z]{1,3}", name in "[a-z]{1,5}") {
            let object = json!({"metadata": {"name": name}});
            for (one, other) in [("=", "!="), ("~", "!~")] {
                let one = filters(&[&format!("metadata.name{one}{value}")]).unwrap().pass(&object);
                let other = filters(&[&format!("metadata.name{other}{value}")]).unwrap().pass(&object);
                proptest::prop_assert!(one != other);
            }
        }
    }
}
