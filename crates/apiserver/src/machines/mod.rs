//! `subresources.kubevirt.io`: what is done with machines rather than written about them.
//!
//! ```text
//!   start, stop, restart ---------> planner decides --> the objects change, controllers act
//!   addvolume, removevolume ------> the same, and the agent of a running machine's node
//!   pause, reset, guestosinfo ... -> may it be asked? --> the agent of the machine's node
//!   expand-spec, expand-vm-spec ---> answered from what is known, and nothing is written
//!   console, vnc, portforward ----> may it be asked? --> a stream from that agent <--> WebSocket
//! ```
//!
//! Codes, messages and framing are KubeVirt's. The agent is reached as any other host would, also when it is in
//! this very process. What is not served yet is neither listed nor accepted.

pub mod agents;
mod expand;
mod instance;
pub mod listing;
mod power;
mod screen;
pub(crate) mod streams;
mod volumes;
mod websocket;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::request::Parts;
use serde_json::{Value, json};
use sheaf_resources::kinds::{
    virtual_machine::VirtualMachine, virtual_machine_instance::VirtualMachineInstance,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::{
    agents::DialAgent,
    listing::{Asked, Order, Power, Question, Stream},
};
use crate::{
    ApiServer,
    audit::Trail,
    cache::{Resource, place},
    dispatch::no_such_page,
    identity::User,
    negotiate,
    request::{Query, ResourceRequest},
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
};

pub const GROUP: &str = "subresources.kubevirt.io";
/// Best first.
pub const VERSIONS: &[&str] = &["v1", "v1alpha3"];

/// The KubeVirt whose API this is.
const KUBEVIRT_VERSION: &str = "v1.7.0";
const KUBEVIRT: &str = "kubevirt.io";
/// How messages name what they are about, as in the original: in the singular.
const VM: Named<'static> = Named { group: KUBEVIRT, resource: "virtualmachine" };
const VMI: Named<'static> = Named { group: KUBEVIRT, resource: "virtualmachineinstance" };

/// Streams at a time: each has two connections and their buffers.
const MAX_STREAMS: usize = 2048;

/// The way to nodes, and how many streams may be open on it.
pub(crate) struct Nodes {
    agents: Arc<dyn DialAgent>,
    streams: Arc<Semaphore>,
}

impl Nodes {
    pub fn new(agents: Arc<dyn DialAgent>) -> Self {
        Nodes { agents, streams: Arc::new(Semaphore::new(MAX_STREAMS)) }
    }

    /// Held for as long as a stream is open.
    pub fn room_for_a_stream(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            ApiError::too_many_requests(
                "too many streams are open, please try again later",
                Duration::from_secs(5),
            )
        })
    }
}

/// One request about one machine, allowed.
struct MachineCall<'a> {
    parts: &'a mut Parts,
    query: &'a Query,
    namespace: &'a str,
    name: &'a str,
    user: &'a Arc<User>,
    body: Value,
}

impl MachineCall<'_> {
    /// The body may ask that nothing is done but everything is checked.
    fn is_dry_run(&self) -> Result<bool, ApiError> {
        match &self.body["dryRun"] {
            Value::Null => Ok(false),
            Value::Array(stages) if stages.is_empty() => Ok(false),
            Value::Array(stages) if stages.iter().all(|stage| stage == "All") => Ok(true),
            other => Err(ApiError::bad_request(format!("dryRun {other} is not supported: it may be All"))),
        }
    }

    fn whole_number(&self, field: &str) -> Result<Option<i64>, ApiError> {
        match &self.body[field] {
            Value::Null => Ok(None),
            value => value.as_i64().map(Some).ok_or_else(|| {
                ApiError::bad_request(format!("{field} must be a whole number of seconds, not {value}"))
            }),
        }
    }
}

