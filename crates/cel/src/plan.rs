//! From a checked tree to a program: names become slots, what is constant is worked out, patterns are compiled.
//!
//! A program costs what the original's plan of the same tree costs, so its peculiarities are kept: a chain of
//! fields and indices is one *attribute* with qualifiers, and what is constant costs nothing.

use std::collections::BTreeSet;

use regex::Regex;

use crate::{
    Host,
    ast::{Comprehension, Expr, Kind, Literal},
    checker::Checked,
    fault::Fault,
    library::{self, strings},
    types::Type,
    value::{Key, Map, Text, Value},
};

#[derive(Debug)]
pub enum Node {
    Const(Value<'static>),
    Attribute(Box<Attribute>),
    /// Whether an attribute has a field.
    Test(Box<(Attribute, Step)>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Call(Box<Call>),
    /// Whether a value is one of a few constants.
    OneOf(Box<Node>, BTreeSet<Key>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Fold(Box<Fold>),
}

#[derive(Debug)]
pub struct Attribute {
    pub root: Root,
    pub qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
pub enum Root {
    Slot(usize),
    Value(Node),
    Choice { condition: Node, yes: Node, no: Node },
}

#[derive(Debug)]
pub struct Qualifier {
    pub step: Step,
    pub optional: bool,
}

#[derive(Debug)]
pub enum Step {
    /// A field of an object: its name in rules and in the data.
    Field {
        name: String,
        property: String,
    },
    Key(Value<'static>),
    Computed(Node),
}

#[derive(Debug)]
pub struct Call {
    pub function: String,
    /// Empty if it is only known when it runs.
    pub overload: &'static str,
    pub args: Vec<Node>,
    /// The pattern among the arguments, if it is constant.
    pub pattern: Option<Regex>,
}

#[derive(Debug)]
pub struct Fold {
    pub range: Node,
    pub variable: usize,
    pub second: Option<usize>,
    pub accumulator: usize,
    pub start: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
}

/// A planned expression. The first slots are those of the variables it was planned with.
#[derive(Debug)]
pub struct Plan {
    pub root: Node,
    pub slots: usize,
}

pub fn plan(root: &Expr, checked: &Checked, variables: &[&str], host: &'static Host) -> Result<Plan, Fault> {
    let scope: Vec<(String, usize)> =
        variables.iter().enumerate().map(|(n, name)| (name.to_string(), n)).collect();
    let mut planner = Planner { checked, slots: scope.len(), scope, host };
    let root = planner.node(root)?;
    Ok(Plan { root, slots: planner.slots })
}

struct Planner<'a> {
    checked: &'a Checked,
    scope: Vec<(String, usize)>,
    slots: usize,
    host: &'static Host,
}

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Result<Node, Fault> {
        match &expr.kind {
            Kind::Literal(literal) => Ok(Node::Const(constant(literal))),
            Kind::Ident(_) => self.name(expr),
            Kind::Select { .. } if self.checked.names.contains_key(&expr.id) => self.name(expr),
            Kind::Select { operand, field, test } => {
                let step = self.field(operand, field);
                let mut attribute = self.attribute(operand)?;
                if *test {
                    return Ok(Node::Test(Box::new((attribute, step))));
                }
                attribute.qualifiers.push(Qualifier { step, optional: false });
                Ok(Node::Attribute(Box::new(attribute)))
            }
            Kind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            Kind::List(items) => {
                let mut nodes = Vec::with_capacity(items.len());
                for item in items {
                    nodes.push((self.node(&item.expr)?, item.optional));
                }
                Ok(constant_list(nodes))
            }
            Kind::Map(entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for entry in entries {
                    nodes.push((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional));
                }
                constant_map(nodes)
            }
            Kind::Comprehension(fold) => self.fold(fold),
            Kind::Message(name) => Err(Fault::failed(format!("unknown type: {name}"))),
        }
    }

    /// A variable, or a type by its name.
    fn name(&mut self, expr: &Expr) -> Result<Node, Fault> {
        let name = self.checked.names.get(&expr.id).cloned().unwrap_or_default();
        if let Some((_, slot)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
            let attribute = Attribute { root: Root::Slot(*slot), qualifiers: Vec::new() };
            return Ok(Node::Attribute(Box::new(attribute)));
        }
        match name.as_str() {
            // Functions of these names are no types.
            "duration" | "timestamp" => Err(Fault::failed(format!("reference to undefined type: {name}"))),
            _ => Ok(Node::Const(Value::Type(name.as_str().into()))),
        }
    }

    fn field(&self, operand: &Expr, field: &str) -> Step {
        let (found, _) = self.checked.types[operand.id].unwrap_optional();
        if let Type::Object(object) = found
            && let Some(property) = object.property(field)
        {
            return Step::Field { name: field.to_owned(), property: property.to_owned() };
        }
        Step::Key(Value::text(field))
    }

    /// What qualifiers can be added to.
    fn attribute(&mut self, operand: &Expr) -> Result<Attribute, Fault> {
        Ok(match self.node(operand)? {
            Node::Attribute(attribute) => *attribute,
            other => Attribute { root: Root::Value(other), qualifiers: Vec::new() },
        })
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Result<Node, Fault> {
        match (function, args) {
            ("_[_]" | "_[?_]" | "_?._", [operand, index]) => {
                let mut attribute = self.attribute(operand)?;
                let step = match (function, &index.kind) {
                    ("_?._", Kind::Literal(Literal::String(name))) => self.field(operand, name),
                    _ => match self.node(index)? {
                        Node::Const(key) => Step::Key(key),
                        other => Step::Computed(other),
                    },
                };
                attribute.qualifiers.push(Qualifier { step, optional: function != "_[_]" });
                return Ok(Node::Attribute(Box::new(attribute)));
            }
            ("_?_:_", [condition, yes, no]) => {
                let (condition, yes, no) = (self.node(condition)?, self.node(yes)?, self.node(no)?);
                let root = Root::Choice { condition, yes, no };
                return Ok(Node::Attribute(Box::new(Attribute { root, qualifiers: Vec::new() })));
            }
            _ => {}
        }
        let namespaced = self.checked.namespaced.get(&expr.id);
        let target = target.filter(|_| namespaced.is_none());
        let mut nodes = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            nodes.push(self.node(arg)?);
        }
        let function = namespaced.map_or(function, String::as_str).trim_start_matches('.').to_owned();
        let overload = match self.checked.overloads[expr.id].as_slice() {
            [only] => only,
            _ => "",
        };
        match function.as_str() {
            "_&&_" => Ok(Node::And(nodes)),
            "_||_" => Ok(Node::Or(nodes)),
            _ => self.optimized(Call { function, overload, args: nodes, pattern: None }),
        }
    }

    fn optimized(&self, mut call: Call) -> Result<Node, Fault> {
        if let ("in_list", [_, Node::Const(Value::List(list))]) = (call.overload, call.args.as_slice()) {
            if list.is_empty() {
                return Ok(Node::Const(Value::Bool(false)));
            }
            let keys: Option<BTreeSet<Key>> = list
                .values()?
                .iter()
                .map(|value| match value {
                    Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_) => {
                        value.key()
                    }
                    _ => None,
                })
                .collect();
            if let Some(keys) = keys {
                return Ok(Node::OneOf(Box::new(call.args.swap_remove(0)), keys));
            }
        }
        let converts =
            ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];
        if let ([Node::Const(value)], true) =
            (call.args.as_slice(), converts.contains(&call.function.as_str()))
        {
            return Ok(Node::Const(library::call(&call.function, vec![value.clone()], self.host)?));
        }
        if ["matches", "find", "findAll"].contains(&call.function.as_str())
            && let Some(Node::Const(Value::String(pattern))) = call.args.get(1)
        {
            call.pattern = Some(strings::pattern(pattern, self.host)?);
        }
        Ok(Node::Call(Box::new(call)))
    }

    fn slot(&mut self, name: &str) -> usize {
        // Never used twice: what one loop holds no other overwrites.
        self.slots += 1;
        self.scope.push((name.to_owned(), self.slots - 1));
        self.slots - 1
    }

    fn fold(&mut self, fold: &Comprehension) -> Result<Node, Fault> {
        let start = self.node(&fold.start)?;
        let range = self.node(&fold.range)?;
        let outside = self.scope.len();
        let accumulator = self.slot(&fold.accumulator);
        let inside = self.scope.len();
        let variable = self.slot(&fold.variable);
        let second = fold.second.as_ref().map(|name| self.slot(name));
        let condition = self.node(&fold.condition)?;
        let step = self.node(&fold.step)?;
        self.scope.truncate(inside);
        let result = self.node(&fold.result)?;
        self.scope.truncate(outside);
        let fold = Fold { range, variable, second, accumulator, start, condition, step, result };
        Ok(Node::Fold(Box::new(fold)))
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(flag) => Value::Bool(*flag),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::String(Text::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

fn constant_list(nodes: Vec<(Node, bool)>) -> Node {
    let values: Option<Vec<Value<'static>>> = nodes
        .iter()
        .map(|(node, optional)| match node {
            Node::Const(value) if !optional => Some(value.clone()),
            _ => None,
        })
        .collect();
    match values {
        Some(values) => Node::Const(Value::list(values)),
        None => Node::List(nodes),
    }
}

fn constant_map(nodes: Vec<(Node, Node, bool)>) -> Result<Node, Fault> {
    let values: Option<Vec<(Key, (Value<'static>, Value<'static>))>> = nodes
        .iter()
        .map(|(key, value, optional)| match (key, value) {
            (Node::Const(key), Node::Const(value)) if !optional => {
                Some((key.key()?, (key.clone(), value.clone())))
            }
            _ => None,
        })
        .collect();
    Ok(match values {
        Some(values) => {
            Node::Const(Value::Map(Map::Values(std::sync::Arc::new(values.into_iter().collect()))))
        }
        None => Node::Map(nodes),
    })
}
