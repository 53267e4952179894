//! Field selectors: a conjunction of equalities on an object's fields.
//!
//! A value may hold any text: backslash, comma and equals sign are written with a
//! backslash before them. The field to the left knows no escapes, so the first operator in
//! a term divides it. Which fields a kind offers is not decided here.

use std::fmt;

/// What an object's fields must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// Sorted as they print.
    terms: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: String,
    pub operator: FieldOperator,
    pub value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    Equals,
    NotEquals,
}

/// Why a selector is none. The sentences are the original's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    NoOperator { selector: String, term: String },
    #[error("invalid field selector: invalid escape sequence: {0}")]
    BadEscape(String),
    // The original prints the character's number, and clients may have seen it.
    #[error("invalid field selector: unescaped character in value: {}", *.0 as u32)]
    Unescaped(char),
}

impl FieldSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut parts: Vec<&str> = split_terms(text).filter(|part| !part.is_empty()).collect();
        // In order, so that of several faults always the same one is told.
        parts.sort_unstable();
        let terms: Result<Vec<_>, _> = parts.into_iter().map(|part| parse_term(text, part)).collect();
        let mut terms = terms?;
        // `=` alone asks for nothing.
        terms.retain(|term| !(term.field.is_empty() && term.value.is_empty()));
        Ok(Self::all_of(terms))
    }

    pub fn all_of(mut terms: Vec<FieldTerm>) -> Self {
        terms.sort_by_cached_key(FieldTerm::to_string);
        FieldSelector { terms }
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Asks `value_of` for each field named; a field the object does not have is empty.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|term| {
            let equal = value_of(&term.field).unwrap_or_default() == term.value;
            match term.operator {
                FieldOperator::Equals => equal,
                FieldOperator::NotEquals => !equal,
            }
        })
    }

    /// The one value `field` must have, when the selector says so: a list for
    /// `metadata.name=x` need look at one object only.
    pub fn required_value(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.operator == FieldOperator::Equals && term.field == field)
            .map(|term| term.value.as_str())
    }
}

fn split_terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |letter| {
        if escaped {
            escaped = false;
            return false;
        }
        escaped = letter == '\\';
        letter == ','
    })
}

fn parse_term(selector: &str, term: &str) -> Result<FieldTerm, FieldSelectorError> {
    let no_operator =
        || FieldSelectorError::NoOperator { selector: selector.to_owned(), term: term.to_owned() };
    let equals = term.find('=').ok_or_else(no_operator)?;
    let (field, operator, value) = match term[..equals].strip_suffix('!') {
        Some(field) => (field, FieldOperator::NotEquals, &term[equals + 1..]),
        None => {
            let value = &term[equals + 1..];
            (&term[..equals], FieldOperator::Equals, value.strip_prefix('=').unwrap_or(value))
        }
    };
    Ok(FieldTerm { field: field.to_owned(), operator, value: unescaped(value)? })
}

/// A value as it stands in a selector.
pub fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for letter in value.chars() {
        if matches!(letter, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

fn unescaped(value: &str) -> Result<String, FieldSelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                Some(next) => return Err(FieldSelectorError::BadEscape(format!("\\{next}"))),
                None => return Err(FieldSelectorError::BadEscape("\\".to_owned())),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(letter)),
            _ => plain.push(letter),
        }
    }
    Ok(plain)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        f.write_str(match self.operator {
            FieldOperator::Equals => "=",
            FieldOperator::NotEquals => "!=",
        })?;
        for letter in self.value.chars() {
            if matches!(letter, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(field: &str) -> Option<&'static str> {
        match field {
            "metadata.name" => Some("web"),
            "odd" => Some(r"a,b=c\d"),
            _ => None,
        }
    }

    #[test]
    fn every_operator_means_what_it_says() {
        for (text, wanted) in [
            ("", true),
            (",,", true),
            ("=", true),
            ("!=", true),
            ("metadata.name=web", true),
            ("metadata.name==web", true),
            ("metadata.name!=web", false),
            ("metadata.name=db", false),
            ("gone=", true),
            ("gone!=x", true),
            ("metadata.name=web,gone!=x", true),
            ("metadata.name=web,gone=x", false),
            (r"odd=a\,b\=c\\d", true),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(pod), wanted, "{text}");
        }
    }

    #[test]
    fn what_does_not_parse_is_refused_in_the_words_of_the_original() {
        for (text, words) in [
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), words);
        }
    }

    #[test]
    fn a_required_name_can_be_asked_for() {
        let selector = FieldSelector::parse("metadata.name=web,type!=x").unwrap();
        assert_eq!(selector.required_value("metadata.name"), Some("web"));
        assert_eq!(selector.required_value("type"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}|[ab=!,\\\\]{0,12}") {
            if let Ok(parsed) = FieldSelector::parse(&text) {
                parsed.matches(pod);
            }
        }

        #[test]
        fn what_parses_prints_and_reads_back_the_same(text in "[ab=!,\\\\.]{0,12}") {
            if let Ok(parsed) = FieldSelector::parse(&text) {
                prop_assert_eq!(FieldSelector::parse(&parsed.to_string()).unwrap(), parsed);
            }
        }

        #[test]
        fn any_value_can_be_asked_for(value in "\\PC{0,20}") {
            let wanted = FieldTerm {
                field: "f".to_owned(), operator: FieldOperator::Equals, value: value.clone(),
            };
            let parsed = FieldSelector::parse(&wanted.to_string()).unwrap();
            prop_assert_eq!(parsed.terms(), &[wanted]);
            prop_assert!(parsed.matches(|_| Some(value.as_str())));
        }
    }
}
