//! The grammar, by recursive descent with a bound on the depth.

use super::{
    macros,
    token::{Token, lex},
};
use crate::{
    ast::{Ast, Expr, Id, Kind, Literal, MAX_DEPTH},
    issues::Issues,
};

/// How many characters an expression may have, as in the original.
const MAX_SIZE: usize = 100_000;

/// How many nodes its tree may have. Macros write some of their arguments twice, so that a short expression could
/// become a tree without end.
const MAX_NODES: usize = 100_000;

pub(super) const BEGINNINGS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Reads one expression. The tree is no deeper than [`MAX_DEPTH`].
pub fn parse(source: &str) -> Result<Ast, Issues> {
    let mut issues = Issues::default();
    let chars: Vec<char> = source.chars().collect();
    if chars.len() > MAX_SIZE {
        let size = chars.len();
        issues.add(0, format!("expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}"));
        return Err(issues);
    }
    let tokens = lex(&chars, &mut issues).tokens;
    let mut parser = Parser { tokens, at: 0, nesting: 0, places: Vec::new(), issues };
    let root = parser.expression().and_then(|root| parser.end().map(|()| root));
    match root {
        Ok(root) if parser.issues.is_empty() => Ok(Ast { root, places: parser.places }),
        _ => Err(parser.issues),
    }
}

/// A syntax error that was told already.
pub(super) struct Told;

pub(super) type Parsed = Result<Expr, Told>;

pub(super) struct Parser {
    pub(super) tokens: Vec<(Token, usize, String)>,
    pub(super) at: usize,
    nesting: usize,
    places: Vec<usize>,
    issues: Issues,
}

impl Parser {
    pub(super) fn token(&self) -> &Token {
        &self.tokens[self.at].0
    }

    pub(super) fn place(&self) -> usize {
        self.tokens[self.at].1
    }

    pub(super) fn is(&self, mark: &str) -> bool {
        matches!(self.token(), Token::Mark(found) if *found == mark)
    }

