//! What a request asks for, read from its method, path and query alone.

use std::{net::IpAddr, time::Duration};

use http::Method;
use sheaf_hypervisor::MachineId;

use super::answer::Refusal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Machine {
        id: MachineId,
        ask: Ask,
    },
    /// The bytes of an image, by the image's uid, and what they must add up to.
    Upload {
        image: String,
        checksum: Option<String>,
        /// How much of it was sent before.
        offset: u64,
    },
    /// How much of an upload is here.
    HowFar {
        image: String,
    },
    Download {
        image: String,
    },
    /// The file of a support bundle, by the bundle's uid.
    Bundle {
        uid: String,
    },
}

/// What can be asked of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Console,
    Screen {
        preserve_session: bool,
    },
    PortForward {
        address: IpAddr,
        port: u16,
        protocol: Protocol,
    },
    Pause,
    Unpause,
    Reset,
    SoftReboot,
    /// Thawed by itself after so long, if nobody does it before.
    Freeze {
        thaw_after: Duration,
    },
    Unfreeze,
    GuestOsInfo,
    UserList,
    FilesystemList,
    History,
    /// A screen that went dark wakes when the pointer moves.
    Screenshot {
        move_cursor: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// How long file systems stay frozen when nobody says otherwise, as in KubeVirt.
const THAW_AFTER: Duration = Duration::from_secs(5 * 60);

pub fn target(method: &Method, path: &str, query: &str) -> Result<Target, Refusal> {
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match segments.as_slice() {
        ["v1", "machines", id, rest @ ..] => {
            let id = id.parse().map_err(|why| Refusal::Malformed(format!("{why}")))?;
            Ok(Target::Machine { id, ask: ask(method, rest, query)? })
        }
        ["v1", "images", image, what @ ("upload" | "download")] => {
            if !is_uid(image) {
                return Err(Refusal::Malformed(format!("{image:?} is not a uid")));
            }
            let image = (*image).to_owned();
            match *what {
                "download" => only(method, &Method::GET).map(|()| Target::Download { image }),
                _ if method == Method::GET => Ok(Target::HowFar { image }),
                _ => {
                    only(method, &Method::PUT)?;
                    let checksum = value(query, "checksum").map(str::to_owned);
                    let offset = value(query, "offset").map_or(Ok(0), |text| {
                        text.parse()
                            .map_err(|_| Refusal::Malformed(format!("{text:?} is not a number of bytes")))
                    })?;
                    Ok(Target::Upload { image, checksum, offset })
                }
            }
        }
        ["v1", "bundles", uid, "download"] => {
            if !is_uid(uid) {
                return Err(Refusal::Malformed(format!("{uid:?} is not a uid")));
            }
            only(method, &Method::GET).map(|()| Target::Bundle { uid: (*uid).to_owned() })
        }
        _ => Err(nothing_here()),
    }
}

fn ask(method: &Method, rest: &[&str], query: &str) -> Result<Ask, Refusal> {
    let (wanted, ask) = match rest {
        ["console"] => (Method::GET, Ask::Console),
        ["vnc"] => {
            let preserve_session = value(query, "preserveSession") == Some("true");
            (Method::GET, Ask::Screen { preserve_session })
        }
        ["portforward", address, port, protocol] => {
            let address =
                address.parse().map_err(|_| Refusal::Malformed(format!("{address:?} is not an address")))?;
            let port = port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| Refusal::Malformed(format!("{port:?} is not a port")))?;
            let protocol = match *protocol {
                "tcp" => Protocol::Tcp,
                "udp" => Protocol::Udp,
                other => return Err(Refusal::Malformed(format!("{other:?} is neither tcp nor udp"))),
            };
            (Method::GET, Ask::PortForward { address, port, protocol })
        }
        ["pause"] => (Method::PUT, Ask::Pause),
        ["unpause"] => (Method::PUT, Ask::Unpause),
        ["reset"] => (Method::PUT, Ask::Reset),
        ["softreboot"] => (Method::PUT, Ask::SoftReboot),
        ["freeze"] => {
            let thaw_after = match value(query, "unfreezeTimeoutSeconds") {
                None => THAW_AFTER,
                Some(text) => Duration::from_secs(
                    text.parse()
                        .map_err(|_| Refusal::Malformed(format!("{text:?} is not a number of seconds")))?,
                ),
            };
            (Method::PUT, Ask::Freeze { thaw_after })
        }
        ["unfreeze"] => (Method::PUT, Ask::Unfreeze),
        ["guestosinfo"] => (Method::GET, Ask::GuestOsInfo),
        ["userlist"] => (Method::GET, Ask::UserList),
        ["filesystemlist"] => (Method::GET, Ask::FilesystemList),
        ["history"] => (Method::GET, Ask::History),
        ["screenshot"] => {
            let move_cursor = value(query, "moveCursor") == Some("true");
            (Method::GET, Ask::Screenshot { move_cursor })
        }
        _ => return Err(nothing_here()),
    };
    only(method, &wanted)?;
    Ok(ask)
}