impl ApiServer {
    pub(crate) async fn answer_machines<B>(
        &self,
        parts: &mut Parts,
        body: B,
        query: &Query,
        request: &ResourceRequest,
        user: &Arc<User>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        if !VERSIONS.contains(&request.version.as_str()) {
            return Ok(no_such_page());
        }
        if let Some(answer) = open_to_everybody(parts, request)? {
            return Ok(answer);
        }
        self.authorize_and_note(user, &listing::as_authorized(request), query, trail)?;
        let Some(asked) = listing::asked(request)? else { return Ok(no_such_page()) };
        let (body, _room) = match asked {
            Asked::Power(_) | Asked::Volume { .. } | Asked::Order(_) | Asked::ExpandSent => {
                self.take_body(user, body, trail).await?
            }
            Asked::Question(_) | Asked::Stream(_) | Asked::StreamOfVm(_) => (Bytes::new(), None),
            Asked::Screenshot | Asked::History | Asked::Expanded => (Bytes::new(), None),
        };
        trail.brought(&parts.headers, &body);
        let body = read(&body)?;
        // All else is for the agent to do, and whoever asks waits for it.
        let _seat = match asked {
            Asked::Power(_) | Asked::Volume { .. } => {
                self.seat_for(user, trail.in_process, request, query, 0).await?
            }
            _ => None,
        };
        let call =
            MachineCall { parts, query, namespace: &request.namespace, name: &request.name, user, body };
        self.reach(Freshness::Latest).await?;
        match asked {
            Asked::Power(power) => self.change_power(&call, power).await,
            Asked::Volume { comes, of_vm } => self.change_volumes(&call, comes, of_vm).await,
            Asked::Order(order) => self.give_order(&call, order).await,
            Asked::Question(question) => self.ask_guest(&call, question).await,
            Asked::Screenshot => self.screenshot(&call).await,
            Asked::History => self.history(&call).await,
            Asked::Expanded => self.expanded(&call),
            Asked::ExpandSent => self.expand_sent(&call),
            Asked::Stream(stream) => {
                let instance = self.instance(&call)?;
                self.open_stream(call, &instance, stream).await
            }
            Asked::StreamOfVm(stream) => {
                let instance = self.instance_of_vm(&call)?;
                self.open_stream(call, &instance, stream).await
            }
        }
    }

    /// Resolves when no stream is open any more.
    pub(crate) async fn streams_ended(&self) {
        let all = u32::try_from(MAX_STREAMS).unwrap_or(u32::MAX);
        let _ = self.nodes.streams.acquire_many(all).await;
    }

    fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let object = self.cache.get(&Resource::new(KUBEVIRT, plural), &place(namespace, name))?;
        Some(object.to_value())
    }

    fn find_vm(&self, namespace: &str, name: &str) -> Result<Option<VirtualMachine>, ApiError> {
        let found = self.object("virtualmachines", namespace, name);
        found.map(|value| serde_json::from_value(value).map_err(ApiError::internal)).transpose()
    }

    fn find_instance(&self, namespace: &str, name: &str) -> Result<Option<VirtualMachineInstance>, ApiError> {
        let found = self.object("virtualmachineinstances", namespace, name);
        found.map(|value| serde_json::from_value(value).map_err(ApiError::internal)).transpose()
    }

    fn instance(&self, call: &MachineCall<'_>) -> Result<VirtualMachineInstance, ApiError> {
        self.find_instance(call.namespace, call.name)?.ok_or_else(|| ApiError::not_found(VMI, call.name))
    }

    /// The instance of a machine, which must have one.
    fn instance_of_vm(&self, call: &MachineCall<'_>) -> Result<VirtualMachineInstance, ApiError> {
        if self.object("virtualmachines", call.namespace, call.name).is_none() {
            return Err(ApiError::not_found(VM, call.name));
        }
        self.find_instance(call.namespace, call.name)?
            .ok_or_else(|| ApiError::conflict(VM, call.name, "VMI is not started"))
    }
}

/// Who is not known may see which version this is and that it is well.
fn open_to_everybody(parts: &Parts, request: &ResourceRequest) -> Result<Option<ApiResponse>, ApiError> {
    if !request.namespace.is_empty() || !request.name.is_empty() || !request.verb.only_reads() {
        return Ok(None);
    }
    let document = match request.resource.as_str() {
        "version" => json!({
            "gitVersion": KUBEVIRT_VERSION, "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
            "platform": "linux/amd64",
        }),
        "healthz" => json!({"apiserver": {"connectivity": "ok"}}),
        _ => return Ok(None),
    };
    Ok(Some(respond::value(success::OK, negotiate::format(&parts.headers)?, &document)))
}

/// Clients send their options without saying in what: it is JSON, or nothing.
fn read(body: &Bytes) -> Result<Value, ApiError> {
    let unreadable =
        |why: &dyn fmt::Display| ApiError::bad_request(format!("the body is not JSON of an object: {why}"));
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(json!({}));
    }
    match serde_json::from_slice(body).map_err(|why| unreadable(&why))? {
        Value::Null => Ok(json!({})),
        object @ Value::Object(_) => Ok(object),
        other => Err(unreadable(&other)),
    }
}
