//! The wire format of protobuf: numbered fields, each of one of a few encodings.
//!
//! Knows nothing of messages. Groups, which no kind of ours uses, are skipped whole. Every
//! step takes at least one byte and looks at each byte once, so a reader ends, and in time
//! proportional to what it was given. The messages of the errors are the original's.

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: illegal tag {number} (wire type {tag})")]
    IllegalTag { number: i32, tag: u64 },
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u64),
    #[error("proto: unexpected end of group")]
    StrayGroupEnd,
    #[error("proto: wrong wireType = {found} for field {field}")]
    WrongWireType { found: u8, field: String },
}

/// What a field holds, before anyone says what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Payload<'a> {
    pub fn varint(self, field: &str) -> Result<u64, WireError> {
        match self {
            Payload::Varint(value) => Ok(value),
            other => Err(other.unfit(field)),
        }
    }

    pub fn fixed64(self, field: &str) -> Result<u64, WireError> {
        match self {
            Payload::Fixed64(value) => Ok(value),
            other => Err(other.unfit(field)),
        }
    }

    pub fn bytes(self, field: &str) -> Result<&'a [u8], WireError> {
        match self {
            Payload::Bytes(value) => Ok(value),
            other => Err(other.unfit(field)),
        }
    }

    fn unfit(self, field: &str) -> WireError {
        let found = match self {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Bytes(_) => 2,
            Payload::Fixed32 => 5,
        };
        WireError::WrongWireType { found, field: field.into() }
    }
}

/// Reads one message, field by field.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field's number and payload; nothing at the end.
    pub fn field(&mut self) -> Result<Option<(u32, Payload<'a>)>, WireError> {
        while !self.is_at_end() {
            let tag = self.varint()?;
            // As many bits as the original looks at.
            let number = (tag >> 3) as i32;
            let Ok(positive @ 1..) = u32::try_from(number) else {
                return Err(WireError::IllegalTag { number, tag });
            };
            match tag & 7 {
                3 => self.skip_group()?,
                4 => return Err(WireError::StrayGroupEnd),
                encoding => return Ok(Some((positive, self.payload(encoding)?))),
            }
        }
        Ok(None)
    }

    pub fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(WireError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Overflow)
    }

    fn payload(&mut self, encoding: u64) -> Result<Payload<'a>, WireError> {
        match encoding {
            0 => self.varint().map(Payload::Varint),
            1 => {
                let (bytes, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated)?;
                self.rest = rest;
                Ok(Payload::Fixed64(u64::from_le_bytes(*bytes)))
            }
            2 => {
                let length = self.varint()?;
                if length > i64::MAX as u64 {
                    return Err(WireError::NegativeLength);
                }
                let length = usize::try_from(length).map_err(|_| WireError::Truncated)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
                self.rest = rest;
                Ok(Payload::Bytes(bytes))
            }
            5 => {
                self.rest = self.rest.get(4..).ok_or(WireError::Truncated)?;
                Ok(Payload::Fixed32)
            }
            other => Err(WireError::IllegalWireType(other)),
        }
    }

    /// Skips to the end of a group; groups inside it are counted, not followed.
    fn skip_group(&mut self) -> Result<(), WireError> {
        let mut open = 1_usize;
        while open > 0 {
            match self.varint()? & 7 {
                3 => open += 1,
                4 => open -= 1,
                encoding => drop(self.payload(encoding)?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Payload<'_>)>, WireError> {
        let mut reader = Reader::new(bytes);
        let mut found = Vec::new();
        while let Some(field) = reader.field()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn every_encoding_is_read_and_groups_are_skipped() {
        let bytes = [
            &[0x08, 0xac, 0x02][..],                                 // 1: 300
            &[0x13, 0x08, 0x01, 0x1b, 0x1c, 0x14],                   // 2: a group in a group
            &[0x1a, 0x02, b'h', b'i'],                               // 3: "hi"
            &[0x21, 1, 0, 0, 0, 0, 0, 0, 0],                         // 4: fixed
            &[0x2d, 1, 0, 0, 0],                                     // 5: fixed, short
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], // 1: -1
        ]
        .concat();
        let expected = [
            (1, Payload::Varint(300)),
            (3, Payload::Bytes(b"hi")),
            (4, Payload::Fixed64(1)),
            (5, Payload::Fixed32),
            (1, Payload::Varint(u64::MAX)),
        ];
        assert_eq!(all(&bytes).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let cases: [(&[u8], &str); 9] = [
            (&[0x80], "unexpected EOF"),
            (&[0x0a, 5, 1], "unexpected EOF"),
            (&[0x09, 1], "unexpected EOF"),
            (&[0x0b, 0x08, 0x01], "unexpected EOF"),
            (&[0xff; 11], "proto: integer overflow"),
            (&[0x00, 1], "proto: illegal tag 0 (wire type 0)"),
            (&[0x0c], "proto: unexpected end of group"),
            (&[0x0f], "proto: illegal wireType 7"),
            (
                &[0x0a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
                "proto: negative length found during unmarshaling",
            ),
        ];
        for (bytes, why) in cases {
            assert_eq!(all(bytes).unwrap_err().to_string(), why, "{bytes:x?}");
        }
    }
}
