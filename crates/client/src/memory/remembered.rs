//! What is held of one kind.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Weak},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::{
    Kind,
    inbox::{HasMetadata, Inbox},
    known::{Known, Unreadable, version_of},
};
use crate::following::{Listener, NobodyListens, OnlyMetadata};

/// Namespace (empty for what has none) and name.
pub type Place = (String, String);

pub struct Remembered<T> {
    held: RwLock<Held<T>>,
    /// Whether everything there is was held once.
    listed: watch::Sender<bool>,
}

struct Held<T> {
    objects: BTreeMap<Place, Known<T>>,
    /// Objects that there are and nobody can read, and why.
    unreadable: BTreeMap<Place, Unreadable>,
    /// The version that an object got when it was last written from here.
    written: BTreeMap<Place, u64>,
    /// Uids of what went before the watch told of it: what the watch still brings of them is late.
    went: BTreeSet<String>,
    /// All changes up to this one have come.
    version: u64,
    /// Who is told, and under which number.
    readers: Vec<(usize, Weak<Inbox>)>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        let held = Held {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            written: BTreeMap::new(),
            went: BTreeSet::new(),
            version: 0,
            readers: Vec::new(),
        };
        Remembered { held: RwLock::new(held), listed: watch::Sender::new(false) }
    }
}

/// A kind of which changes are told, whatever the kind.
pub trait Remembering: Send + Sync {
    /// Tells of everything there is, and of every change from now on, under the number `watch`.
    fn tell(&self, watch: usize, inbox: &Arc<Inbox>);

    /// For logs.
    fn kind(&self) -> String;

    /// Waits until everything there is was held once.
    fn listed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl<T: Kind> Remembering for Remembered<T> {
    fn tell(&self, watch: usize, inbox: &Arc<Inbox>) {
        let mut held = self.held.write();
        for (place, known) in &held.objects {
            inbox.put(watch, place.clone(), Arc::new(known.clone()));
        }
        held.readers.push((watch, Arc::downgrade(inbox)));
    }

    fn kind(&self) -> String {
        T::kind(&()).into_owned()
    }

    fn listed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            // The sender is ours, so there is no other end.
            let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
        })
    }
}

impl<T: Kind> Remembered<T> {
    /// Whether what is not held is not there (or was not, a moment ago).
    pub fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    pub fn find(&self, namespace: &str, name: &str) -> Result<Option<Known<T>>, Unreadable> {
        let place = (namespace.to_owned(), name.to_owned());
        let held = self.held.read();
        match held.unreadable.get(&place) {
            Some(why) => Err(why.clone()),
            None => Ok(held.objects.get(&place).cloned()),
        }
    }

    /// Everything in a namespace; an empty one stands for all of them.
    pub fn list(&self, namespace: &str) -> Result<Vec<Arc<T>>, Unreadable> {
        let held = self.held.read();
        let inside = |place: &Place| namespace.is_empty() || place.0 == namespace;
        if let Some((_, why)) = held.unreadable.iter().find(|(place, _)| inside(place)) {
            return Err(why.clone());
        }
        let from = (namespace.to_owned(), String::new());
        let objects = held.objects.range(from..).take_while(|(place, _)| inside(place));
        Ok(objects.map(|(_, known)| known.typed.clone()).collect())
    }

    /// Holds what a write answered, unless the watch has come as far already.
    pub fn learn(&self, known: Known<T>) {
        if known.is_gone() {
            return self.forget(known.metadata());
        }
        let mut held = self.held.write();
        let (place, version) = (place_of(known.metadata()), known.version());
        held.hold(known);
        if held.objects.contains_key(&place) {
            let written = held.written.entry(place).or_default();
            *written = version.max(*written);
        }
    }

    /// Holds what the API answered to somebody who asked, unless the watch has come as far already.
    pub fn note(&self, known: Known<T>) {
        self.held.write().hold(known);
    }

