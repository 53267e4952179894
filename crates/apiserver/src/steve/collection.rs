//! A collection of the facade: the objects of a kind that its reader may list, filtered, sorted and paged.
//!
//! Who may list a kind everywhere gets it with one request, as from the Kubernetes API. Who may only in some namespaces
//! gets those, each with a request of its own; of kinds without namespaces, those objects that they may read one by one.
//!
//! What is shown is dressed while it is written out, so that a large collection is not held as one.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::{
    Ask,
    actions::{self, Look},
    errand::encoded,
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
    request::{Query, ResourceRequest, Verb},
    respond::{self, ApiResponse, Warnings},
    rest::{Call, get::shown, list::Listed, options::limit, selection::Selection},
    status::ApiError,
};

/// So many objects are found at most, unless another number is asked for.
const MOST: usize = 100_000;
/// How a token of ours begins: those of the Kubernetes API never do.
const TOKEN: &str = "after.";

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
        let found = self.find_all(parts, ask, trail).await?;
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
        Ok(respond::collection(&head, "data", items))
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
        if !ask.rights.reach(Verb::Create, kind).is_nowhere() {
            create_types.insert(id.clone(), collection.clone().into());
        }
        let of_collection = actions::of(kind).map(|actions| actions.of_collection()).unwrap_or_default();
        let may = |action: &&actions::Action| {
            action.needs.iter().all(|right| ask.rights.may(&right.request(&ask.named.namespace, "")))
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

    /// All that the reader may list of what was asked for.
    async fn find_all(&self, parts: &Parts, ask: &Ask<'_>, trail: &mut Trail) -> Result<Found, ApiError> {
        let kind = &ask.served.kind;
        let namespace = ask.named.namespace.as_str();
        let most = match limit(ask.query)? {
            0 if ask.query.get("limit").is_some() => usize::MAX,
            0 => MOST,
            most => most,
        };
        let everything = request(Verb::List, kind, namespace, "");
        let reach = match namespace.is_empty() {
            true => ask.rights.reach(Verb::List, kind),
            false => Reach::Everywhere,
        };
        match reach {
            Reach::Everywhere => {
                let query = self.query_of(ask, Some(most).filter(|most| *most != usize::MAX));
                let page = self.page(parts, ask, &everything, &query, Some(trail)).await?;
                let next = page.next.map(|next| next.encode()).unwrap_or_default();
                Ok(Found { objects: page.objects, revision: page.revision, next })
            }
            // Nowhere at all: the one who asked is told what they may not, in the words of the API.
            nowhere if nowhere.is_nowhere() => {
                self.authorize_and_note(ask.user, &everything, ask.query, trail)?;
                Err(ApiError::method_not_allowed())
            }
            Reach::Namespaces(namespaces) => {
                let query = self.query_of(ask, None);
                let (mut objects, mut revision) = (Vec::new(), 0);
                for (n, namespace) in namespaces.iter().enumerate() {
                    let list = request(Verb::List, kind, namespace, "");
                    // One decision stands for all: they are of the same sort.
                    let note = (n == 0).then_some(&mut *trail);
                    let page = self.page(parts, ask, &list, &query, note).await?;
                    revision = page.revision;
                    objects.extend(page.objects);
                }
                cut(objects, revision, most, ask.query)
            }
            Reach::Names(names) => {
                let query = self.query_of(ask, None);
                let seat = self.seat_for(ask.user, trail.in_process, &everything, &query, 0).await?;
                let warnings = Warnings::default();
                let (mut objects, mut revision) = (Vec::new(), 0);
                for name in names {
                    let get = request(Verb::Get, kind, "", &name);
                    self.authorize_and_note(ask.user, &get, &query, trail)?;
                    let call = Call {
                        served: &ask.served,
                        request: &everything,
                        query: &query,
                        headers: &parts.headers,
                        body: Bytes::new(),
                        user: ask.user,
                        seat: seat.as_ref(),
                        warnings: &warnings,
                    };
                    let selection = Selection::parse(&query, kind)?.and_name(&name);
                    let page = self.list_page(&call, &selection).await?;
                    revision = page.revision;
                    objects.extend(page.objects);
                }
                cut(objects, revision, most, ask.query)
            }
        }
    }

    /// One list of the Kubernetes API, as it is before it is written out.
    async fn page(
        &self,
        parts: &Parts,
        ask: &Ask<'_>,
        list: &ResourceRequest,
        query: &Query,
        trail: Option<&mut Trail>,
    ) -> Result<Listed, ApiError> {
        let in_process = trail.as_ref().is_some_and(|trail| trail.in_process);
        match trail {
            Some(trail) => self.authorize_and_note(ask.user, list, query, trail)?,
            None => self.authorize_resource(ask.user, list, query)?,
        }
        if !ask.served.kind.verbs.are_kept() {
            return Err(ApiError::method_not_allowed());
        }
        let seat = self.seat_for(ask.user, in_process, list, query, 0).await?;
        let warnings = Warnings::default();
        let call = Call {
            served: &ask.served,
            request: list,
            query,
            headers: &parts.headers,
            body: Bytes::new(),
            user: ask.user,
            seat: seat.as_ref(),
            warnings: &warnings,
        };
        let selection = Selection::parse(query, &ask.served.kind)?;
        self.list_page(&call, &selection).await
    }

    /// The query of the request that the Kubernetes API gets.
    fn query_of(&self, ask: &Ask<'_>, most: Option<usize>) -> Query {
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
