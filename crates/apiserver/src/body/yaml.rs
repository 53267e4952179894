//! YAML as Kubernetes' clients mean it: one document, turned into the JSON it stands for.
//!
//! Built on parse events rather than on a finished tree, so that depth and the growth of aliases
//! are bounded while reading. Words are resolved as YAML 1.1 has them, since the manifests
//! that people keep were written for a reader that does: `yes` and `on` are true, `017` is octal.
//! A date stays a string. Tags of our own making and binary scalars are refused, not guessed at.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, StrInput, Tag};
use serde_json::{Map, Number, Value};

use super::{Document, MAX_DEPTH, MAX_NAMED, Path, is_within};

/// How many bytes aliases may add to what was written out: no more than fit into an object, anyway.
const MAX_ALIASED: usize = 4 * 1024 * 1024;
/// What a value takes beside its text.
const BYTES_OF_VALUE: usize = 40;

const TRUE: [&str; 11] = ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"];
const FALSE: [&str; 11] = ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"];
const NULL: [&str; 5] = ["", "~", "null", "Null", "NULL"];
const NOT_IN_JSON: [&str; 12] =
    [".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF"];

/// Reads the only document of `text`; the error says why not, and where.
pub fn read(text: &str) -> Result<Document, String> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        anchors: BTreeMap::new(),
        aliased: 0,
        path: Path::default(),
        repeated: Vec::new(),
    };
    loop {
        match reader.next()? {
            Event::DocumentStart(..) => break,
            Event::StreamEnd => return Err("the body is empty".into()),
            _ => {}
        }
    }
    let first = reader.next()?;
    let value = reader.node(first, 0)?;
    loop {
        match reader.next()? {
            Event::StreamEnd => return Ok(Document { value, repeated: reader.repeated }),
            Event::DocumentStart(..) => return Err("only one document per request is taken".into()),
            _ => {}
        }
    }
}

/// What a document is, as far as its first line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Nothing,
    Scalar,
    Sequence,
    Mapping,
}

/// The shape of each document of `text`; the error says where it is no YAML. Nothing is built, and tags that nobody here
/// understands are let be: what they mean is for whoever reads the text.
pub fn shapes(text: &str) -> Result<Vec<Shape>, String> {
    let mut shapes: Vec<Shape> = Vec::new();
    let mut is_first = false;
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|why| why.to_string())?;
        let shape = match event {
            Event::DocumentStart(..) => {
                shapes.push(Shape::Nothing);
                is_first = true;
                continue;
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) if NULL.contains(&&*text) => Shape::Nothing,
            Event::Scalar(..) => Shape::Scalar,
            Event::SequenceStart(..) => Shape::Sequence,
            Event::MappingStart(..) => Shape::Mapping,
            _ => continue,
        };
        if let Some(last) = shapes.last_mut().filter(|_| is_first) {
            *last = shape;
            is_first = false;
        }
    }
    Ok(shapes)
}