fn only(method: &Method, wanted: &Method) -> Result<(), Refusal> {
    if method == wanted { Ok(()) } else { Err(Refusal::WrongMethod) }
}

fn nothing_here() -> Refusal {
    Refusal::NotHere("nothing is at this path".into())
}

fn value<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == key).map(|(_, v)| v)
}

/// Harmless in a path and in a message.
fn is_uid(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "0b1d9c3e-6d56-4f5f-8d7c-8a2f3f1f0c11";

    fn asked(method: Method, rest: &str) -> Result<Ask, Refusal> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        match target(&method, &format!("/v1/machines/{UID}/{path}"), query)? {
            Target::Machine { id, ask } => {
                assert_eq!(id.as_str(), UID);
                Ok(ask)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_path_asks_for_one_thing() {
        assert_eq!(asked(Method::GET, "console"), Ok(Ask::Console));
        assert_eq!(asked(Method::GET, "history"), Ok(Ask::History));
        assert_eq!(asked(Method::GET, "vnc"), Ok(Ask::Screen { preserve_session: false }));
        assert_eq!(
            asked(Method::GET, "vnc?a=b&preserveSession=true"),
            Ok(Ask::Screen { preserve_session: true })
        );
        assert_eq!(
            asked(Method::GET, "portforward/fd00::1/53/udp"),
            Ok(Ask::PortForward { address: "fd00::1".parse().unwrap(), port: 53, protocol: Protocol::Udp })
        );
        let picture = |move_cursor| Ok(Ask::Screenshot { move_cursor });
        assert_eq!(asked(Method::GET, "screenshot"), picture(false));
        assert_eq!(asked(Method::GET, "screenshot?moveCursor=true"), picture(true));
        assert_eq!(asked(Method::PUT, "freeze"), Ok(Ask::Freeze { thaw_after: THAW_AFTER }));
        assert_eq!(
            asked(Method::PUT, "freeze?unfreezeTimeoutSeconds=7"),
            Ok(Ask::Freeze { thaw_after: Duration::from_secs(7) })
        );
        let image = |method, what: &str, query| target(&method, &format!("/v1/images/{UID}/{what}"), query);
        for (query, checksum, offset) in
            [("", None, 0), ("checksum=ab12", Some("ab12".to_owned()), 0), ("offset=77", None, 77)]
        {
            let upload = Target::Upload { image: UID.into(), checksum, offset };
            assert_eq!(image(Method::PUT, "upload", query), Ok(upload));
        }
        assert_eq!(image(Method::GET, "upload", ""), Ok(Target::HowFar { image: UID.into() }));
        assert_eq!(image(Method::GET, "download", ""), Ok(Target::Download { image: UID.into() }));
        let bundle = |uid: &str| target(&Method::GET, &format!("/v1/bundles/{uid}/download"), "");
        assert_eq!(bundle(UID), Ok(Target::Bundle { uid: UID.into() }));
        assert!(matches!(bundle(".."), Err(Refusal::Malformed(_))));
        assert_eq!(image(Method::PUT, "download", ""), Err(Refusal::WrongMethod));
        assert!(matches!(image(Method::PUT, "upload", "offset=-1"), Err(Refusal::Malformed(_))));
    }

    #[test]
    fn what_is_asked_wrongly_is_refused() {
        assert_eq!(asked(Method::PUT, "console"), Err(Refusal::WrongMethod));
        assert_eq!(asked(Method::GET, "pause"), Err(Refusal::WrongMethod));
        for path in ["portforward/10.0.0.1/0/tcp", "portforward/host/22/tcp", "portforward/10.0.0.1/22/sctp"]
        {
            assert!(matches!(asked(Method::GET, path), Err(Refusal::Malformed(_))), "{path}");
        }
        for path in ["", "future", "console/x", "portforward/10.0.0.1/22"] {
            assert!(matches!(asked(Method::GET, path), Err(Refusal::NotHere(_))), "{path}");
        }
        assert!(matches!(target(&Method::GET, "/v1/machines/..%2f/console", ""), Err(Refusal::Malformed(_))));
        assert!(matches!(target(&Method::PUT, "/v1/images/../upload", ""), Err(Refusal::Malformed(_))));
    }

    proptest! {
        #[test]
        fn no_path_makes_the_reader_panic(path in "(/v1/(machines|images)/)?.{0,60}", query in ".{0,40}") {
            let _ = target(&Method::GET, &path, &query);
        }
    }
}
