//! A field named in a query: `metadata.name`, `metadata.labels[app.kubernetes.io/name]`, `metadata.fields[2]`.

use serde_json::Value;

/// Whose members have dots in their names.
const MAPS: [&str; 2] = ["labels", "annotations"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field(Vec<String>);

impl Field {
    /// `None` if it names nothing, or a bracket is not closed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let (step, after) = inside.split_once(']')?;
                steps.push(step.trim_matches(['"', '\'']).to_owned());
                rest = after.strip_prefix('.').unwrap_or(after);
                continue;
            }
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(rest[..end].to_owned());
            rest = rest[end..].strip_prefix('.').unwrap_or(&rest[end..]);
            // `metadata.labels.a.b/c`: all that follows is one name.
            if let [first, map] = steps.as_slice()
                && first == "metadata"
                && MAPS.contains(&map.as_str())
                && !rest.is_empty()
                && !rest.starts_with('[')
            {
                steps.push(rest.to_owned());
                rest = "";
            }
        }
        let is_sound = !steps.is_empty() && steps.iter().all(|step| !step.is_empty());
        is_sound.then_some(Field(steps))
    }

    /// Everything found there, as text. A list on the way stands for each of its elements.
    pub fn texts(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        gather(object, &self.0, &mut found);
        found
    }
}

fn gather(value: &Value, steps: &[String], found: &mut Vec<String>) {
    match (value, steps.split_first()) {
        (Value::Array(elements), Some((step, rest))) => match step.parse::<usize>() {
            Ok(index) => {
                if let Some(element) = elements.get(index) {
                    gather(element, rest, found);
                }
            }
            Err(_) => elements.iter().for_each(|element| gather(element, steps, found)),
        },
        (Value::Array(elements), None) => elements.iter().for_each(|element| gather(element, &[], found)),
        (Value::Object(members), Some((step, rest))) => {
            if let Some(member) = members.get(step) {
                gather(member, rest, found);
            }
        }
        (Value::String(text), None) => found.push(text.clone()),
        (Value::Bool(_) | Value::Number(_), None) => found.push(value.to_string()),
        (Value::Object(_) | Value::Null, None) => {}
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), Some(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(path: &str, object: &Value) -> Vec<String> {
        Field::parse(path).unwrap().texts(object)
    }

    #[test]
    fn a_field_is_found_however_it_is_spelled() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"app.io/name": "web"}, "fields": ["a", 3, null]},
            "spec": {"on": true, "disks": [{"name": "x"}, {"name": "y", "tags": ["p", "q"]}]},
        });
        assert_eq!(found("metadata.name", &object), ["a"]);
        assert_eq!(found("metadata.labels[app.io/name]", &object), ["web"]);
        assert_eq!(found("metadata.labels.app.io/name", &object), ["web"]);
        assert_eq!(found("metadata.fields[1]", &object), ["3"]);
        assert_eq!(found("metadata.fields.0", &object), ["a"]);
        assert_eq!(found("spec.on", &object), ["true"]);
        assert_eq!(found("spec.disks.name", &object), ["x", "y"]);
        assert_eq!(found("spec.disks[1].tags", &object), ["p", "q"]);
        assert!(found("spec.none.at.all", &object).is_empty());
    }

    #[test]
    fn what_names_nothing_is_no_field() {
        for wrong in ["", ".", "a..b", "a[b", "[]"] {
            assert_eq!(Field::parse(wrong), None, "{wrong:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[a-c.\\[\\]'\"]{0,12}") {
            let _ = Field::parse(&text);
        }
    }
}
