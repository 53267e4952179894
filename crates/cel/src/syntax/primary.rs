//! What stands by itself: literals, names, calls, lists and maps.

use super::parser::{BEGINNINGS, Parsed, Parser};
use super::token::Token;
use crate::{
    ast::{Entry, Item, Kind, Literal},
    escape::is_keyword,
};

impl Parser {
    pub(super) fn primary(&mut self) -> Parsed {
        let place = self.place();
        let token = self.token().clone();
        match token {
            Token::Literal(literal) => {
                self.advance();
                self.node(place, Kind::Literal(literal))
            }
            Token::Unfit(what) => {
                self.advance();
                let what = if what == "least int" { "int" } else { what };
                self.tell(place, format!("invalid {what} literal"));
                self.node(place, Kind::Literal(Literal::Null))
            }
            Token::Mark("-") if self.negative_literal() => {
                self.advance();
                self.negative(place)
            }
            Token::Mark("(") => {
                self.advance();
                let inner = self.expression()?;
                self.expect(")", "')'")?;
                Ok(inner)
            }
            Token::Mark("[") => {
                self.advance();
                self.list(place)
            }
            Token::Mark("{") => {
                self.advance();
                self.map(place)
            }
            Token::Mark(".") => {
                self.advance();
                let place = self.place();
                match self.token().clone() {
                    Token::Ident(name) => self.named(place, format!(".{name}")),
                    _ => Err(self.unexpected("mismatched", "IDENTIFIER")),
                }
            }
            Token::Ident(name) => self.named(place, name),
            Token::Mark(_) if self.at + 1 < self.tokens.len() && self.at == 0 => {
                Err(self.unexpected("extraneous", BEGINNINGS))
            }
            Token::Mark(_) | Token::Quoted(_) | Token::End => Err(self.unexpected("mismatched", BEGINNINGS)),
        }
    }

    fn negative(&mut self, place: usize) -> Parsed {
        let token = self.token().clone();
        self.advance();
        let literal = match token {
            Token::Literal(Literal::Int(value)) => Literal::Int(-value),
            Token::Literal(Literal::Double(value)) => Literal::Double(-value),
            Token::Unfit("least int") => Literal::Int(i64::MIN),
            _ => {
                let what = if matches!(token, Token::Unfit("double")) { "double" } else { "int" };
                self.tell(place, format!("invalid {what} literal"));
                Literal::Null
            }
        };
        self.node(place, Kind::Literal(literal))
    }

    fn named(&mut self, place: usize, name: String) -> Parsed {
        self.advance();
        if is_keyword(name.trim_start_matches('.')) {
            self.tell(place, format!("reserved identifier: {}", name.trim_start_matches('.')));
        }
        let open = self.place();
        if self.accept("(") {
            let args = self.arguments()?;
            return self.called(open, name, None, args);
        }
        if let Some(message) = self.message_name(&name) {
            return self.message(message);
        }
        self.node(place, Kind::Ident(name))
    }

    /// The name of a message that is made here: `a.b.C{`. Nothing is taken from the text yet.
    fn message_name(&self, first: &str) -> Option<String> {
        let mut name = first.to_owned();
        let mut at = self.at;
        loop {
            match (&self.tokens[at].0, self.tokens.get(at + 1).map(|(token, ..)| token)) {
                (Token::Mark("{"), _) => return Some(name),
                (Token::Mark("."), Some(Token::Ident(next))) => {
                    name.push('.');
                    name.push_str(next);
                    at += 2;
                }
                _ => return None,
            }
        }
    }

    fn message(&mut self, name: String) -> Parsed {
        while !self.is("{") {
            self.advance();
        }
        let place = self.place();
        self.advance();
        while !self.accept("}") {
            self.accept("?");
            let Token::Ident(_) = self.token() else {
                return Err(self.unexpected("mismatched", "{'}', ',', IDENTIFIER}"));
            };
            self.advance();
            self.expect(":", "':'")?;
            self.expression()?;
            if !self.accept(",") {
                self.expect("}", "{'}', ','}")?;
                break;
            }
        }
        self.node(place, Kind::Message(name))
    }

    fn list(&mut self, place: usize) -> Parsed {
        let mut items = Vec::new();
        while !self.accept("]") {
            let optional = self.accept("?");
            items.push(Item { expr: self.expression()?, optional });
            if !self.accept(",") {
                self.expect("]", "{']', ','}")?;
                break;
            }
        }
        self.node(place, Kind::List(items))
    }

    fn map(&mut self, place: usize) -> Parsed {
        let mut entries = Vec::new();
        while !self.accept("}") {
            let optional = self.accept("?");
            let key = self.expression()?;
            self.expect(":", "':'")?;
            entries.push(Entry { key, value: self.expression()?, optional });
            if !self.accept(",") {
                self.expect("}", "{'}', ','}")?;
                break;
            }
        }
        self.node(place, Kind::Map(entries))
    }
}
