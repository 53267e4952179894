//! What is served under `subresources.kubevirt.io`, what each asks for, and how discovery shows it.

use serde_json::{Value, json};

use super::{GROUP, VERSIONS};
use crate::{
    request::{ResourceRequest, Verb},
    status::ApiError,
};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Power(Power),
    /// A volume that is to come to a machine, or to go.
    Volume {
        comes: bool,
        of_vm: bool,
    },
    Order(Order),
    Question(Question),
    Screenshot,
    /// What an instance used in the last hour. Not in the original.
    History,
    /// A VirtualMachine with what it refers to written out: one that there is, or one that was sent.
    Expanded,
    ExpandSent,
    Stream(Stream),
    /// The same of the instance of a VirtualMachine.
    StreamOfVm(Stream),
}

/// What changes a VirtualMachine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    Start,
    Stop,
    Restart,
}

/// What the node of an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Pause,
    Unpause,
    Reset,
    SoftReboot,
    Freeze,
    Unfreeze,
}

/// What the guest's agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    GuestOsInfo,
    UserList,
    FilesystemList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Console,
    Screen,
    PortForward { port: u16, datagrams: bool },
}

const VMS: &str = "virtualmachines";
const VMIS: &str = "virtualmachineinstances";
/// Belongs to no machine: one is sent.
const EXPAND_VM_SPEC: &str = "expand-vm-spec";

/// Resource, subresource and verb of everything that is served.
const LISTED: &[(&str, &str, Verb)] = &[
    (VMIS, "addvolume", Verb::Update),
    (VMIS, "console", Verb::Get),
    (VMIS, "filesystemlist", Verb::Get),
    (VMIS, "freeze", Verb::Update),
    (VMIS, "guestosinfo", Verb::Get),
    (VMIS, "history", Verb::Get),
    (VMIS, "pause", Verb::Update),
    (VMIS, "portforward", Verb::Get),
    (VMIS, "removevolume", Verb::Update),
    (VMIS, "reset", Verb::Update),
    (VMIS, "softreboot", Verb::Update),
    (VMIS, "unfreeze", Verb::Update),
    (VMIS, "unpause", Verb::Update),
    (VMIS, "userlist", Verb::Get),
    (VMIS, "vnc", Verb::Get),
    (VMIS, "vnc/screenshot", Verb::Get),
    (VMS, "addvolume", Verb::Update),
    (VMS, "expand-spec", Verb::Get),
    (VMS, "portforward", Verb::Get),
    (VMS, "removevolume", Verb::Update),
    (VMS, "restart", Verb::Update),
    (VMS, "start", Verb::Update),
    (VMS, "stop", Verb::Update),
];

/// What the original has and this server does not have yet, and why: whoever asks is told.
const NOT_YET: &[(&str, &str, &str)] = &[
    (VMS, "evacuate/cancel", NO_MIGRATION),
    (VMS, "memorydump", NO_MEMORY_DUMP),
    (VMS, "migrate", NO_MIGRATION),
    (VMS, "objectgraph", NO_OBJECT_GRAPH),
    (VMS, "removememorydump", NO_MEMORY_DUMP),
    (VMIS, "backup", NO_CHECKPOINTS),
    (VMIS, "evacuate/cancel", NO_MIGRATION),
    (VMIS, "objectgraph", NO_OBJECT_GRAPH),
    (VMIS, "redefine-checkpoint", NO_CHECKPOINTS),
    (VMIS, "sev/fetchcertchain", NO_SEV),
    (VMIS, "sev/injectlaunchsecret", NO_SEV),
    (VMIS, "sev/querylaunchmeasurement", NO_SEV),
    (VMIS, "sev/setupsession", NO_SEV),
    (VMIS, "usbredir", "no USB device of a client's can be given to a machine"),
    (VMIS, "vsock", "machines have no vsock"),
];

const NO_MIGRATION: &str =
    "a machine stays on the node where it runs; stop it and start it to have it placed again";
const NO_MEMORY_DUMP: &str = "the memory of a machine cannot be written into a claim";
const NO_OBJECT_GRAPH: &str = "what a machine refers to is in its spec";
const NO_CHECKPOINTS: &str = "backups are made with VirtualMachineBackup of harvesterhci.io";
const NO_SEV: &str = "machines run without SEV";

/// The subresource as roles name it: a port is no part of it.
fn name_of(subresource: &str) -> &str {
    if subresource.starts_with("portforward/") { "portforward" } else { subresource }
}

pub fn as_authorized(request: &ResourceRequest) -> ResourceRequest {
    ResourceRequest { subresource: name_of(&request.subresource).to_owned(), ..request.clone() }
}

/// Whether a request is for something that is served, for numbers of bounded variety.
pub fn is_listed(request: &ResourceRequest) -> bool {
    let name = name_of(&request.subresource);
    request.group == GROUP
        && (is_expansion(request)
            || LISTED.iter().any(|(parent, sub, _)| *parent == request.resource && *sub == name))
}

