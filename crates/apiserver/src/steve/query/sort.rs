//! `sort=`: in what order the objects of a collection are shown. Fields with commas between them, the first of them first;
//! `-` before one turns it around. What is equal stays in the order of its place.

use std::cmp::Ordering;

use serde_json::Value;

use super::field::Field;
use crate::{request::Query, status::ApiError};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sort(Vec<(Field, bool)>);

/// What an object is sorted by.
pub type Key = Vec<Part>;

/// One field's part in it: numbers as numbers, before everything else as text.
#[derive(Clone, Debug)]
pub enum Part {
    Number(f64),
    Text(String),
}

impl Part {
    fn read(text: String) -> Self {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Part::Number(number),
            _ => Part::Text(text),
        }
    }

    /// A whole order: none that is sometimes one of numbers and sometimes one of texts, which sorting does not take.
    fn compare(&self, other: &Part) -> Ordering {
        match (self, other) {
            (Part::Number(one), Part::Number(other)) => one.total_cmp(other),
            (Part::Text(one), Part::Text(other)) => one.cmp(other),
            (Part::Number(_), Part::Text(_)) => Ordering::Less,
            (Part::Text(_), Part::Number(_)) => Ordering::Greater,
        }
    }
}

impl Sort {
    pub fn read(query: &Query) -> Result<Self, ApiError> {
        let texts = query.all("sort").flat_map(|text| text.split(',')).filter(|text| !text.trim().is_empty());
        let fields = texts.map(|text| {
            let text = text.trim();
            let (field, descending) = match text.strip_prefix('-') {
                Some(field) => (field, true),
                None => (text, false),
            };
            Field::parse(field).map(|field| (field, descending)).ok_or_else(|| {
                ApiError::bad_request(format!("{text:?} cannot be sorted by: it is not a field"))
            })
        });
        fields.collect::<Result<_, _>>().map(Sort)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn key(&self, object: &Value) -> Key {
        self.0.iter().map(|(field, _)| Part::read(field.texts(object).join("|"))).collect()
    }

    pub fn compare(&self, one: &Key, other: &Key) -> Ordering {
        let each = self.0.iter().zip(one.iter().zip(other));
        let orders = each.map(|((_, descending), (one, other))| {
            let order = one.compare(other);
            if *descending { order.reverse() } else { order }
        });
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sorted(query: &str, objects: &[Value]) -> Vec<String> {
        let sort = Sort::read(&Query::parse(Some(query))).unwrap();
        let mut keyed: Vec<(Key, String)> = objects
            .iter()
            .map(|object| (sort.key(object), object["n"].as_str().unwrap().to_owned()))
            .collect();
        keyed.sort_by(|one, other| sort.compare(&one.0, &other.0));
        keyed.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn the_first_field_goes_first_and_a_dash_turns_it_around() {
        let objects = [
            json!({"n": "a", "group": "x", "size": 9}),
            json!({"n": "b", "group": "y", "size": 10}),
            json!({"n": "c", "group": "x", "size": 10}),
            json!({"n": "d", "group": "x", "size": 10}),
        ];
        assert_eq!(sorted("sort=size", &objects), ["a", "b", "c", "d"], "numbers are no texts");
        assert_eq!(sorted("sort=-size,group", &objects), ["c", "d", "b", "a"]);
        assert_eq!(sorted("sort=group&sort=-n", &objects), ["d", "c", "a", "b"]);
        assert_eq!(sorted("", &objects), ["a", "b", "c", "d"]);
        assert_eq!(sorted("sort=absent", &objects), ["a", "b", "c", "d"]);
    }

    #[test]
    fn names_that_are_numbers_and_names_that_are_not_have_one_order() {
        let names = ["9", "10", "1x", "2", "inf", "nan", "1e5", "", "x", "-3"];
        let objects: Vec<Value> = (0..60).map(|n| json!({"n": names[n * 7 % names.len()]})).collect();
        let once = sorted("sort=n", &objects);
        let turned: Vec<Value> = objects.iter().rev().cloned().collect();
        assert_eq!(once, sorted("sort=n", &turned));
        assert_eq!(once[0], "-3");
        assert_eq!(once[59], "x");
    }

    #[test]
    fn what_is_no_field_is_refused() {
        assert!(Sort::read(&Query::parse(Some("sort=a..b"))).is_err());
    }
}
