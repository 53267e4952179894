//! The grammar of a label selector in a query string.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = "!" key | key | key compare [ value ] | key membership "(" values ")"
//! compare     = "=" | "==" | "!=" | ">" | "<"
//! membership  = "in" | "notin"
//! values      = [ value ] { "," [ value ] }
//! ```
//!
//! `in` and `notin` are words only where an operator may stand, so they can be keys and
//! values too. A missing value is the empty one: `a=`, `a in (,x)` and `a in ()` are fine.

use std::collections::BTreeSet;

use super::label::{LabelOperator, LabelSelectorError, Requirement};
use crate::{names, quote::quoted};

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, LabelSelectorError> {
    let mut parser = Parser { tokens: Tokens { text, at: 0 } };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Not => {}
            Token::End => return Ok(requirements),
            token => return Err(unexpected(token, "!, identifier, or 'end of string'")),
        }
        requirements.push(parser.requirement().map_err(LabelSelectorError::BadRequirement)?);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Comma => match parser.peek() {
                Token::Word(_) | Token::Not => {}
                token => return Err(unexpected(token, "identifier after ','")),
            },
            token => return Err(unexpected(token, "',' or 'end of string'")),
        }
    }
}

fn unexpected(token: Token<'_>, expected: &'static str) -> LabelSelectorError {
    LabelSelectorError::Unexpected { found: token.text().to_owned(), expected }
}

struct Parser<'a> {
    tokens: Tokens<'a>,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        self.tokens.next()
    }

    fn peek(&self) -> Token<'a> {
        self.tokens.clone().next()
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token == Token::Not;
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        let problems = names::qualified_name_problems(key);
        if !problems.is_empty() {
            return Err(format!("<nil>: Invalid value: {}: {}", quoted(key), problems.join("; ")));
        }
        if negated {
            return Requirement::new(key.to_owned(), LabelOperator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Requirement::new(key.to_owned(), LabelOperator::Exists, Vec::new());
        }
        let token = self.next();
        let operator = match token {
            Token::Equals => LabelOperator::Equals,
            Token::DoubleEquals => LabelOperator::DoubleEquals,
            Token::NotEquals => LabelOperator::NotEquals,
            Token::Greater => LabelOperator::GreaterThan,
            Token::Less => LabelOperator::LessThan,
            Token::Word("in") => LabelOperator::In,
            Token::Word("notin") => LabelOperator::NotIn,
            _ => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", token.text()));
            }
        };
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        Requirement::new(key.to_owned(), operator, values)
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => Ok(value.to_owned()),
            token => Err(format!("found '{}', expected: identifier", token.text())),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let token = self.next();
        if token != Token::Open {
            return Err(format!("found '{}' expected: '('", token.text()));
        }
        match self.peek() {
            Token::Word(_) | Token::Comma => {}
            Token::Close => {
                self.next();
                return Ok(vec![String::new()]);
            }
            token => return Err(format!("found '{}', expected: ',', ')' or identifier", token.text())),
        }
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                Token::Word(value) => {
                    values.insert(value.to_owned());
                    match self.peek() {
                        Token::Comma | Token::Close => {}
                        token => return Err(format!("found '{}', expected: ',' or ')'", token.text())),
                    }
                }
                Token::Comma => {
                    // Nothing before the first comma, between two, or after the last: the
                    // empty value.
                    if values.is_empty() || matches!(self.peek(), Token::Comma | Token::Close) {
                        values.insert(String::new());
                    }
                }
                Token::Close => return Ok(values.into_iter().collect()),
                token => return Err(format!("found '{}', expected: ',', or identifier", token.text())),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Comma,
    Open,
    Close,
    Not,
    NotEquals,
    Equals,
    DoubleEquals,
    Greater,
    Less,
    Word(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Comma => ",",
            Token::Open => "(",
            Token::Close => ")",
            Token::Not => "!",
            Token::NotEquals => "!=",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::Greater => ">",
            Token::Less => "<",
            Token::Word(word) => word,
        }
    }
}

#[derive(Clone)]
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Token<'a> {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\r', '\n']);
        self.at = self.text.len() - rest.len();
        let symbol = match rest.as_bytes() {
            [] => return Token::End,
            [b'=', b'=', ..] => Token::DoubleEquals,
            [b'!', b'=', ..] => Token::NotEquals,
            [b'=', ..] => Token::Equals,
            [b'!', ..] => Token::Not,
            [b',', ..] => Token::Comma,
            [b'(', ..] => Token::Open,
            [b')', ..] => Token::Close,
            [b'>', ..] => Token::Greater,
            [b'<', ..] => Token::Less,
            _ => {
                // Ends only at ASCII, so never inside a character.
                let end = rest.find(|next: char| " \t\r\n=!(),><".contains(next)).unwrap_or(rest.len());
                self.at += end;
                return Token::Word(&rest[..end]);
            }
        };
        self.at += symbol.text().len();
        symbol
    }
}