fn is_expansion(request: &ResourceRequest) -> bool {
    request.resource == EXPAND_VM_SPEC && request.name.is_empty() && request.subresource.is_empty()
}

/// `None` if there is nothing of that name, here or in the original.
pub fn asked(request: &ResourceRequest) -> Result<Option<Asked>, ApiError> {
    let (resource, name) = (request.resource.as_str(), name_of(&request.subresource));
    if request.namespace.is_empty() {
        return Ok(None);
    }
    if is_expansion(request) {
        return match request.verb {
            Verb::Update => Ok(Some(Asked::ExpandSent)),
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    let Some((_, _, verb)) = LISTED.iter().find(|(parent, sub, _)| *parent == resource && *sub == name)
    else {
        let missing = NOT_YET.iter().find(|(parent, sub, _)| *parent == resource && *sub == name);
        return match missing {
            Some((_, _, why)) => Err(ApiError::not_served(&format!("{resource}/{name}"), why)),
            None => Ok(None),
        };
    };
    if request.verb != *verb {
        return Err(ApiError::method_not_allowed());
    }
    Ok(Some(match (resource, name) {
        (VMS, "start") => Asked::Power(Power::Start),
        (VMS, "stop") => Asked::Power(Power::Stop),
        (VMS, "restart") => Asked::Power(Power::Restart),
        (VMS | VMIS, "addvolume") => Asked::Volume { comes: true, of_vm: resource == VMS },
        (VMS | VMIS, "removevolume") => Asked::Volume { comes: false, of_vm: resource == VMS },
        (VMS, "portforward") => Asked::StreamOfVm(port_forward(&request.subresource)?),
        (VMIS, "portforward") => Asked::Stream(port_forward(&request.subresource)?),
        (VMIS, "console") => Asked::Stream(Stream::Console),
        (VMIS, "vnc") => Asked::Stream(Stream::Screen),
        (VMIS, "vnc/screenshot") => Asked::Screenshot,
        (VMIS, "history") => Asked::History,
        (VMS, "expand-spec") => Asked::Expanded,
        (VMIS, "pause") => Asked::Order(Order::Pause),
        (VMIS, "unpause") => Asked::Order(Order::Unpause),
        (VMIS, "reset") => Asked::Order(Order::Reset),
        (VMIS, "softreboot") => Asked::Order(Order::SoftReboot),
        (VMIS, "freeze") => Asked::Order(Order::Freeze),
        (VMIS, "unfreeze") => Asked::Order(Order::Unfreeze),
        (VMIS, "guestosinfo") => Asked::Question(Question::GuestOsInfo),
        (VMIS, "userlist") => Asked::Question(Question::UserList),
        (VMIS, "filesystemlist") => Asked::Question(Question::FilesystemList),
        _ => return Ok(None),
    }))
}

/// `portforward/PORT` or `portforward/PORT/PROTOCOL`.
fn port_forward(subresource: &str) -> Result<Stream, ApiError> {
    let segments: Vec<&str> = subresource.split('/').collect();
    let (port, protocol) = match segments.as_slice() {
        [_, port] => (*port, "tcp"),
        [_, port, protocol] => (*port, *protocol),
        _ => return Err(ApiError::bad_request("port must not be empty")),
    };
    let port = port
        .parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| ApiError::bad_request(format!("{port:?} is not a port")))?;
    match protocol {
        "tcp" => Ok(Stream::PortForward { port, datagrams: false }),
        "udp" => Ok(Stream::PortForward { port, datagrams: true }),
        other => Err(ApiError::bad_request(format!("{other:?} is neither tcp nor udp"))),
    }
}

fn kind_of(resource: &str) -> &'static str {
    if resource == VMS { "VirtualMachine" } else { "VirtualMachineInstance" }
}

/// The group as `/apis` lists it.
pub fn group_body() -> Value {
    let versions: Vec<Value> = VERSIONS
        .iter()
        .map(|version| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version}))
        .collect();
    json!({"name": GROUP, "preferredVersion": versions[0], "versions": versions})
}

/// `/apis/subresources.kubevirt.io/<version>`
pub fn resource_list(version: &str) -> Option<Value> {
    if !VERSIONS.contains(&version) {
        return None;
    }
    let resources: Vec<Value> = LISTED
        .iter()
        .map(|(resource, sub, verb)| {
            json!({
                "name": format!("{resource}/{sub}"), "singularName": "", "namespaced": true,
                "kind": kind_of(resource), "verbs": [verb.as_str()],
            })
        })
        .chain([json!({
            "name": EXPAND_VM_SPEC, "singularName": "", "namespaced": true,
            "kind": kind_of(VMS), "verbs": [Verb::Update.as_str()],
        })])
        .collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"),
        "resources": resources,
    }))
}

