//! `--watch`: what there is, and then every change as it comes.
//!
//! Lines are added and never taken back, so it can be read by a program, too. A table gets a line when something changes that it
//! shows; JSON and YAML get every change, as an event of the API's own kind (`type` and `object`), because an object alone does
//! not say that it is gone. After a line that broke, what changed meanwhile is told, deletions included.

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use futures::{Stream, StreamExt};
use kube::{api::DynamicObject, runtime::watcher};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    Format, Refusal, Resource, Session,
    facts::text,
    format::without_owners,
    out::note,
    refusal::{first_cause, is_final},
    session::plural,
    table::{self, Column, Moment},
};

const TRY_AGAIN: Duration = Duration::from_secs(1);
const UID: &str = "/metadata/uid";

/// What is watched, and how it is shown.
pub struct Watched<'a> {
    pub resource: &'a Resource,
    /// An empty one stands for all.
    pub namespace: &'a str,
    pub selector: Option<&'a str>,
    pub columns: &'a [Column],
    /// Of the same namespace and name, put under a field of each row. Who may not see these sees the rest.
    pub joined: Option<(&'a Resource, &'a str)>,
}

type Id = (String, String);
type Changes = Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<DynamicObject>>> + Send>>;

/// Until it is broken off.
pub async fn forever(session: &Session, watched: &Watched<'_>) -> Result<(), Refusal> {
    let mut rows = Followed::of(session, watched.resource, watched.namespace, watched.selector);
    let mut joined = watched
        .joined
        .filter(|_| session.format.is_for_people())
        .map(|(resource, _)| Followed::of(session, resource, watched.namespace, None))
        .map(|joined| Followed { tells: false, ..joined });
    let mut screen = Screen::new(session, watched);
    loop {
        let changed = tokio::select! {
            biased;
            changed = rows.next(session) => changed?,
            changed = next_of(&mut joined, session) => match changed {
                Ok(changed) => changed,
                Err(Refusal::Forbidden { .. }) => {
                    joined = None;
                    Vec::new()
                }
                Err(why) => return Err(why),
            },
        };
        // The first table is whole, or every machine would be told twice.
        if !rows.is_known || joined.as_ref().is_some_and(|joined| !joined.is_known) {
            continue;
        }
        if !screen.is_begun {
            session.is_a_place(watched.resource, watched.namespace, rows.objects.is_empty()).await?;
        }
        let changed = if screen.is_begun { changed } else { rows.objects.keys().cloned().collect() };
        screen.tell(&changed, &rows, joined.as_ref())?;
    }
}

async fn next_of(joined: &mut Option<Followed>, session: &Session) -> Result<Vec<Id>, Refusal> {
    match joined {
        Some(joined) => joined.next(session).await,
        None => std::future::pending().await,
    }
}

/// All objects of a kind, as they stood last.
struct Followed {
    changes: Changes,
    called: String,
    api_version: String,
    kind: String,
    objects: BTreeMap<Id, Value>,
    /// Those that the last change took away. Another one may have taken the name of such a one already.
    gone: BTreeMap<Id, Value>,
    /// What a list that is not over has brought.
    listed: BTreeMap<Id, Value>,
    is_known: bool,
    is_lost: bool,
    /// Whether it says that the connection is lost: one of them is enough.
    tells: bool,
}

impl Followed {
    fn of(session: &Session, resource: &Resource, namespace: &str, selector: Option<&str>) -> Followed {
        let namespace = if resource.is_namespaced { namespace } else { "" };
        let objects =
            sheaf_client::objects::for_watcher(&session.cluster.objects, &resource.for_kube(), namespace);
        let mut config = watcher::Config::default();
        if let Some(selector) = selector {
            config = config.labels(selector);
        }
        Followed {
            changes: watcher::watcher(objects, config).boxed(),
            called: plural(&resource.called),
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            objects: BTreeMap::new(),
            gone: BTreeMap::new(),
            listed: BTreeMap::new(),
            is_known: false,
            is_lost: false,
            tells: true,
        }
    }