struct Reader<'t> {
    events: Parser<'t, StrInput<'t>>,
    anchors: BTreeMap<usize, Value>,
    aliased: usize,
    path: Path,
    repeated: Vec<String>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Event<'t>, String> {
        loop {
            match self.events.next() {
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok((event, _))) => return Ok(event),
                Some(Err(why)) => return Err(why.to_string()),
                None => return Ok(Event::StreamEnd),
            }
        }
    }

    fn node(&mut self, event: Event<'t>, depth: usize) -> Result<Value, String> {
        let is_collection = matches!(event, Event::SequenceStart(..) | Event::MappingStart(..));
        if is_collection && depth >= MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let (anchor, value) = match event {
            Event::Alias(anchor) => return self.alias(anchor, depth),
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref())?),
            Event::SequenceStart(_, anchor, tag) => {
                collection_tag(tag.as_deref(), "seq")?;
                (anchor, self.sequence(depth)?)
            }
            Event::MappingStart(_, anchor, tag) => {
                collection_tag(tag.as_deref(), "map")?;
                (anchor, self.mapping(depth)?)
            }
            // A document of nothing but its markers.
            _ => (0, Value::Null),
        };
        if anchor != 0 {
            self.count_aliased(&value)?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn alias(&mut self, anchor: usize, depth: usize) -> Result<Value, String> {
        let value = self.anchors.get(&anchor).ok_or("an alias stands inside what it refers to")?;
        if !is_within(value, MAX_DEPTH.saturating_sub(depth)) {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let value = value.clone();
        self.count_aliased(&value)?;
        Ok(value)
    }

    fn count_aliased(&mut self, value: &Value) -> Result<(), String> {
        self.aliased += size(value);
        if self.aliased > MAX_ALIASED {
            return Err(format!("aliases repeat more than {MAX_ALIASED} bytes"));
        }
        Ok(())
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Value::Array(items)),
                item => {
                    self.path.0.push(format!("[{}]", items.len()));
                    items.push(self.node(item, depth + 1)?);
                    self.path.0.pop();
                }
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, String> {
        let (mut members, mut merged) = (Map::new(), Map::new());
        loop {
            let key = match self.next()? {
                Event::MappingEnd => break,
                Event::Scalar(text, ScalarStyle::Plain, 0, None) if text == "<<" => {
                    let event = self.next()?;
                    let value = self.node(event, depth + 1)?;
                    merge(&mut merged, value)?;
                    continue;
                }
                event => key(self.node(event, depth + 1)?)?,
            };
            if members.contains_key(&key) && self.repeated.len() < MAX_NAMED {
                self.repeated.push(self.path.with(&key));
            }
            self.path.0.push(if self.path.0.is_empty() { key.clone() } else { format!(".{key}") });
            let event = self.next()?;
            let value = self.node(event, depth + 1)?;
            self.path.0.pop();
            members.insert(key, value);
        }
        // What a mapping says itself outranks what it merges in.
        for (key, value) in merged {
            members.entry(key).or_insert(value);
        }
        Ok(Value::Object(members))
    }
}

/// About how many bytes a value takes.
fn size(value: &Value) -> usize {
    BYTES_OF_VALUE
        + match value {
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(members) => members.iter().map(|(key, value)| key.len() + size(value)).sum(),
            Value::String(text) => text.len(),
            _ => 0,
        }
}

/// Of several mappings merged in, the first to have a key wins.
fn merge(into: &mut Map<String, Value>, from: Value) -> Result<(), String> {
    match from {
        Value::Object(members) => {
            for (key, value) in members {
                into.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(items) if items.iter().all(Value::is_object) => {
            items.into_iter().try_for_each(|item| merge(into, item))
        }
        _ => Err("the value of the key << must be a mapping or a list of mappings".into()),
    }
}

/// JSON has only strings for keys; what else YAML allows is written as one where that is clear.
fn key(value: Value) -> Result<String, String> {
    match value {
        Value::String(key) => Ok(key),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(format!("{value} cannot be the key of a mapping"))
        }
    }
}

fn collection_tag(tag: Option<&Tag>, expected: &str) -> Result<(), String> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema_tag(expected) => Err(unknown_tag(tag)),
        _ => Ok(()),
    }
}

fn unknown_tag(tag: &Tag) -> String {
    format!("the tag {} is not taken here", tag.original())
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => plain(text),
            _ => Ok(text.into()),
        };
    };
    // `!` alone says: no more than a string.
    if tag.original() == "!" {
        return Ok(text.into());
    }
    let Some(name) = tag.core_suffix() else {
        return Err(unknown_tag(tag));
    };
    let value = plain(text)?;
    match (name, &value) {
        ("str", _) => Ok(text.into()),
        ("int", Value::Number(number)) if !number.is_f64() => Ok(value),
        ("float", Value::Number(_)) | ("bool", Value::Bool(_)) | ("null", Value::Null) => Ok(value),
        ("int" | "float" | "bool" | "null", _) => Err(format!("{text:?} is not a {name}")),
        ("timestamp", _) => Ok(text.into()),
        _ => Err(unknown_tag(tag)),
    }
}

/// What an unquoted word means.
fn plain(text: &str) -> Result<Value, String> {
    if TRUE.contains(&text) {
        return Ok(true.into());
    }
    if FALSE.contains(&text) {
        return Ok(false.into());
    }
    if NULL.contains(&text) {
        return Ok(Value::Null);
    }
    if NOT_IN_JSON.contains(&text) {
        return Err(format!("{text} is a number that JSON cannot hold"));
    }
    if !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return Ok(text.into());
    }
    let digits = text.replace('_', "");
    if let Some(number) = integer(&digits) {
        return Ok(Value::Number(number));
    }
    if !is_float(&digits) {
        return Ok(text.into());
    }
    let number = digits.parse().ok().and_then(Number::from_f64);
    number.map(Value::Number).ok_or_else(|| format!("{text} is a number that JSON cannot hold"))
}

fn integer(digits: &str) -> Option<Number> {
    let (negative, magnitude) = match digits.as_bytes().first()? {
        b'-' => (true, &digits[1..]),
        b'+' => (false, &digits[1..]),
        _ => (false, digits),
    };
    let lower = magnitude.to_ascii_lowercase();
    let (radix, rest) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    // A second sign is not part of a number, although the parser below would take it.
    if !rest.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    let number = u64::from_str_radix(rest, radix).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(number).map(Number::from);
    }
    Some(Number::from(number))
}

