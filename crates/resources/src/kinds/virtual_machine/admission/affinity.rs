//! A machine runs only where its networks are: required node affinity, kept by us.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};

/// Labels of nodes under this prefix say which cluster networks they are on.
const PREFIX: &str = "network.harvesterhci.io/";

/// Requires the cluster networks in every term, and drops what was required of networks
/// before: edits by hand are reverted, and a network that was left is no longer asked for.
pub(super) fn require_cluster_networks(affinity: &mut Option<Affinity>, networks: &[String]) {
    let mut whole = affinity.take().unwrap_or_default();
    let mut node = whole.node_affinity.take().unwrap_or_default();
    let required = node.required_during_scheduling_ignored_during_execution.take();
    let mut terms = required.map(|selector| selector.node_selector_terms).unwrap_or_default();
    for term in &mut terms {
        if let Some(expressions) = &mut term.match_expressions {
            expressions.retain(|expression| !expression.key.starts_with(PREFIX));
        }
        term.match_expressions.take_if(|expressions| expressions.is_empty());
    }
    terms.retain(|term| *term != NodeSelectorTerm::default());
    if terms.is_empty() && !networks.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in &mut terms {
        let expressions = networks.iter().map(|network| NodeSelectorRequirement {
            key: format!("{PREFIX}{network}"),
            operator: "In".into(),
            values: Some(vec!["true".into()]),
        });
        // Terms are alternatives, so each of them has to ask for it.
        if !networks.is_empty() {
            term.match_expressions.get_or_insert_default().extend(expressions);
        }
    }
    if !terms.is_empty() {
        node.required_during_scheduling_ignored_during_execution =
            Some(NodeSelector { node_selector_terms: terms });
    }
    whole.node_affinity = (node != NodeAffinity::default()).then_some(node);
    *affinity = (whole != Affinity::default()).then_some(whole);
}
