//! Finds the type of every part of an expression, and what is wrong with it.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    ast::{Ast, Comprehension, Entry, Expr, Id, Item, Kind, Literal},
    functions::{self, Overload},
    issues::Issues,
    types::Type,
    unify::{Bindings, covers},
};

/// What checking found out about the nodes of a tree.
#[derive(Debug, Default)]
pub struct Checked {
    pub types: Vec<Type>,
    /// The overloads a call may turn out to be; one, unless types are only known when it runs.
    pub overloads: Vec<Vec<&'static str>>,
    /// Selections that are no selections but names (`google.protobuf.Duration`), and every other name.
    pub names: BTreeMap<Id, String>,
    /// Calls of functions whose name has dots: the target is part of the name.
    pub namespaced: BTreeMap<Id, String>,
}

const TOO_LARGE: &str = "expression type size limit exceeded";

/// The types of an expression over `variables`.
pub fn check(ast: &Ast, variables: &BTreeMap<String, Type>) -> Result<Checked, Issues> {
    let mut checker = Checker {
        ast,
        checked: Checked {
            types: vec![Type::Error; ast.places.len()],
            overloads: vec![Vec::new(); ast.places.len()],
            ..Checked::default()
        },
        scopes: vec![variables.clone()],
        bindings: Bindings::default(),
        fresh: 0,
        issues: Issues::default(),
    };
    checker.check(&ast.root);
    if checker.bindings.is_exhausted() {
        let mut issues = Issues::default();
        issues.add(0, TOO_LARGE);
        return Err(issues);
    }
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let Checker { mut checked, bindings, .. } = checker;
    for found in &mut checked.types {
        *found = bindings.resolve(found, true);
    }
    if bindings.is_exhausted() {
        let mut issues = Issues::default();
        issues.add(0, TOO_LARGE);
        return Err(issues);
    }
    Ok(checked)
}

struct Checker<'a> {
    ast: &'a Ast,
    checked: Checked,
    scopes: Vec<BTreeMap<String, Type>>,
    bindings: Bindings,
    fresh: usize,
    issues: Issues,
}

