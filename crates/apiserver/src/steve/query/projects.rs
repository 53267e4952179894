//! `projectsornamespaces=`: objects in some namespaces, or in those of some projects; `projectsornamespaces!=` in all others.

use crate::request::Query;

const KEY: &str = "projectsornamespaces";
/// On a namespace: the project that it is in.
pub const PROJECT_LABEL: &str = "field.cattle.io/projectId";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projects {
    names: Vec<String>,
    negated: bool,
}

impl Projects {
    pub fn read(query: &Query) -> Option<Self> {
        // `projectsornamespaces!=a` is a value of `projectsornamespaces!`.
        let negated = format!("{KEY}!");
        let (text, negated) = match (query.get(KEY), query.get(&negated)) {
            (Some(text), _) => (text, false),
            (None, Some(text)) => (text, true),
            (None, None) => return None,
        };
        let names =
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(Projects { names, negated })
    }

    /// Whether objects of a namespace are shown. `project` is the one it is in, if that is known.
    pub fn pass(&self, namespace: &str, project: Option<&str>) -> bool {
        if namespace.is_empty() {
            return false;
        }
        let is_named = |name: &str| self.names.iter().any(|one| one == name);
        (is_named(namespace) || project.is_some_and(is_named)) != self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_meant_by_its_name_or_by_its_project() {
        let read = |query: &str| Projects::read(&Query::parse(Some(query))).unwrap();
        let some = read("projectsornamespaces=p1,n1");
        assert!(some.pass("n1", None) && some.pass("other", Some("p1")) && !some.pass("other", Some("p2")));
        assert!(!some.pass("", None));
        let others = read("projectsornamespaces!=p1,n1");
        assert!(!others.pass("n1", None) && !others.pass("other", Some("p1")) && others.pass("other", None));
        assert_eq!(Projects::read(&Query::parse(Some("a=b"))), None);
    }
}