    /// Waits for the next thing to happen; answers what it happened to.
    async fn next(&mut self, session: &Session) -> Result<Vec<Id>, Refusal> {
        use watcher::{Error, Event};
        let event = tokio::select! {
            biased;
            event = self.changes.next() => event,
            // A watch that goes on where it was says nothing until something happens.
            () = until_it_answers(session), if self.is_lost => {
                self.is_back(session);
                return Ok(Vec::new());
            }
        };
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(Error::InitialListFailed(why) | Error::WatchStartFailed(why))) if is_final(&why) => {
                return Err(session.refused(why, &format!("watch {}", self.called)));
            }
            broken => {
                if self.tells && !self.is_lost {
                    let why = broken.and_then(Result::err).map_or_else(String::new, |why| first_cause(&why));
                    note(&format!("the connection to {} is lost: {why}; trying again", session.server()));
                }
                self.is_lost = true;
                sleep(TRY_AGAIN).await;
                return Ok(Vec::new());
            }
        };
        if self.is_lost && !matches!(event, Event::Init) {
            self.is_back(session);
        }
        Ok(self.take(event))
    }

    fn is_back(&mut self, session: &Session) {
        self.is_lost = false;
        if self.tells {
            note(&format!("connected to {} again", session.server()));
        }
    }

    fn take(&mut self, event: watcher::Event<DynamicObject>) -> Vec<Id> {
        use watcher::Event;
        self.gone.clear();
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let object = self.dressed(object);
                self.listed.insert(id(&object), object);
                Vec::new()
            }
            Event::InitDone => {
                self.is_known = true;
                let before = std::mem::replace(&mut self.objects, std::mem::take(&mut self.listed));
                let version = |object: &Value| text(object, "/metadata/resourceVersion").to_owned();
                let is_news =
                    |(id, object): &(&Id, &Value)| before.get(*id).map(version) != Some(version(object));
                let mut changed: Vec<Id> =
                    self.objects.iter().filter(is_news).map(|(id, _)| id.clone()).collect();
                for (id, object) in before {
                    match self.objects.get(&id) {
                        None => changed.push(id.clone()),
                        // Another one that took its name.
                        Some(now) if text(now, UID) != text(&object, UID) => {}
                        Some(_) => continue,
                    }
                    self.gone.insert(id, object);
                }
                changed
            }
            Event::Apply(object) => {
                let object = self.dressed(object);
                let id = id(&object);
                self.objects.insert(id.clone(), object);
                vec![id]
            }
            Event::Delete(object) => {
                let object = self.dressed(object);
                let id = id(&object);
                self.objects.remove(&id);
                self.gone.insert(id.clone(), object);
                vec![id]
            }
        }
    }

    /// As it is printed: items of a list do not say what they are.
    fn dressed(&self, object: DynamicObject) -> Value {
        let mut value = serde_json::to_value(object).map(without_owners).unwrap_or_default();
        value["apiVersion"] = self.api_version.clone().into();
        value["kind"] = self.kind.clone().into();
        value
    }
}

async fn until_it_answers(session: &Session) {
    loop {
        sleep(TRY_AGAIN).await;
        if session.cluster.objects.apiserver_version().await.is_ok() {
            return;
        }
    }
}

