//! Reads `multipart/form-data` as it comes: finds the part that is wanted and hands its bytes on.
//!
//! Nothing is collected: between two pieces only what could be the beginning of a boundary is held back, and the headers
//! of one part.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

/// The headers of one part; a browser's are a few hundred bytes.
const MAX_HEADERS: usize = 16 * 1024;
/// As the standard has it.
const MAX_BOUNDARY: usize = 70;

/// Why a form cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("the content type of a form must name its boundary")]
    NoBoundary,
    #[error("the headers of a part of the form are longer than {MAX_HEADERS} bytes")]
    LongHeaders,
    #[error("the form has no part with the name that is wanted")]
    NoSuchPart,
    #[error("the form ends in the middle of its part")]
    CutShort,
}

/// A form of which one part is wanted: the first that has one of these names.
pub struct Form {
    wanted: &'static [&'static str],
    /// What stands before every part, its line break included.
    delimiter: Vec<u8>,
    held: BytesMut,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first part, or in one that nobody wants.
    Unwanted,
    Headers,
    Wanted,
    /// Behind the part that was wanted.
    Done,
    /// Behind the last part, and none was the one.
    Missed,
}

impl Form {
    /// A form with this content type.
    pub fn of(content_type: &str, wanted: &'static [&'static str]) -> Result<Form, FormError> {
        let boundary = parameter(content_type, "boundary").ok_or(FormError::NoBoundary)?;
        if boundary.is_empty() || boundary.len() > MAX_BOUNDARY {
            return Err(FormError::NoBoundary);
        }
        // The first boundary begins the body; with a line break before it, it is like the others.
        let held = BytesMut::from(&b"\r\n"[..]);
        Ok(Form { wanted, delimiter: format!("\r\n--{boundary}").into_bytes(), held, at: At::Unwanted })
    }

    /// Takes the next piece of the body, and returns what it brought of the part that is wanted.
    pub fn push(&mut self, piece: &[u8]) -> Result<Bytes, FormError> {
        self.held.extend_from_slice(piece);
        let mut found = Bytes::new();
        loop {
            match self.at {
                At::Unwanted | At::Wanted => {
                    let end = memmem::find(&self.held, &self.delimiter);
                    let sure = end.unwrap_or(self.held.len().saturating_sub(self.delimiter.len() - 1));
                    let passed = self.held.split_to(sure).freeze();
                    if self.at == At::Wanted {
                        // Once at most: behind the wanted part nothing is.
                        found = passed;
                    }
                    if end.is_none() {
                        return Ok(found);
                    }
                    self.held.advance(self.delimiter.len());
                    self.at = if self.at == At::Wanted { At::Done } else { At::Headers };
                }
                At::Headers => {
                    if self.held.starts_with(b"--") {
                        self.at = At::Missed;
                        continue;
                    }
                    let Some(end) = memmem::find(&self.held, b"\r\n\r\n") else {
                        return match self.held.len() > MAX_HEADERS {
                            true => Err(FormError::LongHeaders),
                            false => Ok(found),
                        };
                    };
                    let headers = self.held.split_to(end);
                    self.held.advance(4);
                    self.at = if is_named(&headers, self.wanted) { At::Wanted } else { At::Unwanted };
                }
                At::Done | At::Missed => {
                    self.held.clear();
                    return Ok(found);
                }
            }
        }
    }

    /// Whether all of the part has been there; more need not be read.
    pub fn is_done(&self) -> bool {
        matches!(self.at, At::Done | At::Missed)
    }

    /// To be asked when the body has ended.
    pub fn end(&self) -> Result<(), FormError> {
        match self.at {
            At::Done => Ok(()),
            At::Wanted => Err(FormError::CutShort),
            At::Unwanted | At::Headers | At::Missed => Err(FormError::NoSuchPart),
        }
    }
}

fn is_named(headers: &[u8], wanted: &[&str]) -> bool {
    String::from_utf8_lossy(headers).split("\r\n").any(|line| {
        let Some((name, value)) = line.split_once(':') else { return false };
        name.trim().eq_ignore_ascii_case("content-disposition")
            && parameter(value, "name").is_some_and(|name| wanted.contains(&name.as_str()))
    })
}

/// The value of `; name=value` or `; name="value"` in a header.
fn parameter(header: &str, name: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, behind) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim(), &after[end..])
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = behind.split_once(';')?.1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=----b";

    fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, content) in parts {
            let head = format!(
                "------b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a; name=x\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"------b--\r\n");
        body
    }

    fn read(body: &[u8], piece: usize) -> (Vec<u8>, Result<(), FormError>) {
        let mut form = Form::of(TYPE, &["chunk", "disk"]).unwrap();
        let mut found = Vec::new();
        for piece in body.chunks(piece) {
            found.extend_from_slice(&form.push(piece).unwrap());
        }
        (found, form.end())
    }

    #[test]
    fn the_wanted_part_is_found_among_others_however_the_body_is_cut() {
        let content = b"\r\n-----b\r\n------\r\n\0\xff--";
        let body = form(&[("size", b"12"), ("chunk", content), ("chunk", b"a second")]);
        for piece in 1..body.len() {
            assert_eq!(read(&body, piece), (content.to_vec(), Ok(())), "{piece}");
        }
        assert_eq!(read(&form(&[("disk", b"x"), ("chunk", b"y")]), 9), (b"x".to_vec(), Ok(())));
    }

    #[test]
    fn an_empty_part_is_empty() {
        for piece in 1..40 {
            assert_eq!(read(&form(&[("chunk", b"")]), piece), (Vec::new(), Ok(())), "{piece}");
            assert_eq!(
                read(&form(&[("a", b""), ("chunk", b"x")]), piece),
                (b"x".to_vec(), Ok(())),
                "{piece}"
            );
        }
    }

    #[test]
    fn a_form_that_ends_early_or_lacks_the_part_is_told_apart() {
        let body = form(&[("chunk", b"content")]);
        assert_eq!(read(&body[..body.len() - 12], 7).1, Err(FormError::CutShort));
        assert_eq!(read(&form(&[("file", b"content")]), 7).1, Err(FormError::NoSuchPart));
        assert_eq!(read(b"", 1).1, Err(FormError::NoSuchPart));
        let mut form = Form::of(TYPE, &["chunk", "disk"]).unwrap();
        let endless = [b"------b\r\n".to_vec(), vec![b'x'; MAX_HEADERS + 1]].concat();
        assert_eq!(form.push(&endless), Err(FormError::LongHeaders));
    }

    #[test]
    fn the_boundary_is_read_quoted_or_not() {
        for (text, boundary) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("multipart/form-data; charset=utf-8; Boundary=\"a b;c\"", Some("a b;c")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary", None),
        ] {
            assert_eq!(parameter(text, "boundary").as_deref(), boundary, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(content in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
            prop_assert_eq!(read(&form(&[("chunk", &content)]), piece), (content, Ok(())));
        }

        #[test]
        fn no_form_makes_the_reader_panic(body in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
            let mut form = Form::of(TYPE, &["chunk", "disk"]).unwrap();
            for piece in body.chunks(piece) {
                let _ = form.push(piece);
            }
        }
    }
}
