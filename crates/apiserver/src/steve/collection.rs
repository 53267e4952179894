//! A collection of the facade: the objects of a kind that its reader may list, filtered, sorted and paged.
//!
//! Who may list a kind everywhere gets it with one request, as from the Kubernetes API. Who may only in some namespaces
//! gets those, each with a request of its own; of kinds without namespaces, those objects that they may read one by one.
//!
//! What is shown is dressed while it is written out, so that a large collection is not held as one.

use std::{io, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::request::Parts;
use serde_json::{Map, Value, json};
use sheaf_resources::path::encoded;

use super::{
    Ask,
    actions::{self, Look},
    kinds::id_of,
    object::{Chosen, Dresser},
    query::{
        filter::Filters,
        paging::Paging,
        projects::{PROJECT_LABEL, Projects},
        sort::{Key, Sort},
    },
    rights::{Reach, request},
};
use crate::{
    ApiServer,
    audit::Trail,
    cache::object::CachedObject,
    fairness::queues::Seat,
    identity::User,
    request::{Query, ResourceRequest, Verb},
    respond::{self, ApiResponse, Warnings},
    rest::{Call, get::shown, list::Listed, options::limit, selection::Selection},
    status::{ApiError, success},
};

/// So many objects are found at most, unless another number is asked for.
const MOST: usize = 100_000;
/// How a token of ours begins: those of the Kubernetes API never do.
const TOKEN: &str = "after.";

/// What is to be listed.
struct Wanted {
    query: Query,
    reach: Reach,
    most: usize,
}

/// Who is shown what is written out later.
struct Reader {
    server: ApiServer,
    user: Arc<User>,
    in_process: bool,
}

impl Reader {
    async fn seat(&self) -> Result<Option<Seat>, ApiError> {
        self.server.seat_for_path(&self.user, self.in_process, "/v1").await
    }
}

/// What was found, before it is chosen from.
struct Found {
    objects: Vec<Arc<CachedObject>>,
    revision: u64,
    next: String,
}

impl ApiServer {
    pub(super) async fn answer_collection(
        &self,
        parts: &Parts,
        ask: &Ask<'_>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError> {
        let kind = &ask.served.kind;
        trail.about(&request(Verb::List, kind, &ask.named.namespace, ""));
        let (filters, sort) = (Filters::read(ask.query)?, Sort::read(ask.query)?);
        let (paging, projects) = (Paging::read(ask.query)?, Projects::read(ask.query));
        let wanted = self.wanted(ask, trail)?;
        // Held for as long as there is work: what is shown later has seats of its own.
        let list = request(Verb::List, kind, &ask.named.namespace, "");
        let seat = self.seat_for(ask.user, trail.in_process, &list, &wanted.query, 0).await?;
        let found = self.find_all(parts, ask, wanted, seat.as_ref()).await?;
        let dresser = Dresser::new(self, &ask.served, &ask.base, &ask.rights, Chosen::read(ask.query));
        let mut objects = found.objects;
        if let Some(projects) = projects {
            let look = Look::new(self, &ask.rights);
            objects.retain(|object| is_in(&projects, &look, object.namespace()));
        }
        if !filters.is_empty() || !sort.is_empty() {
            let size = objects.iter().map(|object| object.tail.len()).sum();
            objects = self.heavy(size, || {
                let mut kept: Vec<(Key, Arc<CachedObject>)> = Vec::new();
                for object in objects {
                    let mut value = shown(kind, &object);
                    dresser.describe(&mut value);
                    if filters.pass(&value) {
                        kept.push((sort.key(&value), object));
                    }
                }
                kept.sort_by(|one, other| sort.compare(&one.0, &other.0));
                kept.into_iter().map(|(_, object)| object).collect()
            });
        }
        let count = objects.len();
        let (range, pages) = paging.of(count);
        let objects: Vec<_> = objects.drain(range).collect();
        let mut head = self.head(parts, ask, count);
        head.insert("revision".into(), found.revision.to_string().into());
        if let Some(pages) = pages {
            head.insert("pages".into(), pages.into());
        }
        if !found.next.is_empty() {
            head.insert("continue".into(), found.next.into());
        }
        let served = ask.served.clone();
        let items = objects.into_iter().map(move |object| {
            let dressed = dresser.dressed(shown(&served.kind, &object));
            Bytes::from(dressed.to_string())
        });
        let mut pieces = respond::Collection::new(&head, "data", items);
        let first = pieces.next().unwrap_or_default();
        if pieces.is_done() {
            return Ok(respond::json_bytes(success::OK, first));
        }
        let reader = Reader { server: self.clone(), user: ask.user.clone(), in_process: trail.in_process };
        let rest = stream::unfold(Some((pieces, reader)), |state| async move {
            let (mut pieces, reader) = state?;
            // Nothing is left to say it with but the end.
            match reader.seat().await {
                Ok(_seat) => pieces.next().map(|piece| (Ok(piece), Some((pieces, reader)))),
                Err(why) => Some((Err(io::Error::other(why)), None)),
            }
        });
        Ok(respond::json_pieces(stream::once(async { Ok(first) }).chain(rest)))
    }

    /// What is said of a collection beside its objects.
    fn head(&self, parts: &Parts, ask: &Ask<'_>, count: usize) -> Map<String, Value> {
        let kind = &ask.served.kind;
        let id = id_of(kind);
        let collection = ask.base.collection(&ask.served);
        let own = match ask.named.namespace.as_str() {
            "" => collection.clone(),
            namespace => format!("{collection}/{namespace}"),
        };
        let asked = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut create_types = Map::new();
        // In the namespace that is asked for, or in any.
        let makes_some = match ask.named.namespace.as_str() {
            "" => !ask.rights.reach(Verb::Create, kind).is_nowhere(),
            namespace => ask.rights.may_to(Verb::Create, kind, namespace, ""),
        };
        if makes_some {
            create_types.insert(id.clone(), collection.clone().into());
        }
        let of_collection = actions::of(kind).map(|actions| actions.of_collection()).unwrap_or_default();
        let may = |action: &&actions::Action| {
            makes_some
                && action.needs.iter().all(|right| ask.rights.may(&right.request(&ask.named.namespace, "")))
        };
        let offered: Map<String, Value> = of_collection
            .iter()
            .filter(may)
            .map(|action| (action.name.to_owned(), format!("{collection}?action={}", action.name).into()))
            .collect();
        let head = json!({
            "type": "collection", "resourceType": id, "links": {"self": format!("{own}{asked}")},
            "createTypes": create_types, "actions": offered, "count": count,
        });
        match head {
            Value::Object(head) => head,
            _ => Map::new(),
        }
    }

    /// What its reader may list of what was asked for; whoever may nothing is told so, in the words of the API.
    fn wanted(&self, ask: &Ask<'_>, trail: &mut Trail) -> Result<Wanted, ApiError> {
        let kind = &ask.served.kind;
        let namespace = ask.named.namespace.as_str();
        let most = match limit(ask.query)? {
            0 if ask.query.get("limit").is_some() => usize::MAX,
            0 => MOST,
            most => most,
        };
        let reach = match namespace.is_empty() {
            true => ask.rights.reach(Verb::List, kind),
            false => Reach::Everywhere,
        };
        let one = match &reach {
            Reach::Namespaces(namespaces) => namespaces.first().map(String::as_str),
            Reach::Names(names) if !names.is_empty() => None,
            Reach::Everywhere | Reach::Names(_) => Some(namespace),
        };
        // One decision stands for all of the same sort.
        match (&reach, one) {
            (Reach::Names(names), None) => {
                let first = names.first().map(String::as_str).unwrap_or_default();
                self.authorize_and_note(ask.user, &request(Verb::Get, kind, "", first), ask.query, trail)?;
            }
            (_, one) => {
                let list = request(Verb::List, kind, one.unwrap_or_default(), "");
                self.authorize_and_note(ask.user, &list, ask.query, trail)?;
            }
        }
        if !kind.verbs.are_kept() {
            return Err(ApiError::method_not_allowed());
        }
        let limit = Some(most).filter(|most| reach == Reach::Everywhere && *most != usize::MAX);
        Ok(Wanted { query: query_of(ask, limit), reach, most })
    }

    async fn find_all(
        &self,
        parts: &Parts,
        ask: &Ask<'_>,
        wanted: Wanted,
        seat: Option<&Seat>,
    ) -> Result<Found, ApiError> {
        let kind = &ask.served.kind;
        let Wanted { query, reach, most } = wanted;
        // Which requests, and each about which name alone.
        let requests: Vec<(ResourceRequest, Option<String>)> = match reach {
            Reach::Everywhere => {
                let list = request(Verb::List, kind, &ask.named.namespace, "");
                let page = self.page(parts, ask, &list, &query, (None, seat)).await?;
                let next = page.next.map(|next| next.encode()).unwrap_or_default();
                return Ok(Found { objects: page.objects, revision: page.revision, next });
            }
            Reach::Namespaces(namespaces) => {
                namespaces.iter().map(|namespace| (request(Verb::List, kind, namespace, ""), None)).collect()
            }
            Reach::Names(names) => {
                names.into_iter().map(|name| (request(Verb::List, kind, "", ""), Some(name))).collect()
            }
        };
        let (mut objects, mut revision) = (Vec::new(), 0);
        for (list, name) in requests {
            let asked = match &name {
                Some(name) => request(Verb::Get, kind, "", name),
                None => list.clone(),
            };
            self.authorize_resource(ask.user, &asked, &query)?;
            let page = self.page(parts, ask, &list, &query, (name.as_deref(), seat)).await?;
            revision = page.revision;
            objects.extend(page.objects);
        }
        cut(objects, revision, most, ask.query)
    }

    /// One list of the Kubernetes API, as it is before it is written out. That it may be made is known.
    async fn page(
        &self,
        parts: &Parts,
        ask: &Ask<'_>,
        list: &ResourceRequest,
        query: &Query,
        (name, seat): (Option<&str>, Option<&Seat>),
    ) -> Result<Listed, ApiError> {
        let warnings = Warnings::default();
        let call = Call {
            served: &ask.served,
            request: list,
            query,
            headers: &parts.headers,
            body: Bytes::new(),
            user: ask.user,
            seat,
            warnings: &warnings,
        };
        let mut selection = Selection::parse(query, &ask.served.kind)?;
        if let Some(name) = name {
            selection = selection.and_name(name);
        }
        self.list_page(&call, &selection).await
    }
}

/// The query of the request that the Kubernetes API gets.
fn query_of(ask: &Ask<'_>, most: Option<usize>) -> Query {
    let mut pairs = Vec::new();
    for key in ["labelSelector", "fieldSelector"] {
        if let Some(value) = ask.query.get(key) {
            pairs.push(format!("{key}={}", encoded(value)));
        }
    }
    match (most, ask.query.get("continue")) {
        (Some(most), Some(token)) => pairs.push(format!("limit={most}&continue={}", encoded(token))),
        (Some(most), None) => pairs.push(format!("limit={most}")),
        // Of several lists, what was shown is left out afterwards.
        (None, _) => {}
    }
    // A page that belongs to one that was shown before is of the same moment.
    if let (Some(revision), None) = (ask.query.get("revision"), ask.query.get("continue")) {
        pairs.push(format!("resourceVersion={}&resourceVersionMatch=Exact", encoded(revision)));
    }
    Query::parse(Some(&pairs.join("&")))
}

fn is_in(projects: &Projects, look: &Look, namespace: &str) -> bool {
    let object = look.get("", "namespaces", "", namespace);
    let labels = object.as_ref().map(|object| &object["metadata"]["labels"]);
    projects.pass(namespace, labels.and_then(|labels| labels[PROJECT_LABEL].as_str()))
}

/// A part of what was gathered from several lists, in the order of their places.
fn cut(
    mut objects: Vec<Arc<CachedObject>>,
    revision: u64,
    most: usize,
    query: &Query,
) -> Result<Found, ApiError> {
    if let Some(token) = query.get("continue") {
        let wrong = || ApiError::bad_request("continue key is not valid");
        let after =
            token.strip_prefix(TOKEN).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()).ok_or_else(wrong)?;
        let after = String::from_utf8(after).map_err(|_| wrong())?;
        objects.retain(|object| *object.place > *after);
    }
    let more = objects.len() > most;
    objects.truncate(most);
    let last = objects.last().filter(|_| more);
    let next =
        last.map(|last| format!("{TOKEN}{}", URL_SAFE_NO_PAD.encode(&*last.place))).unwrap_or_default();
    Ok(Found { objects, revision, next })
}
