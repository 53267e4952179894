//! A network of its own for each test executable: nodes of two executables, or of two runs on one machine, cannot take each
//! other's ports, addresses, bridges or rules.
//!
//! Only root can make network namespaces. Without root the executables share the host's network; the tests that start
//! virtual machines need root anyway.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// What a new namespace begins with: loopback, and a link with a default route, as every host has one. Nothing answers there.
/// The program ends with the runner, which may be killed.
const SETUP: &str = r#"
ip link set lo up &&
ip link add uplink0 type veth peer name uplink1 &&
ip address add 198.51.100.2/24 dev uplink0 &&
ip link set uplink1 up &&
ip link set uplink0 up &&
ip route add default via 198.51.100.1 &&
exec setpriv --pdeathsig KILL -- "$0" "$@"
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each executable runs in a network namespace that ends with its last process.
    Namespace,
    /// Namespaces cannot be made here.
    None,
}

impl Isolation {
    /// The best that this host can do.
    pub fn detect() -> Isolation {
        let tried = Isolation::Namespace
            .command(Path::new("true"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match tried {
            Ok(status) if status.success() => Isolation::Namespace,
            _ => Isolation::None,
        }
    }

    /// A command for this program, to which arguments can be added.
    pub fn command(self, program: &Path) -> Command {
        match self {
            Isolation::Namespace => {
                let mut command = Command::new("unshare");
                command.args(["--net", "--", "sh", "-c", SETUP]).arg(program);
                command
            }
            Isolation::None => Command::new(program),
        }
    }
}
