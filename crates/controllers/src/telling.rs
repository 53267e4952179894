//! Tells people what was done, and what is in the way: Events about objects.
//!
//! Telling is a courtesy: what cannot be told is logged and nothing waits for it. What stays true is told once,
//! under a name that follows from what is said, so neither another look nor a restart says it again.

use kube::api::{DynamicObject, PostParams};
use serde_json::json;
use sheaf_client::{
    api::{self, built_in},
    memory::Kind,
};

use crate::{Context, object::Object};

/// Type, reason, message.
pub(crate) type Words<'a> = (&'a str, &'a str, &'a str);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It happened just now.
    Now,
    /// It is so, and was told if it was so before.
    Once,
}

pub(crate) async fn tell<T: Kind>(
    context: &Context,
    component: &str,
    about: &Object<T>,
    (sort, reason, message): Words<'_>,
    how: How,
) {
    let metadata = about.metadata();
    let (name, uid) =
        (metadata.name.as_deref().unwrap_or_default(), metadata.uid.as_deref().unwrap_or_default());
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let event_namespace = if namespace.is_empty() { "default" } else { namespace };
    let clock = &context.world.clock;
    let mark = match how {
        How::Now => u64::try_from(clock.since_epoch().as_nanos()).unwrap_or(u64::MAX),
        How::Once => fingerprint(&[uid, sort, reason, message]),
    };
    // As long as a name may be, with room for what makes it one of its own.
    let short: String = name.chars().take(230).collect();
    let now = clock.rfc3339();
    let resource = built_in("", "v1", "Event", "events");
    let event = DynamicObject::new(&format!("{short}.{mark:016x}"), &resource).within(event_namespace).data(json!({
        "involvedObject": {
            "apiVersion": T::api_version(&()), "kind": T::kind(&()), "namespace": namespace, "name": name, "uid": uid,
            "resourceVersion": metadata.resource_version,
        },
        "reason": reason, "message": message, "type": sort, "count": 1, "firstTimestamp": now,
        "lastTimestamp": now, "source": {"component": component}, "reportingComponent": component,
        "reportingInstance": "",
    }));
    let events = api::objects(&context.client, &resource, event_namespace);
    if let Err(why) = events.create(&PostParams::default(), &event).await
        && !crate::namespace::needs_none(&why)
    {
        tracing::warn!(%why, reason, "an event could not be written");
    }
}

/// The same for the same words, in every process.
fn fingerprint(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    // FNV-1a.
    bytes.fold(0xcbf2_9ce4_8422_2325, |mark, byte| (mark ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_are_another_event() {
        assert_eq!(fingerprint(&["a", "b"]), fingerprint(&["a", "b"]));
        assert_ne!(fingerprint(&["a", "b"]), fingerprint(&["ab", ""]));
    }
}
