//! Opens streams: whether the instance has what is asked for, and the handshake with the client.
//!
//! Everything that can go wrong is found out before the client is told that it has a stream: after that there is no way
//! left to say why.

use http::{HeaderMap, HeaderValue, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sheaf_resources::kinds::virtual_machine_instance::{VirtualMachineInstance, status::Phase};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{
    MachineCall, Stream, VMI,
    instance::Place,
    screen::may_be_watched,
    websocket::{self, Framing},
};
use crate::{
    ApiServer,
    audit::UntilEnd,
    identity::origin,
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

/// What KubeVirt's clients ask for and are answered: no channel numbers, only payload.
const SUBPROTOCOL: &str = "plain.kubevirt.io";

impl ApiServer {
    pub(super) async fn open_stream(
        &self,
        call: MachineCall<'_>,
        instance: &VirtualMachineInstance,
        stream: Stream,
    ) -> Result<ApiResponse, ApiError> {
        let (what, framing) = match stream {
            Stream::Console => {
                may_be_entered(instance)?;
                ("console".to_owned(), Framing::Bytes)
            }
            Stream::Screen => {
                may_be_watched(instance)?;
                let preserve = call.query.get("preserveSession") == Some("true");
                (format!("vnc?preserveSession={preserve}"), Framing::Bytes)
            }
            Stream::PortForward { port, datagrams } => {
                let address = address_to_dial(instance)?;
                let (protocol, framing) =
                    if datagrams { ("udp", Framing::Datagrams) } else { ("tcp", Framing::Bytes) };
                (format!("portforward/{address}/{port}/{protocol}"), framing)
            }
        };
        let headers = &call.parts.headers;
        if !origin::may_open(call.parts) {
            return Err(ApiError::refused(VMI, call.name, "the request comes from a page of another origin"));
        }
        let accept = accept_key(headers)?;
        let speaks_plain = offers(headers, SUBPROTOCOL);
        let Some(upgrade) = call.parts.extensions.remove::<OnUpgrade>() else {
            return Err(ApiError::bad_request("a WebSocket needs a connection of its own, over HTTP/1.1"));
        };
        let permit = self.nodes.room_for_a_stream()?;
        let agent = self.stream_from_agent(&Place::of(instance)?, &what).await?;

        let stopping = self.stopping.subscribe();
        let out = self.until_out(call.user);
        let (until_end, ending) = UntilEnd::new();
        tokio::spawn(async move {
            let passing = async {
                match upgrade.await {
                    Ok(client) => websocket::bridge(TokioIo::new(client), agent, framing, stopping).await,
                    Err(why) => tracing::debug!(%why, "a client left before its stream began"),
                }
            };
            match out {
                Some(out) => tokio::select! { biased; () = out => {}, () = passing => {} },
                None => passing.await,
            }
            drop((permit, ending));
        });
        let mut response = respond::nothing(success::HANDED_OVER);
        response.extensions_mut().insert(until_end);
        let answer = response.headers_mut();
        answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        answer.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        if speaks_plain {
            answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        }
        Ok(response)
    }
}

fn may_be_entered(instance: &VirtualMachineInstance) -> Result<(), ApiError> {
    let name = instance.metadata.name.as_deref().unwrap_or_default();
    if instance.spec.domain.devices.autoattach_serial_console == Some(false) {
        return Err(ApiError::bad_request("No serial consoles are present."));
    }
    match instance.status.phase {
        Phase::Running => Ok(()),
        Phase::Failed => Err(ApiError::conflict(VMI, name, "VMI is in failed status")),
        _ => Err(ApiError::bad_request("VMI is not running")),
    }
}

/// The first address of an instance that can be talked to.
fn address_to_dial(instance: &VirtualMachineInstance) -> Result<std::net::IpAddr, ApiError> {
    let name = instance.metadata.name.as_deref().unwrap_or_default();
    if instance.status.condition("Paused").is_some() {
        return Err(ApiError::conflict(VMI, name, "VMI is paused"));
    }
    let Some(first) = instance.status.interfaces.first() else {
        return Err(ApiError::bad_request("no network interfaces are present"));
    };
    first.ip_address.parse().map_err(|_| {
        ApiError::bad_request(format!("the network interface {:?} has no address yet", first.name))
    })
}

/// What proves to the client that its request was understood.
pub(crate) fn accept_key(headers: &HeaderMap) -> Result<HeaderValue, ApiError> {
    if !says(headers, header::CONNECTION, "upgrade") || !says(headers, header::UPGRADE, "websocket") {
        return Err(ApiError::bad_request("this is a stream, and the request is not for a WebSocket"));
    }
    if !says(headers, header::SEC_WEBSOCKET_VERSION, "13") {
        return Err(ApiError::bad_request("only version 13 of WebSocket is spoken"));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    // Sixteen bytes in base64.
    if key.len() != 24 {
        return Err(ApiError::bad_request("Sec-WebSocket-Key is missing or malformed"));
    }
    HeaderValue::from_str(&derive_accept_key(key)).map_err(ApiError::internal)
}

fn offers(headers: &HeaderMap, protocol: &str) -> bool {
    tokens(headers, header::SEC_WEBSOCKET_PROTOCOL).any(|offered| offered == protocol)
}

fn says(headers: &HeaderMap, name: header::HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted))
}

fn tokens(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}
