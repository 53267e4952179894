//! What a LinkMonitor shows of this node. Only its own entry is written, and only when it differs.

use std::collections::BTreeMap;

use kube::api::Patch;
use serde_json::{Value, json};
use sheaf_client::api;
use sheaf_planner::link::{self, Link};
use sheaf_resources::kinds::link_monitor::LinkMonitor;

use super::{Keeper, LinksError};

impl Keeper {
    pub(super) async fn show_links(
        &self,
        monitor: &LinkMonitor,
        labels: &BTreeMap<String, String>,
        links: &[Link],
    ) -> Result<(), LinksError> {
        let Some(shown) = to_show(monitor, &self.node, labels, links) else { return Ok(()) };
        let name = monitor.metadata.name.as_deref().unwrap_or_default();
        let change = Patch::Merge(json!({"status": {"linkStatus": {&self.node: shown}}}));
        match self.monitors.patch(name, &api::patching(), &change).await {
            Err(why) if !api::is_not_found(&why) => Err(why.into()),
            _ => Ok(()),
        }
    }
}

/// What to write into the entry of a node, where it is not there already; null takes it out.
fn to_show(
    monitor: &LinkMonitor,
    node: &str,
    labels: &BTreeMap<String, String>,
    links: &[Link],
) -> Option<Value> {
    let wanted = monitor.spec.selects(labels).then(|| link::shown(&monitor.spec, links));
    let shown = monitor.status.link_status.get(node);
    (wanted.as_ref() != shown).then(|| json!(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_written_when_it_differs_and_goes_when_the_node_is_not_meant() {
        let links = vec![Link { index: 2, name: "eth0".into(), kind: "device".into(), ..Link::default() }];
        let mut monitor = LinkMonitor::default();
        let none = BTreeMap::new();
        let shown = to_show(&monitor, "a", &none, &links).unwrap();
        assert_eq!(shown, json!([{"name": "eth0", "index": 2, "type": "device", "state": "down"}]));
        let entry = serde_json::from_value(shown).unwrap();
        monitor.status.link_status.insert("a".into(), entry);
        assert_eq!(to_show(&monitor, "a", &none, &links), None, "nothing is written when nothing changed");
        assert!(to_show(&monitor, "b", &none, &links).is_some());
        monitor.spec.node_selector.insert("zone".into(), "1".into());
        assert_eq!(to_show(&monitor, "a", &none, &links), Some(Value::Null));
        assert_eq!(to_show(&monitor, "b", &none, &links), None);
        let chosen = BTreeMap::from([("zone".to_owned(), "1".to_owned())]);
        assert_eq!(to_show(&monitor, "a", &chosen, &links), None);
    }
}
