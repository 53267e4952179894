//! Cuts an expression into tokens, with the place each begins at.
//!
//! One pass, no looking back: time is linear in the text whatever it holds.

use std::sync::Arc;

use crate::{ast::Literal, issues::Issues};

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// An operator or a bracket, or the keyword `in`.
    Mark(&'static str),
    Ident(String),
    /// A field's name between backquotes.
    Quoted(String),
    Literal(Literal),
    /// A whole number too large for its type, told when it is used.
    Unfit(&'static str),
    End,
}

pub struct Lexed {
    pub tokens: Vec<(Token, usize, String)>,
}

const MARKS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%", "in",
];

pub fn lex(source: &[char], issues: &mut Issues) -> Lexed {
    let mut cutter = Cutter { source, at: 0, unclosed: false, issues };
    let mut tokens = Vec::new();
    loop {
        cutter.skip_blank();
        let begin = cutter.at;
        let Some(token) = cutter.token() else { continue };
        let text: String = source[begin..cutter.at].iter().collect();
        let end = token == Token::End;
        tokens.push((token, begin, if end { "<EOF>".to_owned() } else { text }));
        if end {
            return Lexed { tokens };
        }
    }
}

struct Cutter<'a> {
    source: &'a [char],
    at: usize,
    /// A long text was never closed. The expression is wrong then, and looking for an end again would take
    /// quadratic time.
    unclosed: bool,
    issues: &'a mut Issues,
}