/// `[-+]? ( . digits | digits [. digits?] ) ( [eE] [-+]? digits )?`
fn is_float(digits: &str) -> bool {
    let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => {
            all_digits(whole) && all_digits(part) && !(whole.is_empty() && part.is_empty())
        }
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    mantissa_fits && exponent.is_none_or(|exponent| !exponent.is_empty() && all_digits(exponent))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        read(text).unwrap().value
    }

    #[test]
    fn unquoted_words_mean_what_manifests_mean_by_them() {
        let read = value(
            "[yes, Off, 'yes', ~, null, 017, 0x1F, 0b101, 1_000, -5, +3, 1.5, .5, 1e3, 09, 1.2.3, 2001-01-01, \
             10.0.0.1, 100m, 1Gi, +, 18446744073709551615]",
        );
        assert_eq!(
            read,
            json!([
                true,
                false,
                "yes",
                null,
                null,
                15,
                31,
                5,
                1000,
                -5,
                3,
                1.5,
                0.5,
                1000.0,
                9.0,
                "1.2.3",
                "2001-01-01",
                "10.0.0.1",
                "100m",
                "1Gi",
                "+",
                18_446_744_073_709_551_615_u64
            ])
        );
    }

    #[test]
    fn block_scalars_keep_their_lines() {
        assert_eq!(
            value("a: |\n  one [\n  two\nb: >-\n  x\n  y\n"),
            json!({"a": "one [\ntwo\n", "b": "x y"})
        );
    }

    #[test]
    fn keys_are_strings_and_repeated_ones_are_named() {
        assert_eq!(value("8080: x\non: z\n"), json!({"8080": "x", "true": "z"}));
        assert_eq!(read("a:\n- b: 1\n  b: 2\n").unwrap().repeated, ["a[0].b"]);
        assert!(read("[a]: 1").unwrap_err().contains("key"));
    }

    #[test]
    fn anchors_and_merges_are_followed() {
        let read = value("base: &b {x: 1, z: 2}\nown: {z: 3, <<: *b}\nlist: {<<: [{x: 9}, *b]}\nagain: *b\n");
        assert_eq!(read["own"], json!({"x": 1, "z": 3}));
        assert_eq!(read["list"], json!({"x": 9, "z": 2}));
        assert_eq!(read["again"], json!({"x": 1, "z": 2}));
        assert!(super::read("a: &a [*a]").is_err());
    }

    #[test]
    fn tags_say_what_a_scalar_is_or_are_refused() {
        assert_eq!(value("[!!str 1, !!int 2, ! 3, !!float 1]"), json!(["1", 2, "3", 1]));
        for refused in ["!!int x", "!own x", "!!binary aGk=", "!!set {a}", ".inf"] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn hostile_shapes_are_refused_in_time_that_grows_with_their_length() {
        // Each of these holds a reader for minutes whose time grows with the square of the depth. Brackets in
        // comments and strings hide the depth from anyone who counts them.
        for piece in ["[", "{a: ", "[ # ]]]]\n", "[\"]]]]\", ", "- ", "? ", "[']', "] {
            let hostile = piece.repeat(super::super::MAX_BODY / piece.len());
            assert!(read(&hostile).is_err(), "{piece:?}");
        }
    }

    #[test]
    fn aliases_do_not_hide_how_deep_a_document_is() {
        let mut text = String::from("a0: &a0 []\n");
        for n in 1..60 {
            text += &format!("a{n}: &a{n} [[*a{}]]\n", n - 1);
        }
        assert!(read(&text).unwrap_err().contains("nested deeper"));
    }

    #[test]
    fn aliases_are_counted_by_what_they_repeat() {
        let long = "x".repeat(100_000);
        let text = format!("a: &a {long}\nb: [{}]\n", vec!["*a"; 100].join(", "));
        assert!(read(&text).unwrap_err().contains("aliases repeat"));
        let keyed = format!("a: &a {{{}: 1}}\nb: [{}]\n", &long[..900], vec!["*a"; 10_000].join(", "));
        assert!(read(&keyed).unwrap_err().contains("aliases repeat"));
        let few = format!("a: &a {long}\nb: [{}]\n", ["*a"; 10].join(", "));
        assert_eq!(read(&few).unwrap().value["b"][9], long);
    }

    #[test]
    fn one_document_is_one_document() {
        assert_eq!(value("--- {a: 1}\n...\n"), json!({"a": 1}));
        assert!(read("a: 1\n---\nb: 2\n").unwrap_err().contains("only one document"));
        assert!(read("").unwrap_err().contains("empty"));
        assert!(read("# nothing\n").unwrap_err().contains("empty"));
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z0-9 :#-]{0,6}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_is_yaml(wanted in anything()) {
            prop_assert_eq!(value(&wanted.to_string()), wanted);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[\\[\\]{}&*!|>'\",:#a-z0-9 \\n?%@.-]{0,80}") {
            let _ = read(&text);
        }
    }
}
