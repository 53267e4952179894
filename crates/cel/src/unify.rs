//! Whether a type fits where another is wanted, and what that says about types yet to be found out.

use std::{cell::Cell, collections::BTreeMap, sync::Arc};

use crate::types::Type;

/// How many parts of types are looked at for one expression. Types share what they are made of, so a short
/// expression can have types of any size (`[1].map(a, {a: a}).map(b, {b: b})` and on).
const MAX_STEPS: u64 = 5_000_000;

/// How many parts one type may have.
const MAX_PARTS: u64 = 1_000;

/// What is known of the types to be found out.
///
/// What was learnt in vain is taken back one by one; a copy per try would make long expressions slow beyond use.
#[derive(Debug, Default)]
pub struct Bindings {
    known: BTreeMap<Arc<str>, Type>,
    /// What the names learnt since the last agreement stood for before.
    undo: Vec<(Arc<str>, Option<Type>)>,
    /// How many parts of types were looked at.
    steps: Cell<u64>,
}

impl Bindings {
    /// Whether the two agree; learns from it only if they do.
    pub fn agree(&mut self, one: &Type, other: &Type) -> bool {
        let fine = self.assignable(one, other);
        self.keep(fine)
    }

    /// The same for as many as there are, all or none.
    pub fn agree_all(&mut self, ones: &[Type], others: &[Type]) -> bool {
        let fine = self.all_assignable(ones, others);
        self.keep(fine)
    }

    /// Whether finding out types took more than it may; nothing that was found out is of use then.
    pub fn is_exhausted(&self) -> bool {
        self.steps.get() > MAX_STEPS
    }

    /// Counts one part looked at; says whether to go on.
    fn step(&self) -> bool {
        self.steps.set(self.steps.get().saturating_add(1));
        !self.is_exhausted()
    }

    /// Whether a type, with everything filled in that is known, has more parts than one may have.
    pub fn is_too_large(&self, given: &Type) -> bool {
        let mut left = MAX_PARTS;
        !self.fits(given, &mut left)
    }

    fn fits(&self, given: &Type, left: &mut u64) -> bool {
        if *left == 0 || !self.step() {
            return false;
        }
        *left -= 1;
        match given {
            Type::Param(name) => self.known.get(name).is_none_or(|known| self.fits(known, left)),
            Type::List(of) | Type::Type(Some(of)) => self.fits(of, left),
            Type::Map(key, value) => self.fits(key, left) && self.fits(value, left),
            Type::Opaque(_, parameters) => parameters.iter().all(|inner| self.fits(inner, left)),
            _ => true,
        }
    }

    fn keep(&mut self, fine: bool) -> bool {
        while let Some((name, before)) = self.undo.pop() {
            match before {
                _ if fine => {}
                Some(before) => drop(self.known.insert(name, before)),
                None => drop(self.known.remove(&name)),
            }
        }
        fine
    }

    fn learn(&mut self, name: &Arc<str>, given: Type) {
        let before = self.known.insert(name.clone(), given);
        self.undo.push((name.clone(), before));
    }

    /// The type with everything filled in that is known; what is not becomes anything, if `settle`.
    pub fn resolve(&self, given: &Type, settle: bool) -> Type {
        if !self.step() {
            return Type::Error;
        }
        match given {
            Type::Param(name) => match self.known.get(name) {
                Some(known) => self.resolve(known, settle),
                None if settle => Type::Dyn,
                None => given.clone(),
            },
            Type::List(of) => Type::list(self.resolve(of, settle)),
            Type::Map(key, value) => Type::map(self.resolve(key, settle), self.resolve(value, settle)),
            Type::Opaque(name, parameters) => Type::Opaque(
                name.clone(),
                parameters.iter().map(|inner| self.resolve(inner, settle)).collect(),
            ),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.resolve(of, settle)))),
            other => other.clone(),
        }
    }

    fn all_assignable(&mut self, ones: &[Type], others: &[Type]) -> bool {
        ones.len() == others.len() && ones.iter().zip(others).all(|(one, other)| self.assignable(one, other))
    }

    fn assignable(&mut self, one: &Type, other: &Type) -> bool {
        if !self.step() {
            return false;
        }
        if let Type::Param(name) = other {
            let (valid, known) = self.substitutes(one, name);
            if valid || known {
                return valid;
            }
        }
        if let Type::Param(name) = one {
            return self.substitutes(other, name).0;
        }
        if one.is_dyn_or_error() || other.is_dyn_or_error() {
            return true;
        }
        match (one, other) {
            (Type::Null, other) => takes_null(other),
            (one, Type::Null) => takes_null(one),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.assignable(a, b),
            (Type::Map(ak, av), Type::Map(bk, bv)) => self.assignable(ak, bk) && self.assignable(av, bv),
            (Type::Opaque(a, ap), Type::Opaque(b, bp)) => a == b && self.all_assignable(ap, bp),
            (a, b) => a == b,
        }
    }

    /// Whether the parameter may stand for the type, and whether it stood for one already.
    fn substitutes(&mut self, given: &Type, name: &Arc<str>) -> (bool, bool) {
        if matches!(given, Type::Param(same) if same == name) {
            return (true, true);
        }
        if let Some(known) = self.known.get(name).cloned() {
            if known == *given {
                return (true, true);
            }
            if !self.assignable(given, &known) {
                return (false, true);
            }
            let wider = if covers(given, &known) { given.clone() } else { known };
            if !self.occurs(name, &wider) {
                self.learn(name, wider);
            }
            return (true, true);
        }
        if self.occurs(name, given) {
            return (false, false);
        }
        self.learn(name, given.clone());
        (true, false)
    }

    fn occurs(&self, name: &Arc<str>, within: &Type) -> bool {
        if !self.step() {
            return true;
        }
        match within {
            Type::Param(other) if other == name => true,
            Type::Param(other) => self.known.get(other).is_some_and(|known| self.occurs(name, known)),
            Type::List(of) => self.occurs(name, of),
            Type::Map(key, value) => self.occurs(name, key) || self.occurs(name, value),
            Type::Opaque(_, parameters) => parameters.iter().any(|inner| self.occurs(name, inner)),
            Type::Type(Some(of)) => self.occurs(name, of),
            _ => false,
        }
    }
}

fn takes_null(given: &Type) -> bool {
    matches!(
        given,
        Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Named(_) | Type::Duration | Type::Timestamp
    )
}

/// Whether the first is the same as the second or says less.
pub fn covers(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::Type(_), Type::Type(_)) => true,
        (Type::List(a), Type::List(b)) => covers(a, b),
        (Type::Map(ak, av), Type::Map(bk, bv)) => covers(ak, bk) && covers(av, bv),
        (Type::Opaque(a, ap), Type::Opaque(b, bp)) => {
            a == b && ap.len() == bp.len() && ap.iter().zip(bp).all(|(a, b)| covers(a, b))
        }
        (a, b) => a == b,
    }
}