    pub(super) fn advance(&mut self) {
        // The last token is the end, and stays.
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    pub(super) fn accept(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect(&mut self, mark: &str, wanted: &str) -> Result<(), Told> {
        if self.accept(mark) {
            return Ok(());
        }
        Err(match mark {
            ")" if *self.token() == Token::End => {
                self.fail(&format!("missing ')' at '{}'", self.tokens[self.at].2))
            }
            _ => self.unexpected("mismatched", wanted),
        })
    }

    pub(super) fn unexpected(&mut self, how: &str, wanted: &str) -> Told {
        let found = self.tokens[self.at].2.clone();
        self.fail(&format!("{how} input '{found}' expecting {wanted}"))
    }

    fn fail(&mut self, what: &str) -> Told {
        self.issues.add(self.place(), format!("Syntax error: {what}"));
        Told
    }

    fn end(&mut self) -> Result<(), Told> {
        match self.token() {
            Token::End => Ok(()),
            Token::Ident(_) => Err(self.unexpected("extraneous", "<EOF>")),
            Token::Literal(_) if !self.tokens[self.at].2.starts_with('.') => {
                Err(self.unexpected("extraneous", "<EOF>"))
            }
            _ => Err(self.unexpected("mismatched", "<EOF>")),
        }
    }

    /// An error about a node that stands at `place`, after which the rest of the text is still read.
    pub(super) fn tell(&mut self, place: usize, message: String) {
        self.issues.add(place, message);
    }

    pub(super) fn place_of(&self, id: Id) -> usize {
        self.places[id]
    }

    pub(super) fn node(&mut self, place: usize, kind: Kind) -> Parsed {
        self.grow(place, 1)?;
        let id = self.places.len();
        self.places.push(place);
        let node = Expr::new(id, kind);
        if node.depth > MAX_DEPTH {
            self.issues.add(place, format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            return Err(Told);
        }
        Ok(node)
    }

    /// Makes sure that there may be so many more nodes.
    fn grow(&mut self, place: usize, nodes: usize) -> Result<(), Told> {
        if self.places.len() + nodes <= MAX_NODES {
            return Ok(());
        }
        self.issues.add(place, format!("expression size limit exceeded: {MAX_NODES} nodes"));
        Err(Told)
    }

    pub(super) fn call(&mut self, place: usize, function: &str, args: Vec<Expr>) -> Parsed {
        self.node(place, Kind::Call { function: function.to_owned(), target: None, args })
    }

    pub(super) fn expression(&mut self) -> Parsed {
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            let place = self.place();
            self.issues.add(place, format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            return Err(Told);
        }
        let result = self.conditional();
        self.nesting -= 1;
        result
    }

    fn conditional(&mut self) -> Parsed {
        let condition = self.chain("||", "_||_", |parser| parser.chain("&&", "_&&_", Self::relation))?;
        let place = self.place();
        if !self.accept("?") {
            return Ok(condition);
        }
        let yes = self.chain("||", "_||_", |parser| parser.chain("&&", "_&&_", Self::relation))?;
        self.expect(":", "':'")?;
        let no = self.expression()?;
        self.call(place, "_?_:_", vec![condition, yes, no])
    }

    fn chain(&mut self, mark: &str, function: &str, inner: impl Fn(&mut Self) -> Parsed) -> Parsed {
        let first = inner(self)?;
        let place = self.place();
        if !self.is(mark) {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.accept(mark) {
            terms.push(inner(self)?);
        }
        self.call(place, function, terms)
    }

    fn relation(&mut self) -> Parsed {
        let table = [
            ("<", "_<_"),
            ("<=", "_<=_"),
            (">=", "_>=_"),
            (">", "_>_"),
            ("==", "_==_"),
            ("!=", "_!=_"),
            ("in", "@in"),
        ];
        self.binary(&table, |parser| {
            parser.binary(&[("+", "_+_"), ("-", "_-_")], |parser| {
                parser.binary(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
            })
        })
    }

    fn binary(&mut self, table: &[(&str, &str)], inner: impl Fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = inner(self)?;
        while let Some((mark, function)) = table.iter().find(|(mark, _)| self.is(mark)) {
            let place = self.place();
            self.accept(mark);
            let right = inner(self)?;
            left = self.call(place, function, vec![left, right])?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let place = self.place();
        for (mark, function) in [("!", "!_"), ("-", "-_")] {
            // One minus before a number is the number's own.
            if mark == "-" && self.is(mark) && self.negative_literal() {
                break;
            }
            let mut count = 0usize;
            while self.accept(mark) {
                count += 1;
            }
            if count > 0 {
                let operand = self.member()?;
                // Two of a kind undo each other.
                return if count.is_multiple_of(2) {
                    Ok(operand)
                } else {
                    self.call(place, function, vec![operand])
                };
            }
        }
        self.member()
    }

    /// Whether a minus that stands here belongs to the number after it.
    pub(super) fn negative_literal(&self) -> bool {
        matches!(
            self.tokens.get(self.at + 1).map(|(token, ..)| token),
            Some(
                Token::Literal(Literal::Int(_) | Literal::Double(_))
                    | Token::Unfit("least int" | "int" | "double")
            )
        )
    }

    fn member(&mut self) -> Parsed {
        let mut operand = self.primary()?;
        loop {
            let place = self.place();
            if self.accept(".") {
                operand = self.selected(operand, place)?;
            } else if self.accept("[") {
                let function = if self.accept("?") { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]", "']'")?;
                operand = self.call(place, function, vec![operand, index])?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn selected(&mut self, operand: Expr, place: usize) -> Parsed {
        let optional = self.accept("?");
        let name = match self.token().clone() {
            Token::Ident(name) => name,
            Token::Mark("in") => "in".to_owned(),
            Token::Quoted(name) => {
                self.tell(place, "unsupported syntax: '`'".to_owned());
                name
            }
            _ => {
                let found = self.tokens[self.at].2.clone();
                let found = if found == "<EOF>" { String::new() } else { found };
                return Err(self.fail(&format!("no viable alternative at input '.{found}'")));
            }
        };
        self.advance();
        if optional {
            let place_of_name = place;
            let field = self.node(place_of_name, Kind::Literal(Literal::String(name.into())))?;
            return self.call(place, "_?._", vec![operand, field]);
        }
        let open = self.place();
        if self.accept("(") {
            let args = self.arguments()?;
            return self.called(open, name, Some(operand), args);
        }
        self.node(place, Kind::Select { operand: Box::new(operand), field: name, test: false })
    }

    pub(super) fn arguments(&mut self) -> Result<Vec<Expr>, Told> {
        let mut args = Vec::new();
        if self.accept(")") {
            return Ok(args);
        }
        if *self.token() == Token::End {
            let wanted = BEGINNINGS.replace("'(', ", "'(', ')', ");
            return Err(self.unexpected("mismatched", &wanted));
        }
        loop {
            args.push(self.expression()?);
            if !self.accept(",") {
                break;
            }
        }
        self.expect(")", "{')', ','}")?;
        Ok(args)
    }

    /// A call, or what the macro of its name makes of it.
    pub(super) fn called(
        &mut self,
        place: usize,
        function: String,
        target: Option<Expr>,
        args: Vec<Expr>,
    ) -> Parsed {
        match macros::find(&function, args.len(), target.is_some()) {
            Some(expand) => expand(self, place, target, args),
            None => self.node(place, Kind::Call { function, target: target.map(Box::new), args }),
        }
    }

    /// The same expression with ids of its own, for macros that need one twice.
    pub(super) fn copy(&mut self, expr: &Expr) -> Parsed {
        let mut nodes = 0;
        expr.visit(&mut |_| nodes += 1);
        self.grow(self.place_of(expr.id), nodes)?;
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        Ok(copy)
    }

    fn renumber(&mut self, expr: &mut Expr) {
        let place = self.places[expr.id];
        expr.id = self.places.len();
        self.places.push(place);
        match &mut expr.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_) => {}
            Kind::Select { operand, .. } => self.renumber(operand),
            Kind::Call { target, args, .. } => {
                target.as_deref_mut().into_iter().chain(args).for_each(|part| self.renumber(part));
            }
            Kind::List(items) => items.iter_mut().for_each(|item| self.renumber(&mut item.expr)),
            Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
                self.renumber(&mut entry.key);
                self.renumber(&mut entry.value);
            }),
            Kind::Comprehension(fold) => {
                for part in
                    [&mut fold.range, &mut fold.start, &mut fold.condition, &mut fold.step, &mut fold.result]
                {
                    self.renumber(part);
                }
            }
        }
    }
}