impl Checker<'_> {
    fn tell(&mut self, id: Id, message: String) {
        self.issues.add(self.ast.places[id], message);
    }

    fn set(&mut self, expr: &Expr, found: Type) {
        let mut found = found;
        if self.bindings.is_too_large(&found) {
            found = Type::Error;
            self.tell(expr.id, TOO_LARGE.to_owned());
        }
        self.checked.types[expr.id] = found;
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.checked.types[expr.id].clone()
    }

    fn fresh(&mut self) -> Type {
        self.fresh += 1;
        Type::Param(format!("_var{}", self.fresh - 1).into())
    }

    fn check(&mut self, expr: &Expr) {
        match &expr.kind {
            Kind::Literal(literal) => self.set(expr, type_of_literal(literal)),
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            Kind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            Kind::List(items) => self.list(expr, items),
            Kind::Map(entries) => self.map(expr, entries),
            Kind::Message(name) => {
                self.tell(expr.id, format!("undeclared reference to '{name}' (in container '')"));
                self.set(expr, Type::Error);
            }
            Kind::Comprehension(fold) => self.comprehension(expr, fold),
        }
    }

    fn look_up(&self, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(found) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Some(found.clone());
        }
        let named = Type::named(name)?;
        Some(Type::Type(Some(Arc::new(named))))
    }

    fn ident(&mut self, expr: &Expr, name: &str) {
        match self.look_up(name) {
            Some(found) => self.refer(expr, name, found),
            None => {
                self.set(expr, Type::Error);
                self.tell(expr.id, format!("undeclared reference to '{name}' (in container '')"));
            }
        }
    }

    fn refer(&mut self, expr: &Expr, name: &str, found: Type) {
        self.checked.names.insert(expr.id, name.trim_start_matches('.').to_owned());
        self.set(expr, found);
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) {
        if !test
            && let Some(name) = qualified(expr)
            && let Some(found) = self.look_up(&name)
        {
            return self.refer(expr, &name, found);
        }
        let found = self.field(expr, operand, field, false);
        let found = if test { Type::Bool } else { self.bindings.resolve(&found, false) };
        self.set(expr, found);
    }

    fn field(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.bindings.resolve(&self.type_of(operand), false);
        let (target, was_optional) = operand.unwrap_optional();
        let found = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match object.field(field) {
                Some(declared) => declared.to_type(),
                None => {
                    self.tell(expr.id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Named(_) => {
                self.tell(expr.id, format!("undefined field '{field}'"));
                Type::Error
            }
            Type::Param(_) => {
                self.bindings.agree(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.tell(expr.id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(found) } else { found }
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) {
        if function == "_?._"
            && let [operand, field] = args
            && let Kind::Literal(Literal::String(name)) = &field.kind
        {
            let found = self.field(expr, operand, name, true);
            let found = self.bindings.resolve(&found, false);
            self.set(field, Type::String);
            self.checked.overloads[expr.id] = vec!["select_optional_field"];
            return self.set(expr, found);
        }
        for arg in args {
            self.check(arg);
        }
        let name = function.trim_start_matches('.');
        let Some(target) = target else {
            return match functions::overloads(name) {
                Some(overloads) => self.resolve(expr, name, overloads, None, args),
                None => self.undeclared(expr, function),
            };
        };
        if let Some(prefix) = qualified(target) {
            let full = format!("{prefix}.{function}");
            if let Some(overloads) = functions::overloads(full.trim_start_matches('.')) {
                self.checked.namespaced.insert(expr.id, full.clone());
                return self.resolve(expr, &full, overloads, None, args);
            }
        }
        self.check(target);
        match functions::overloads(function) {
            Some(overloads) => self.resolve(expr, function, overloads, Some(target), args),
            None => self.undeclared(expr, function),
        }
    }

    fn undeclared(&mut self, expr: &Expr, function: &str) {
        self.set(expr, Type::Error);
        self.tell(expr.id, format!("undeclared reference to '{function}' (in container '')"));
    }

    fn resolve(
        &mut self,
        expr: &Expr,
        function: &str,
        overloads: &'static [Overload],
        target: Option<&Expr>,
        args: &[Expr],
    ) {
        if matches!(function, "_&&_" | "_||_") {
            return self.logical(expr, args, overloads);
        }
        let mut given: Vec<Type> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|overload| overload.member == target.is_some()) {
            let (parameters, found) = self.instantiate(overload);
            if !self.bindings.agree_all(&given, &parameters) {
                continue;
            }
            self.checked.overloads[expr.id].push(overload.id);
            let found = self.bindings.resolve(&found, false);
            result = Some(match result {
                None => found,
                Some(before) if before.is_dyn() || before == found => before,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(result) => self.set(expr, result),
            None => {
                for one in &mut given {
                    *one = self.bindings.resolve(one, true);
                }
                let shown = signature(&given, target.is_some());
                self.set(expr, Type::Error);
                self.tell(
                    expr.id,
                    format!("found no matching overload for '{function}' applied to '{shown}'"),
                );
            }
        }
    }

    fn logical(&mut self, expr: &Expr, args: &[Expr], overloads: &'static [Overload]) {
        let mut fine = true;
        for arg in args {
            let found = self.type_of(arg);
            if !self.bindings.agree(&found, &Type::Bool) {
                fine = false;
                let found = self.bindings.resolve(&found, false);
                self.tell(arg.id, format!("expected type 'bool' but found '{found}'"));
            }
        }
        self.set(expr, if fine { Type::Bool } else { Type::Error });
        self.checked.overloads[expr.id] = overloads.iter().map(|overload| overload.id).collect();
    }

    /// The overload's types with parameters that nothing else has.
    fn instantiate(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let mut names: BTreeMap<Arc<str>, Type> = BTreeMap::new();
        let mut all: Vec<Type> = overload.parameters.clone();
        all.push(overload.result.clone());
        let mut renewed: Vec<Type> = all.iter().map(|one| self.renew(one, &mut names)).collect();
        let result = renewed.pop().unwrap_or(Type::Dyn);
        (renewed, result)
    }

    fn renew(&mut self, given: &Type, names: &mut BTreeMap<Arc<str>, Type>) -> Type {
        match given {
            Type::Param(name) => match names.get(name) {
                Some(known) => known.clone(),
                None => {
                    let fresh = self.fresh();
                    names.insert(name.clone(), fresh.clone());
                    fresh
                }
            },
            Type::List(of) => Type::list(self.renew(of, names)),
            Type::Map(key, value) => Type::map(self.renew(key, names), self.renew(value, names)),
            Type::Opaque(name, inner) => {
                Type::Opaque(name.clone(), inner.iter().map(|one| self.renew(one, names)).collect())
            }
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.renew(of, names)))),
            other => other.clone(),
        }
    }

    fn list(&mut self, expr: &Expr, items: &[Item]) {
        let mut joined = None;
        for item in items {
            self.check(&item.expr);
            let found = self.held(&item.expr, item.optional);
            joined = Some(self.join(joined, found));
        }
        let of = joined.unwrap_or_else(|| self.fresh());
        self.set(expr, Type::list(of));
    }

    fn map(&mut self, expr: &Expr, entries: &[Entry]) {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&entry.key);
            let key = self.type_of(&entry.key);
            keys = Some(self.join(keys, key));
            self.check(&entry.value);
            let value = self.held(&entry.value, entry.optional);
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.fresh());
        let value = values.unwrap_or_else(|| self.fresh());
        self.set(expr, Type::map(key, value));
    }

    /// The type of a part of a list or map, without the optional it may come in.
    fn held(&mut self, expr: &Expr, optional: bool) -> Type {
        let found = self.type_of(expr);
        if !optional {
            return found;
        }
        match found.unwrap_optional() {
            (inner, true) => inner.clone(),
            (other, false) => {
                if !other.is_dyn() {
                    let wanted = Type::optional(other.clone());
                    self.tell(expr.id, format!("expected type '{wanted}' but found '{other}'"));
                }
                found
            }
        }
    }

    fn join(&mut self, before: Option<Type>, now: Type) -> Type {
        let Some(before) = before else { return now };
        if !self.bindings.agree(&before, &now) {
            return Type::Dyn;
        }
        if covers(&before, &now) { before } else { now }
    }

    fn comprehension(&mut self, expr: &Expr, fold: &Comprehension) {
        self.check(&fold.range);
        self.check(&fold.start);
        let range = self.bindings.resolve(&self.type_of(&fold.range), false);
        let accumulated = self.type_of(&fold.start);
        self.scopes.push(BTreeMap::from([(fold.accumulator.clone(), accumulated.clone())]));
        let two = fold.second.is_some();
        let (first, second) = match &range {
            Type::List(of) if two => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.bindings.agree(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.tell(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let mut variables = BTreeMap::from([(fold.variable.clone(), first)]);
        if let Some(name) = &fold.second {
            variables.insert(name.clone(), second);
        }
        self.scopes.push(variables);
        self.check(&fold.condition);
        self.must_be(&fold.condition, &Type::Bool);
        self.check(&fold.step);
        self.must_be(&fold.step, &accumulated);
        self.scopes.pop();
        self.check(&fold.result);
        self.scopes.pop();
        let result = self.bindings.resolve(&self.type_of(&fold.result), false);
        self.set(expr, result);
    }

    fn must_be(&mut self, expr: &Expr, wanted: &Type) {
        let found = self.type_of(expr);
        if !self.bindings.agree(wanted, &found) {
            self.tell(expr.id, format!("expected type '{wanted}' but found '{found}'"));
        }
    }
}

fn type_of_literal(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// `a.b.c` as a name.
fn qualified(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.clone()),
        Kind::Select { operand, field, test: false } => Some(format!("{}.{field}", qualified(operand)?)),
        _ => None,
    }
}

fn signature(given: &[Type], member: bool) -> String {
    let shown = |types: &[Type]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match given.split_first() {
        Some((target, args)) if member => format!("{target}.({})", shown(args)),
        _ => format!("({})", shown(given)),
    }
}