    /// Whether somebody else wrote an object after it was last written from here.
    pub fn is_written_over(&self, known: &Known<T>) -> bool {
        let held = self.held.read();
        held.written.get(&place_of(known.metadata())).is_some_and(|own| *own < known.version())
    }

    /// Lets go of an object that went, and of no later one of its name.
    pub fn forget(&self, gone: &ObjectMeta) {
        let mut held = self.held.write();
        let place = place_of(gone);
        if held.objects.get(&place).is_some_and(|known| known.metadata().uid == gone.uid) {
            held.objects.remove(&place);
            held.written.remove(&place);
            held.went.extend(gone.uid.clone());
        }
    }

    pub(super) fn listener(self: &Arc<Self>) -> Hearing<T> {
        Hearing { remembered: self.clone(), list: None }
    }
}

fn place_of(metadata: &ObjectMeta) -> Place {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

impl<T: Kind> Held<T> {
    fn tell(&mut self, place: &Place, about: &Arc<dyn HasMetadata>) {
        self.readers.retain(|(watch, inbox)| {
            let Some(inbox) = inbox.upgrade() else { return false };
            inbox.put(*watch, place.clone(), about.clone());
            true
        });
    }

    /// What came otherwise than by the watch, unless the watch has come as far already.
    fn hold(&mut self, known: Known<T>) {
        let place = place_of(known.metadata());
        let newer = |before: &Known<T>| before.version() < known.version();
        let is_news = known.version() > self.version && !self.went_before(&known);
        if is_news && self.objects.get(&place).is_none_or(newer) {
            self.objects.insert(place, known);
        }
    }

    /// Whether it is known to be gone, so that whatever is still heard of it is late.
    fn went_before(&self, known: &Known<T>) -> bool {
        known.metadata().uid.as_ref().is_some_and(|uid| self.went.contains(uid))
    }

    /// What the watch brought.
    fn take(&mut self, known: Known<T>) {
        let place = place_of(known.metadata());
        self.unreadable.remove(&place);
        let newer = |before: &Known<T>| before.version() <= known.version();
        if !self.went_before(&known) && self.objects.get(&place).is_none_or(newer) {
            let before = self.objects.insert(place.clone(), known.clone());
            if let Some(before) = before.filter(|before| before.metadata().uid != known.metadata().uid) {
                self.written.remove(&place);
                self.tell(&place, &(Arc::new(before) as Arc<dyn HasMetadata>));
            }
        }
        let about: Arc<dyn HasMetadata> = Arc::new(known);
        self.tell(&place, &about);
    }
}

/// The ear of a [`Remembered`].
pub(super) struct Hearing<T> {
    remembered: Arc<Remembered<T>>,
    /// What the list that is under way has brought.
    list: Option<BTreeSet<Place>>,
}

/// Of an object, what tells whether it is held already.
#[derive(Deserialize)]
struct OnlyVersion<'a> {
    #[serde(borrow)]
    metadata: Version<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

impl<T: Kind> Hearing<T> {
    /// What the watch brings of a write from here was read when the write was answered.
    fn held_already(&self, object: &RawValue) -> Option<Known<T>> {
        let OnlyVersion { metadata } = serde_json::from_str(object.get()).ok()?;
        let place = (metadata.namespace.into_owned(), metadata.name.into_owned());
        let held = self.remembered.held.read();
        let known = held.objects.get(&place)?;
        let own = known.metadata();
        let is_same = own.uid.as_deref() == Some(&*metadata.uid)
            && own.resource_version.as_deref() == Some(&*metadata.resource_version);
        is_same.then(|| known.clone())
    }

    /// Those who look at it are told, and find out why it cannot be read.
    fn cannot_read(&mut self, object: &RawValue, why: Unreadable) -> Option<String> {
        let only = serde_json::from_str::<OnlyMetadata>(object.get()).ok()?;
        let (place, version) = (place_of(&only.metadata), only.metadata.resource_version.clone());
        if let Some(list) = &mut self.list {
            list.insert(place.clone());
        }
        let mut held = self.remembered.held.write();
        let newest = held.objects.get(&place).map_or(0, Known::version);
        if newest <= version_of(version.as_deref().unwrap_or_default()) {
            held.objects.remove(&place);
            held.unreadable.insert(place.clone(), why);
        }
        held.tell(&place, &(Arc::new(only) as Arc<dyn HasMetadata>));
        version
    }
}

impl HasMetadata for OnlyMetadata {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl<T: Kind> Listener for Hearing<T> {
    async fn began(&mut self) -> Result<(), NobodyListens> {
        self.list = Some(BTreeSet::new());
        Ok(())
    }

    async fn seen(&mut self, object: &RawValue) -> Result<Option<String>, NobodyListens> {
        let read = match self.list {
            Some(_) => Known::<T>::read_item(object.get()),
            None => self.held_already(object).map_or_else(|| Known::read(object.get()), Ok),
        };
        let known = match read {
            Ok(known) => known,
            Err(why) => return Ok(self.cannot_read(object, why)),
        };
        if let Some(list) = &mut self.list {
            list.insert(place_of(known.metadata()));
        }
        let version = known.metadata().resource_version.clone();
        let mut held = self.remembered.held.write();
        if self.list.is_none() {
            held.version = held.version.max(known.version());
        }
        held.take(known);
        Ok(version)
    }

    async fn gone(&mut self, object: &RawValue) -> Result<Option<String>, NobodyListens> {
        let Ok(only) = serde_json::from_str::<OnlyMetadata>(object.get()) else { return Ok(None) };
        let (place, version) = (place_of(&only.metadata), only.metadata.resource_version.clone());
        let went = version_of(version.as_deref().unwrap_or_default());
        let mut held = self.remembered.held.write();
        held.version = held.version.max(went);
        held.unreadable.remove(&place);
        // What was made under the same name since, and learnt of, stays; those who are told look at that.
        if held.objects.get(&place).is_some_and(|known| known.version() <= went) {
            held.objects.remove(&place);
            held.written.remove(&place);
        }
        if let Some(uid) = &only.metadata.uid {
            held.went.remove(uid);
        }
        held.tell(&place, &(Arc::new(only) as Arc<dyn HasMetadata>));
        Ok(version)
    }

    async fn listed(&mut self, version: &str) -> Result<(), NobodyListens> {
        let Some(list) = self.list.take() else { return Ok(()) };
        let version = version_of(version);
        let mut held = self.remembered.held.write();
        held.version = version;
        // No event from before the list comes any more.
        held.went.clear();
        // What is not in the list is gone, unless it was made after it.
        let gone = |(place, known): &(Place, Known<T>)| !list.contains(place) && known.version() <= version;
        let (went, stay) = std::mem::take(&mut held.objects).into_iter().partition::<Vec<_>, _>(gone);
        held.objects = stay.into_iter().collect();
        held.unreadable.retain(|place, _| list.contains(place));
        for (place, known) in went {
            held.written.remove(&place);
            held.tell(&place, &(Arc::new(known) as Arc<dyn HasMetadata>));
        }
        drop(held);
        self.remembered.listed.send_replace(true);
        Ok(())
    }

    async fn failed(&mut self) -> Result<(), NobodyListens> {
        self.list = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    struct Told {
        remembered: Arc<Remembered<ConfigMap>>,
        hearing: Hearing<ConfigMap>,
        inbox: Arc<Inbox>,
    }

    impl Told {
        fn new() -> Told {
            let remembered = Arc::new(Remembered::default());
            let inbox = Arc::new(Inbox::default());
            remembered.tell(3, &inbox);
            Told { hearing: remembered.listener(), remembered, inbox }
        }

        async fn lists(&mut self, objects: &[(&str, u64)], version: u64) {
            assert!(self.hearing.began().await.is_ok());
            for (name, version) in objects {
                assert!(self.hearing.seen(&raw(name, *version)).await.is_ok());
            }
            assert!(self.hearing.listed(&version.to_string()).await.is_ok());
        }

        async fn sees(&mut self, name: &str, version: u64) {
            assert!(self.hearing.seen(&raw(name, version)).await.is_ok());
        }

        async fn loses(&mut self, name: &str, version: u64) {
            assert!(self.hearing.gone(&raw(name, version)).await.is_ok());
        }

        fn version_of(&self, name: &str) -> Option<u64> {
            self.remembered.find("ns", name).unwrap().map(|known| known.version())
        }

        /// Which objects there are notices of.
        async fn notices(&self) -> Vec<String> {
            let noticed = self.inbox.next().await;
            noticed
                .iter()
                .map(|(watch, about)| format!("{watch} {}", about.metadata().name.as_deref().unwrap()))
                .collect()
        }
    }

    fn raw(name: &str, version: u64) -> Box<RawValue> {
        let metadata = json!({
            "name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": version.to_string(),
        });
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "unknown": 7});
        RawValue::from_string(object.to_string()).unwrap()
    }

    fn known(name: &str, version: u64) -> Known<ConfigMap> {
        Known::read(raw(name, version).get()).unwrap()
    }

    #[tokio::test]
    async fn what_the_watch_brings_of_an_own_write_is_told_and_not_read_again() {
        let mut told = Told::new();
        told.lists(&[], 9).await;
        told.remembered.learn(known("a", 12));
        let written = told.remembered.find("ns", "a").unwrap().unwrap().typed;
        told.sees("a", 12).await;
        let held = told.remembered.find("ns", "a").unwrap().unwrap().typed;
        assert!(Arc::ptr_eq(&written, &held));
        assert_eq!(told.notices().await, ["3 a"]);
        // Another of its name is another one, whatever its version.
        let mut other: serde_json::Value = serde_json::from_str(raw("a", 12).get()).unwrap();
        other["metadata"]["uid"] = "another-uid".into();
        let other = RawValue::from_string(other.to_string()).unwrap();
        assert!(told.hearing.seen(&other).await.is_ok());
        let held = told.remembered.find("ns", "a").unwrap().unwrap().typed;
        assert_eq!(held.metadata.uid.as_deref(), Some("another-uid"));
    }

    #[tokio::test]
    async fn what_was_written_is_held_at_once_and_an_older_event_does_not_undo_it() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        told.remembered.learn(known("a", 12));
        assert_eq!(told.version_of("a"), Some(12));
        told.sees("a", 10).await;
        assert_eq!(told.version_of("a"), Some(12), "an event from before the write is late, not news");
        told.sees("a", 13).await;
        assert_eq!(told.version_of("a"), Some(13));
    }

    #[tokio::test]
    async fn an_object_that_somebody_else_wrote_last_is_known_as_such() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        assert!(!told.remembered.is_written_over(&known("a", 5)), "nobody here ever wrote it");
        told.remembered.learn(known("a", 12));
        assert!(!told.remembered.is_written_over(&known("a", 12)));
        assert!(told.remembered.is_written_over(&known("a", 13)));
        told.loses("a", 14).await;
        assert!(!told.remembered.is_written_over(&known("a", 15)), "another of its name");
    }

    #[tokio::test]
    async fn an_answer_that_comes_after_the_watch_saw_the_object_go_brings_nothing_back() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        told.loses("a", 11).await;
        told.remembered.learn(known("a", 10));
        assert_eq!(told.version_of("a"), None);
    }

    #[tokio::test]
    async fn what_was_made_anew_under_a_name_outlives_the_late_news_of_its_predecessors_end() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        told.remembered.learn(known("a", 12));
        told.loses("a", 11).await;
        assert_eq!(told.version_of("a"), Some(12));
        // And a list that was answered before it was made.
        told.lists(&[], 11).await;
        assert_eq!(told.version_of("a"), Some(12));
        told.lists(&[], 14).await;
        assert_eq!(told.version_of("a"), None);
    }

    #[tokio::test]
    async fn an_object_whose_last_finalizer_a_write_took_is_let_go_with_that_write() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        let mut last: serde_json::Value = serde_json::from_str(raw("a", 10).get()).unwrap();
        last["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        last["metadata"]["finalizers"] = json!(["x"]);
        told.remembered.learn(Known::read(&last.to_string()).unwrap());
        assert_eq!(told.version_of("a"), Some(10), "something holds it");
        last["metadata"]["finalizers"] = json!([]);
        last["metadata"]["resourceVersion"] = json!("11");
        told.remembered.learn(Known::read(&last.to_string()).unwrap());
        assert_eq!(told.version_of("a"), None);
    }

    #[tokio::test]
    async fn every_object_of_a_list_is_told_of_and_each_that_it_no_longer_brings() {
        let mut told = Told::new();
        assert!(!told.remembered.is_listed());
        told.lists(&[("a", 5), ("b", 6)], 9).await;
        assert!(told.remembered.is_listed());
        assert_eq!(told.notices().await, ["3 a", "3 b"]);
        told.lists(&[("b", 6)], 12).await;
        assert_eq!(told.notices().await, ["3 a", "3 b"], "the one because it is gone");
        assert_eq!((told.version_of("a"), told.version_of("b")), (None, Some(6)));
    }

    #[tokio::test]
    async fn who_comes_later_is_told_of_everything_there_is() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        told.sees("b", 10).await;
        told.inbox = Arc::new(Inbox::default());
        told.remembered.tell(4, &told.inbox);
        assert_eq!(told.notices().await, ["4 a", "4 b"]);
    }

    #[tokio::test]
    async fn what_was_let_go_does_not_come_back_with_late_events_of_its_life() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        told.remembered.forget(known("a", 5).metadata());
        told.sees("a", 10).await;
        assert_eq!(told.version_of("a"), None);
        told.remembered.note(known("a", 11));
        assert_eq!(told.version_of("a"), None, "nor with an answer that was on its way");
        told.loses("a", 11).await;
        told.sees("a", 12).await;
        assert_eq!(told.version_of("a"), Some(12));
    }

    #[tokio::test]
    async fn both_are_told_of_when_a_list_brings_another_object_of_a_name() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        told.notices().await;
        assert!(told.hearing.began().await.is_ok());
        let mut other: serde_json::Value = serde_json::from_str(raw("a", 12).get()).unwrap();
        other["metadata"]["uid"] = json!("another");
        assert!(told.hearing.seen(&RawValue::from_string(other.to_string()).unwrap()).await.is_ok());
        assert!(told.hearing.listed("13").await.is_ok());
        let uids: Vec<String> =
            told.inbox.next().await.iter().map(|(_, about)| about.metadata().uid.clone().unwrap()).collect();
        assert_eq!(uids, ["a-uid", "another"]);
    }

    #[tokio::test]
    async fn of_many_changes_of_an_object_one_notice_is_left() {
        let mut told = Told::new();
        told.lists(&[], 9).await;
        for version in 10..20 {
            told.sees("a", version).await;
        }
        assert_eq!(told.notices().await, ["3 a"]);
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_is_an_error_until_it_can() {
        let mut told = Told::new();
        told.lists(&[("a", 5)], 9).await;
        let mut broken: serde_json::Value = serde_json::from_str(raw("a", 10).get()).unwrap();
        broken["data"] = json!(3);
        let broken = RawValue::from_string(broken.to_string()).unwrap();
        assert!(told.hearing.seen(&broken).await.is_ok());
        let why = told.remembered.find("ns", "a").unwrap_err().to_string();
        assert!(why.starts_with("a ConfigMap cannot be read"), "{why}");
        assert!(told.remembered.list("").is_err() && told.remembered.list("other").is_ok());
        told.sees("a", 11).await;
        assert_eq!(told.version_of("a"), Some(11));
    }

    #[test]
    fn a_write_gives_back_what_the_type_does_not_know() {
        assert_eq!(known("a", 1).whole().unwrap().data["unknown"], 7);
    }
}