impl Cutter<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.source.get(self.at + ahead).copied()
    }

    fn skip_blank(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('\t' | ' ' | '\r' | '\n' | '\u{c}'), _) => self.at += 1,
                (Some('/'), Some('/')) => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// The next token; nothing when what stands here is none, which is told.
    fn token(&mut self) -> Option<Token> {
        let Some(first) = self.peek(0) else { return Some(Token::End) };
        let digit_next = self.peek(1).is_some_and(|c| c.is_ascii_digit());
        match first {
            '0'..='9' => Some(self.number()),
            '.' if digit_next => Some(self.number()),
            '"' | '\'' => self.text(false, false),
            'r' | 'R' if self.quote_at(1) => self.prefixed(1, true, false),
            'b' | 'B' if self.quote_at(1) => self.prefixed(1, false, true),
            'b' | 'B' if matches!(self.peek(1), Some('r' | 'R')) && self.quote_at(2) => {
                self.prefixed(2, true, true)
            }
            '`' => self.backquoted(),
            'A'..='Z' | 'a'..='z' | '_' => Some(self.word()),
            _ => self.mark(),
        }
    }

    fn quote_at(&self, ahead: usize) -> bool {
        matches!(self.peek(ahead), Some('"' | '\''))
    }

    fn prefixed(&mut self, length: usize, raw: bool, bytes: bool) -> Option<Token> {
        let begin = self.at;
        self.at += length;
        self.text_from(begin, raw, bytes)
    }

    fn text(&mut self, raw: bool, bytes: bool) -> Option<Token> {
        self.text_from(self.at, raw, bytes)
    }

    fn word(&mut self) -> Token {
        let begin = self.at;
        while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.at += 1;
        }
        let word: String = self.source[begin..self.at].iter().collect();
        match word.as_str() {
            "true" => Token::Literal(Literal::Bool(true)),
            "false" => Token::Literal(Literal::Bool(false)),
            "null" => Token::Literal(Literal::Null),
            "in" => Token::Mark("in"),
            _ => Token::Ident(word),
        }
    }

    fn mark(&mut self) -> Option<Token> {
        for mark in MARKS {
            if mark.chars().enumerate().all(|(n, c)| self.peek(n) == Some(c)) {
                self.at += mark.len();
                return Some(Token::Mark(mark));
            }
        }
        self.unknown(self.at, self.at + 1);
        None
    }

    fn unknown(&mut self, begin: usize, end: usize) {
        let end = end.min(self.source.len());
        let text: String = self.source[begin..end].iter().collect();
        self.issues.add(begin, format!("Syntax error: token recognition error at: '{text}'"));
        self.at = end;
    }

    fn backquoted(&mut self) -> Option<Token> {
        let begin = self.at;
        let body: String = self.source[begin + 1..]
            .iter()
            .take_while(|c| c.is_ascii_alphanumeric() || ['_', '.', '-', '/', ' '].contains(*c))
            .collect();
        let end = begin + 1 + body.len();
        if body.is_empty() || self.source.get(end) != Some(&'`') {
            self.unknown(begin, end);
            return None;
        }
        self.at = end + 1;
        Some(Token::Quoted(body))
    }

    fn number(&mut self) -> Token {
        let begin = self.at;
        if self.peek(0) == Some('0')
            && self.peek(1) == Some('x')
            && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit())
        {
            self.at += 2;
            let digits = self.digits(|c| c.is_ascii_hexdigit());
            return self.whole(&digits, 16);
        }
        let mut digits = self.digits(|c| c.is_ascii_digit());
        let mut float = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            float = true;
            self.at += 1;
            self.digits(|c| c.is_ascii_digit());
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
                float = true;
                self.at += 1 + sign;
                self.digits(|c| c.is_ascii_digit());
            }
        }
        if !float {
            return self.whole(&digits, 10);
        }
        digits = self.source[begin..self.at].iter().collect();
        match digits.parse::<f64>() {
            Ok(value) if value.is_finite() => Token::Literal(Literal::Double(value)),
            _ => Token::Unfit("double"),
        }
    }

    fn digits(&mut self, fits: fn(char) -> bool) -> String {
        let begin = self.at;
        while self.peek(0).is_some_and(fits) {
            self.at += 1;
        }
        self.source[begin..self.at].iter().collect()
    }

    /// A whole number; the least signed one is only a literal together with its minus, which the parser sees.
    fn whole(&mut self, digits: &str, radix: u32) -> Token {
        let unsigned = matches!(self.peek(0), Some('u' | 'U'));
        let value = u64::from_str_radix(digits, radix);
        if unsigned {
            self.at += 1;
            return value.map_or(Token::Unfit("uint"), |value| Token::Literal(Literal::Uint(value)));
        }
        match value {
            Ok(value) if value <= i64::MAX as u64 => Token::Literal(Literal::Int(value as i64)),
            Ok(value) if value == 1 << 63 => Token::Unfit("least int"),
            _ => Token::Unfit("int"),
        }
    }

    fn text_from(&mut self, begin: usize, raw: bool, bytes: bool) -> Option<Token> {
        let quote = self.peek(0)?;
        let long = self.peek(1) == Some(quote)
            && self.peek(2) == Some(quote)
            && !self.unclosed
            && self.closes_long(quote, raw);
        self.at += if long { 3 } else { 1 };
        let mut out: Vec<u8> = Vec::new();
        loop {
            let Some(c) = self.peek(0) else {
                self.unknown(begin, self.source.len());
                return None;
            };
            let closes =
                c == quote && (!long || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote)));
            if closes {
                self.at += if long { 3 } else { 1 };
                break;
            }
            if !long && matches!(c, '\n' | '\r') {
                self.unknown(begin, self.at + 1);
                return None;
            }
            if c == '\\' && !raw {
                if !self.escape(bytes, &mut out) {
                    self.unknown(begin, self.at + 2);
                    return None;
                }
                continue;
            }
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            self.at += 1;
        }
        Some(Token::Literal(match bytes {
            true => Literal::Bytes(Arc::from(out)),
            // Escapes of texts write whole characters only.
            false => Literal::String(Arc::from(String::from_utf8_lossy(&out).as_ref())),
        }))
    }

    /// Whether three quotes that stand here are closed by three more; if not, two of them are an empty text.
    fn closes_long(&mut self, quote: char, raw: bool) -> bool {
        let mut at = self.at + 3;
        while let Some(&c) = self.source.get(at) {
            if c == '\\' && !raw {
                at += 2;
                continue;
            }
            if c == quote
                && self.source.get(at + 1) == Some(&quote)
                && self.source.get(at + 2) == Some(&quote)
            {
                return true;
            }
            at += 1;
        }
        self.unclosed = true;
        false
    }

    /// One escape, which begins here. Says whether it is one.
    fn escape(&mut self, bytes: bool, out: &mut Vec<u8>) -> bool {
        let Some(kind) = self.peek(1) else { return false };
        let plain = match kind {
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            '"' | '\'' | '\\' | '?' | '`' => Some(kind),
            _ => None,
        };
        if let Some(plain) = plain {
            out.extend(plain.encode_utf8(&mut [0; 4]).bytes());
            self.at += 2;
            return true;
        }
        let (skip, length, radix) = match kind {
            'x' | 'X' => (2, 2, 16),
            'u' if !bytes => (2, 4, 16),
            'U' if !bytes => (2, 8, 16),
            '0'..='3' => (1, 3, 8),
            _ => return false,
        };
        let mut code = 0u32;
        for n in 0..length {
            let Some(digit) = self.peek(skip + n).and_then(|c| c.to_digit(radix)) else { return false };
            code = code.wrapping_mul(radix).wrapping_add(digit);
        }
        if bytes {
            match u8::try_from(code) {
                Ok(byte) => out.push(byte),
                Err(_) => return false,
            }
        } else {
            let Some(c) = char::from_u32(code) else { return false };
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
        }
        self.at += skip + length;
        true
    }
}
