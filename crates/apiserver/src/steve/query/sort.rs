//! `sort=`: in what order the objects of a collection are shown. Fields with commas between them, the first of them first;
//! `-` before one turns it around. What is equal stays in the order of its place.

use std::cmp::Ordering;

use serde_json::Value;

use super::field::Field;
use crate::{request::Query, status::ApiError};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sort(Vec<(Field, bool)>);

/// What an object is sorted by.
pub type Key = Vec<String>;

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
        self.0.iter().map(|(field, _)| field.texts(object).join("|")).collect()
    }

    pub fn compare(&self, one: &Key, other: &Key) -> Ordering {
        let each = self.0.iter().zip(one.iter().zip(other));
        let orders = each.map(|((_, descending), (one, other))| {
            let order = compare(one, other);
            if *descending { order.reverse() } else { order }
        });
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

/// Numbers as numbers, everything else as text.
fn compare(one: &str, other: &str) -> Ordering {
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => one.total_cmp(&other),
        _ => one.cmp(other),
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
    fn what_is_no_field_is_refused() {
        assert!(Sort::read(&Query::parse(Some("sort=a..b"))).is_err());
    }
}
