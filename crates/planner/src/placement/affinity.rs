//! Which nodes an instance wants by their labels, and by who is there already.
//!
//! Of a selector of namespaces only their names are known here, by the label every namespace has.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
};
use serde_json::json;
use sheaf_resources::{kinds::namespace::NAME_LABEL, selector::LabelSelector};

use super::{Neighbour, Wanted, label_of, name_of};

/// Whether one of the terms fits. One that says nothing fits nothing.
pub(super) fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| fits(term, node))
}

fn fits(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_name = |key: &str| (key == "metadata.name").then(|| name_of(node));
    expressions.iter().all(|wanted| holds(wanted, label_of(node, &wanted.key)))
        && fields.iter().all(|wanted| holds(wanted, by_name(&wanted.key)))
}

fn holds(wanted: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let among = found.is_some_and(|found| values.iter().any(|value| value == found));
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = values.first().and_then(|value| number(value));
    match wanted.operator.as_str() {
        "In" => among,
        "NotIn" => !among,
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => found.and_then(number).zip(bound).is_some_and(|(found, bound)| found > bound),
        "Lt" => found.and_then(number).zip(bound).is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}

/// What is wrong with a node because of who is there, or is not.
pub(super) fn objection(
    wanted: &Wanted<'_>,
    node: &Node,
    nodes: &[&Node],
    neighbours: &[Neighbour],
) -> Option<&'static str> {
    let affinity = wanted.spec.affinity.as_ref()?;
    let together = affinity.pod_affinity.as_ref();
    let together =
        together.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_ref());
    for term in together.into_iter().flatten() {
        let near = is_near(term, wanted, node, nodes, neighbours);
        // The first of a group that wants to be together has nobody to go to.
        let first = || {
            !neighbours
                .iter()
                .any(|neighbour| is_meant(term, wanted, &neighbour.namespace, &neighbour.labels))
                && is_meant(term, wanted, wanted.namespace, wanted.labels)
                && label_of(node, &term.topology_key).is_some()
        };
        if !near && !first() {
            return Some("node(s) didn't match pod affinity rules");
        }
    }
    let apart = affinity.pod_anti_affinity.as_ref();
    let apart = apart.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_ref());
    let clash = apart.into_iter().flatten().any(|term| is_near(term, wanted, node, nodes, neighbours));
    clash.then_some("node(s) didn't match pod anti-affinity rules")
}

/// How much a node is preferred: the sum of the weights that speak for it, less those against.
pub(super) fn preference(wanted: &Wanted<'_>, node: &Node, nodes: &[&Node], neighbours: &[Neighbour]) -> i64 {
    let Some(affinity) = &wanted.spec.affinity else { return 0 };
    let by_labels = affinity.node_affinity.iter();
    let by_labels = by_labels.flat_map(|rules| &rules.preferred_during_scheduling_ignored_during_execution);
    let by_labels = by_labels.flatten().filter(|rule| fits(&rule.preference, node));
    let near = |term: &PodAffinityTerm| is_near(term, wanted, node, nodes, neighbours);
    let together = affinity.pod_affinity.iter();
    let together = together.flat_map(|rules| &rules.preferred_during_scheduling_ignored_during_execution);
    let together = together.flatten().filter(|rule| near(&rule.pod_affinity_term));
    let apart = affinity.pod_anti_affinity.iter();
    let apart = apart.flat_map(|rules| &rules.preferred_during_scheduling_ignored_during_execution);
    let apart = apart.flatten().filter(|rule| near(&rule.pod_affinity_term));
    by_labels.map(|rule| i64::from(rule.weight)).sum::<i64>()
        + together.map(|rule| i64::from(rule.weight)).sum::<i64>()
        - apart.map(|rule| i64::from(rule.weight)).sum::<i64>()
}

/// Whether somebody whom the term means is in the same place as `node`: has the same value of its label.
fn is_near(
    term: &PodAffinityTerm,
    wanted: &Wanted<'_>,
    node: &Node,
    nodes: &[&Node],
    neighbours: &[Neighbour],
) -> bool {
    let Some(place) = label_of(node, &term.topology_key) else { return false };
    let place_of = |name: &str| {
        nodes.iter().find(|node| name_of(node) == name).and_then(|node| label_of(node, &term.topology_key))
    };
    neighbours.iter().any(|neighbour| {
        place_of(&neighbour.node) == Some(place)
            && is_meant(term, wanted, &neighbour.namespace, &neighbour.labels)
    })
}

fn is_meant(
    term: &PodAffinityTerm,
    wanted: &Wanted<'_>,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let named = term.namespaces.as_deref().unwrap_or_default();
    let by_selector = term.namespace_selector.as_ref().is_some_and(|selector| {
        let selector = LabelSelector::from_object(&json!(selector));
        let labels = BTreeMap::from([(NAME_LABEL.to_owned(), namespace.to_owned())]);
        selector.is_ok_and(|selector| selector.matches(&labels))
    });
    let own = named.is_empty() && term.namespace_selector.is_none() && namespace == wanted.namespace;
    let selector = LabelSelector::from_object(&json!(term.label_selector));
    (own || by_selector || named.iter().any(|name| name == namespace))
        && selector.is_ok_and(|selector| selector.matches(labels))
}