fn id(object: &Value) -> Id {
    (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

/// What was printed so far.
struct Screen<'a> {
    session: &'a Session,
    watched: &'a Watched<'a>,
    lines: table::Lines,
    /// What stands in the last line of each, ages aside.
    shown: BTreeMap<Id, Vec<table::Cell>>,
    is_begun: bool,
}

impl<'a> Screen<'a> {
    fn new(session: &'a Session, watched: &'a Watched<'a>) -> Screen<'a> {
        let lines = table::Lines::new(table::titles(watched.columns, session.format), session.out);
        Screen { session, watched, lines, shown: BTreeMap::new(), is_begun: false }
    }

    fn tell(&mut self, changed: &[Id], rows: &Followed, joined: Option<&Followed>) -> Result<(), Refusal> {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        if !self.session.format.is_for_people() {
            return changed.iter().try_for_each(|id| self.tell_scripts(id, rows));
        }
        let mut lines = Vec::new();
        let mut gone = Vec::new();
        for id in changed {
            if let Some(object) = rows.gone.get(id)
                && self.shown.remove(id).is_some()
            {
                gone.push(self.cells(&self.joined(object, id, joined), self.session.moment()));
            }
            if let Some(object) = rows.objects.get(id) {
                lines.extend(self.news(id, self.joined(object, id, joined)));
            }
        }
        // Before what is new: the same name may be among both.
        for line in self.lines.add(gone).lines() {
            self.session.out.print(&format!("{line}   (deleted)\n"))?;
        }
        if is_first || !lines.is_empty() {
            self.session.out.print(&self.lines.add(lines))?;
        }
        Ok(())
    }

    fn joined(&self, object: &Value, id: &Id, joined: Option<&Followed>) -> Value {
        let mut row = object.clone();
        if let (Some((_, field)), Some(other)) =
            (self.watched.joined, joined.and_then(|all| all.objects.get(id)))
        {
            row[field] = json!({"status": other["status"]});
        }
        row
    }

    /// The line of it, unless just that line is the last that was printed.
    fn news(&mut self, id: &Id, row: Value) -> Option<Vec<table::Cell>> {
        // At one moment for all, so that nothing is news for being older.
        let timeless = self.cells(&row, Moment { now: 0 });
        if self.shown.get(id) == Some(&timeless) {
            return None;
        }
        self.shown.insert(id.clone(), timeless);
        Some(self.cells(&row, self.session.moment()))
    }

    fn cells(&self, row: &Value, moment: Moment) -> Vec<table::Cell> {
        table::cells(self.watched.columns, self.session.format, row, &moment)
    }

    fn tell_scripts(&mut self, id: &Id, rows: &Followed) -> Result<(), Refusal> {
        if let Some(object) = rows.gone.get(id) {
            self.shown.remove(id);
            self.tell_event("DELETED", object)?;
        }
        match rows.objects.get(id) {
            Some(object) => {
                let was_there = self.shown.insert(id.clone(), Vec::new()).is_some();
                self.tell_event(if was_there { "MODIFIED" } else { "ADDED" }, object)
            }
            None => Ok(()),
        }
    }

    fn tell_event(&self, kind: &str, object: &Value) -> Result<(), Refusal> {
        let event = json!({"type": kind, "object": object});
        let text = match self.session.format {
            Format::Json => format!("{event}\n"),
            Format::Yaml => format!("---\n{}", super::format::yaml(&event)?),
            Format::Name | Format::Table | Format::Wide => {
                let gone = if kind == "DELETED" { " deleted" } else { "" };
                format!("{}{gone}\n", self.watched.resource.name_of(object))
            }
        };
        self.session.out.print(&text)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::runtime::watcher::Event;

    use super::*;

    fn followed() -> Followed {
        Followed {
            changes: stream::pending().boxed(),
            called: "things".to_owned(),
            api_version: "v1".to_owned(),
            kind: "Thing".to_owned(),
            objects: BTreeMap::new(),
            gone: BTreeMap::new(),
            listed: BTreeMap::new(),
            is_known: false,
            is_lost: false,
            tells: false,
        }
    }

    fn thing(name: &str, version: &str) -> DynamicObject {
        made("first", name, version)
    }

    fn made(uid: &str, name: &str, version: &str) -> DynamicObject {
        serde_json::from_value(
            json!({"metadata": {"namespace": "a", "name": name, "uid": uid, "resourceVersion": version}}),
        )
        .unwrap()
    }

    #[test]
    fn a_list_after_a_line_that_broke_tells_what_changed_and_what_is_gone() {
        let mut followed = followed();
        let list = |followed: &mut Followed, things: &[(&str, &str)]| -> Vec<String> {
            followed.take(Event::Init);
            for (name, version) in things {
                assert!(followed.take(Event::InitApply(thing(name, version))).is_empty());
            }
            followed.take(Event::InitDone).into_iter().map(|(_, name)| name).collect()
        };
        assert_eq!(list(&mut followed, &[("kept", "1"), ("changed", "2"), ("gone", "3")]).len(), 3);
        assert!(followed.is_known);
        let news = list(&mut followed, &[("kept", "1"), ("changed", "4"), ("new", "5")]);
        assert_eq!(news, ["changed", "new", "gone"]);
        let gone: Vec<&str> = followed.gone.keys().map(|(_, name)| name.as_str()).collect();
        assert_eq!(gone, ["gone"]);
        assert_eq!(followed.take(Event::Delete(thing("new", "6"))), [("a".to_owned(), "new".to_owned())]);
        assert_eq!(followed.objects.len(), 2);
    }

    #[test]
    fn what_took_the_name_of_another_while_nobody_listened_is_not_that_one() {
        let mut followed = followed();
        for object in [made("first", "same", "1"), made("second", "same", "2")] {
            followed.take(Event::Init);
            followed.take(Event::InitApply(object));
            assert_eq!(followed.take(Event::InitDone).len(), 1);
        }
        let uid = |objects: &BTreeMap<Id, Value>| text(objects.values().next().unwrap(), UID).to_owned();
        assert_eq!((uid(&followed.gone).as_str(), uid(&followed.objects).as_str()), ("first", "second"));
    }
}
