//! `fieldPath` of a rule: which field below the rule's own a failure is about.

use crate::{
    field_error::FieldPath,
    schema::{Additional, Schema},
};

/// The path as errors write it; nothing if it names no field of the schema. Fields are written `.name` or
/// `['name']`; list elements cannot be named.
pub(super) fn resolve(path: &str, schema: &Schema) -> Option<String> {
    let mut schema = schema;
    let mut resolved = FieldPath::root();
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix("['") {
            let end = closing_quote(quoted)?;
            name = unescaped(&quoted[..end])?;
            rest = quoted[end + 1..].strip_prefix(']')?;
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[', ']']).unwrap_or(plain.len());
            if end == 0 {
                return None;
            }
            name = plain[..end].to_owned();
            rest = &plain[end..];
        }
        if !schema.properties.is_empty() {
            schema = schema.properties.get(&name)?;
            resolved = resolved.child(&name);
        } else {
            let Some(Additional::Schema(values)) = &schema.additional_properties else { return None };
            schema = values;
            resolved = resolved.key(&name);
        }
    }
    Some(resolved.as_str().to_owned())
}

fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len()).find(|at| bytes[*at] == b'\'' && (*at == 0 || bytes[at - 1] != b'\\'))
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next()? {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                plain @ ('\'' | '\\') => plain,
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}
