//! An expression as it was written, after macros: what the checker types and the planner turns into a program.
//!
//! Every node has an id, which indexes what later stages find out about it, and a place in the text, which
//! errors point at. How deep a tree may be is bounded where nodes are made ([`MAX_DEPTH`]), so everything that
//! walks one may recurse.

use std::sync::Arc;

/// How deep expressions may nest. Rules in the field stay under twenty; the bound keeps a hostile one from
/// exhausting the stack of whoever walks it.
pub const MAX_DEPTH: usize = 100;

pub type Id = usize;

#[derive(Clone, Debug)]
pub struct Expr {
    pub id: Id,
    pub depth: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Literal(Literal),
    /// A name; a leading dot stays part of it.
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        /// Whether the field is there, instead of what it is.
        test: bool,
    },
    /// Logical operators take any number of arguments, so that a long chain of them stays flat.
    Call {
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    /// `Name{...}`: no rule can name a type that it could make, so only the name is kept, to refuse it.
    Message(String),
    Comprehension(Box<Comprehension>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// `[item]`, or `[?item]` for one that may be left out.
#[derive(Clone, Debug)]
pub struct Item {
    pub expr: Expr,
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

/// The one loop there is: every macro over a list or map is one of these.
#[derive(Clone, Debug)]
pub struct Comprehension {
    pub range: Expr,
    pub variable: String,
    pub second: Option<String>,
    pub accumulator: String,
    pub start: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

impl Comprehension {
    fn parts(&self) -> [&Expr; 5] {
        [&self.range, &self.start, &self.condition, &self.step, &self.result]
    }
}

impl Expr {
    pub fn new(id: Id, kind: Kind) -> Self {
        let mut deepest = 0;
        kind.each_child(&mut |child| deepest = deepest.max(child.depth));
        Self { id, depth: deepest + 1, kind }
    }

    /// Calls `look` on this expression and every one inside it, outermost first.
    pub fn visit<'e>(&'e self, look: &mut impl FnMut(&'e Expr)) {
        look(self);
        self.kind.each_child(&mut |child| child.visit_dyn(look));
    }

    fn visit_dyn<'e>(&'e self, look: &mut dyn FnMut(&'e Expr)) {
        look(self);
        self.kind.each_child(&mut |child| child.visit_dyn(look));
    }
}

impl Kind {
    pub fn each_child<'e>(&'e self, look: &mut dyn FnMut(&'e Expr)) {
        match self {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_) => {}
            Kind::Select { operand, .. } => look(operand),
            Kind::Call { target, args, .. } => {
                target.as_deref().into_iter().chain(args).for_each(look);
            }
            Kind::List(items) => items.iter().for_each(|item| look(&item.expr)),
            Kind::Map(entries) => entries.iter().for_each(|entry| {
                look(&entry.key);
                look(&entry.value);
            }),
            Kind::Comprehension(fold) => fold.parts().into_iter().for_each(look),
        }
    }
}

/// A parsed expression with the places of its nodes.
#[derive(Clone, Debug)]
pub struct Ast {
    pub root: Expr,
    /// For each id, how many characters stand before the node.
    pub places: Vec<usize>,
}