/// The group in the aggregated form. There is next to nothing but subresources here, so what they belong to is
/// shown without a kind, as the original's aggregator shows it; clients know to skip it.
pub fn aggregated_body() -> Value {
    let versions: Vec<Value> = VERSIONS
        .iter()
        .map(|version| {
            let expansion = json!({
                "resource": EXPAND_VM_SPEC, "singularResource": "", "scope": "Namespaced",
                "verbs": [Verb::Update.as_str()],
                "responseKind": {"group": GROUP, "version": version, "kind": kind_of(VMS)},
            });
            let parents = [VMIS, VMS].iter().map(|parent| parent_of(parent, version));
            let resources: Vec<Value> = parents.chain([expansion]).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    json!({"metadata": {"name": GROUP}, "versions": versions})
}

fn parent_of(parent: &str, version: &str) -> Value {
    let subresources: Vec<Value> = LISTED
        .iter()
        .filter(|(resource, _, _)| *resource == parent)
        .map(|(resource, sub, verb)| {
            json!({
                "subresource": sub, "verbs": [verb.as_str()],
                "responseKind": {"group": GROUP, "version": version, "kind": kind_of(resource)},
            })
        })
        .collect();
    json!({
        "resource": parent, "singularResource": "", "scope": "Namespaced", "verbs": [],
        "responseKind": {"group": "", "version": "", "kind": ""}, "subresources": subresources,
    })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::{Query, Target, target};

    fn request(method: Method, path: &str) -> ResourceRequest {
        let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/a/{path}");
        match target(&method, &path, &Query::default()) {
            Target::Resource(request) => request,
            Target::Path(path) => panic!("{path}"),
        }
    }

    #[test]
    fn everything_that_is_listed_is_understood() {
        for (resource, sub, verb) in LISTED {
            let method = if *verb == Verb::Get { Method::GET } else { Method::PUT };
            let path = match *sub {
                "portforward" => format!("{resource}/m/portforward/22"),
                sub => format!("{resource}/m/{sub}"),
            };
            assert!(asked(&request(method, &path)).unwrap().is_some(), "{path}");
            assert!(asked(&request(Method::POST, &path)).is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_not_served_yet_is_neither_listed_nor_accepted() {
        for (resource, sub, why) in NOT_YET {
            let refused = asked(&request(Method::PUT, &format!("{resource}/m/{sub}"))).unwrap_err();
            assert!(refused.is_not_found(), "{resource}/{sub}");
            assert!(refused.to_string().ends_with(why), "{refused}");
            assert!(!LISTED.iter().any(|(parent, listed, _)| parent == resource && listed == sub));
        }
        assert_eq!(asked(&request(Method::PUT, "virtualmachines/m/explode")).unwrap(), None);
        assert_eq!(asked(&request(Method::PUT, "expand-vm-spec")).unwrap(), Some(Asked::ExpandSent));
        assert!(asked(&request(Method::GET, "expand-vm-spec")).is_err());
        assert_eq!(asked(&request(Method::PUT, "expand-vm-spec/m")).unwrap(), None);
    }

    #[test]
    fn a_port_is_read_and_is_no_part_of_what_is_authorized() {
        let udp = request(Method::GET, "virtualmachines/m/portforward/53/udp");
        assert_eq!(
            asked(&udp).unwrap(),
            Some(Asked::StreamOfVm(Stream::PortForward { port: 53, datagrams: true }))
        );
        assert_eq!(as_authorized(&udp).subresource, "portforward");
        let tcp = request(Method::GET, "virtualmachineinstances/m/portforward/22");
        assert_eq!(
            asked(&tcp).unwrap(),
            Some(Asked::Stream(Stream::PortForward { port: 22, datagrams: false }))
        );
        for wrong in ["portforward", "portforward/0", "portforward/x", "portforward/22/sctp"] {
            let wrong = request(Method::GET, &format!("virtualmachineinstances/m/{wrong}"));
            assert_eq!(asked(&wrong).unwrap_err().reason(), "BadRequest");
        }
        let screenshot = request(Method::GET, "virtualmachineinstances/m/vnc/screenshot");
        assert_eq!(as_authorized(&screenshot).subresource, "vnc/screenshot");
    }

    #[test]
    fn discovery_lists_both_versions_and_prefers_the_first() {
        assert_eq!(group_body()["preferredVersion"]["groupVersion"], "subresources.kubevirt.io/v1");
        let listed = resource_list("v1alpha3").unwrap();
        let names: Vec<&str> =
            listed["resources"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert!(names.contains(&"virtualmachines/start") && names.contains(&"virtualmachineinstances/vnc"));
        assert!(!names.contains(&"virtualmachines/migrate"));
        assert_eq!(resource_list("v2"), None);
        let aggregated = aggregated_body();
        assert_eq!(aggregated["versions"][0]["resources"][1]["resource"], "virtualmachines");
    }
}
