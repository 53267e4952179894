//! Addresses of resources, taken apart as Go takes them apart.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    fault::Fault,
    value::{Map, Value},
};

#[derive(Clone, Debug)]
pub struct Url {
    /// As Go writes it.
    pub text: String,
    scheme: String,
    host: String,
    escaped_path: String,
    query: String,
}

impl Url {
    /// A URI that could stand in a request: absolute, or a path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("parse {text:?}: {why}");
        if text.bytes().any(|c| c < 0x20 || c == 0x7f) {
            return Err(wrong("net/url: invalid control character in URL"));
        }
        if text.is_empty() {
            return Err(wrong("empty url"));
        }
        let (scheme, mut rest) = scheme(text).map_err(wrong)?;
        // What a request is sent with has no fragment; for the parts that are asked for it is cut off.
        let fragment = rest.find('#');
        let whole = rest;
        let mut query = "";
        if let Some(at) = rest.find('?') {
            (rest, query) = (&rest[..at], &rest[at + 1..]);
        }
        if !rest.starts_with('/') {
            // `mailto:x` is opaque, and fine.
            if !scheme.is_empty() {
                let opaque = Self {
                    text: text.to_owned(),
                    scheme,
                    host: String::new(),
                    escaped_path: String::new(),
                    query: query.to_owned(),
                };
                return Ok(opaque);
            }
            return Err(wrong("invalid URI for request"));
        }
        if let Some(at) = fragment {
            let before = &whole[..at];
            (rest, query) = before.split_once('?').unwrap_or((before, ""));
        }
        let mut host = String::new();
        if !scheme.is_empty() && rest.starts_with("//")
            || scheme.is_empty() && rest.starts_with("//") && !rest.starts_with("///")
        {
            let authority = &rest[2..];
            let end = authority.find('/').unwrap_or(authority.len());
            host = self::host(&authority[..end]).map_err(|why| wrong(&why))?;
            rest = &authority[end..];
        }
        let escaped_path = escaped(rest).map_err(|why| wrong(&why))?;
        Ok(Self { text: text.to_owned(), scheme, host, escaped_path, query: query.to_owned() })
    }

    fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => self.host.rsplit_once(':').map_or(&*self.host, |(name, _)| name),
        }
    }

    fn port(&self) -> &str {
        let after = match self.host.rfind(']') {
            Some(at) => &self.host[at + 1..],
            None => &self.host,
        };
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }

    fn parameters(&self) -> Value<'static> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (unescaped(key), unescaped(value)) {
                found.entry(key).or_default().push(value);
            }
        }
        let entries = found.into_iter().filter_map(|(name, values)| {
            let key = Value::text(name);
            Some((key.key()?, (key, Value::texts(values))))
        });
        Value::Map(Map::Values(Arc::new(entries.collect())))
    }
}

fn scheme(text: &str) -> Result<(String, &str), &'static str> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((text[..at].to_lowercase(), &text[at + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

fn host(authority: &str) -> Result<String, String> {
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
            if !user.chars().all(allowed) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            host
        }
        None => authority,
    };
    let (name, port) = match host.strip_prefix('[') {
        Some(_) => match host.rfind(']') {
            Some(at) => (&host[..=at], &host[at + 1..]),
            None => return Err("missing ']' in host".to_owned()),
        },
        None => match host.find(':') {
            Some(at) => (&host[..at], &host[at..]),
            None => (host, ""),
        },
    };
    let digits = port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_digit()));
    if !(port.is_empty() || digits) {
        return Err(format!("invalid port {port:?} after host"));
    }
    if let Some(c) = name.chars().find(|c| " \"<>^`{}|\\".contains(*c)) {
        return Err(format!("invalid character {:?} in host name", c.to_string()));
    }
    if let Some(at) = name.find('%') {
        // Go cuts after three bytes, which need not be where a character ends.
        let cut = &name.as_bytes()[at..name.len().min(at + 3)];
        return Err(format!("invalid URL escape {:?}", String::from_utf8_lossy(cut)));
    }
    Ok(host.to_owned())
}

/// The path with everything escaped that must be.
fn escaped(path: &str) -> Result<String, String> {
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len());
    let mut at = 0;
    while at < bytes.len() {
        let c = bytes[at];
        if c == b'%' {
            let code = bytes.get(at + 1..at + 3).filter(|code| code.iter().all(u8::is_ascii_hexdigit));
            if code.is_none() {
                return Err(format!(
                    "invalid URL escape {:?}",
                    String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)])
                ));
            }
            out.push_str(&path[at..at + 3]);
            at += 3;
            continue;
        }
        if c.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]".contains(&c) {
            out.push(char::from(c));
        } else {
            out.push_str(&format!("%{c:02X}"));
        }
        at += 1;
    }
    Ok(out)
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(c) = bytes.next() {
        match c {
            b'+' => out.push(b' '),
            b'%' => {
                let digit = |c: Option<u8>| char::from(c?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => out.push(other),
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

pub fn call(function: &str, args: &[Value<'_>]) -> Result<Value<'static>, Fault> {
    Ok(match (function, args) {
        ("url", [Value::String(text)]) => match Url::parse(text) {
            Ok(url) => Value::Url(Arc::new(url)),
            Err(why) => {
                return Err(Fault::failed(format!("URL parse error during conversion from string: {why}")));
            }
        },
        ("isURL", [Value::String(text)]) => Value::Bool(Url::parse(text).is_ok()),
        ("getScheme", [Value::Url(url)]) => Value::text(&*url.scheme),
        ("getHost", [Value::Url(url)]) => Value::text(&*url.host),
        ("getHostname", [Value::Url(url)]) => Value::text(url.hostname()),
        ("getPort", [Value::Url(url)]) => Value::text(url.port()),
        ("getEscapedPath", [Value::Url(url)]) => Value::text(&*url.escaped_path),
        ("getQuery", [Value::Url(url)]) => url.parameters(),
        _ => return Err(Fault::no_overload()),
    })
}
