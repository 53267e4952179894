//! What there is to run machines with: QEMU, KVM, taps, users of their own; asked rather than guessed.

use std::path::Path;

use sheaf_hypervisor::{Capabilities, KvmVerdict, kvm, user_ids::Identity};
use sheaf_network::user_mode;

/// Where Debian has it.
pub const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Found out once at start: neither changes while a node runs without somebody installing something.
#[derive(Clone, Debug)]
pub struct Virtualisation {
    /// What QEMU can do, or why there is none to use.
    pub qemu: Result<Capabilities, String>,
    pub kvm: KvmVerdict,
    /// Why machines are behind QEMU's user-mode network, where they are.
    pub no_taps: Option<String>,
    /// Why machines are not kept apart from each other and from Sheaf, where they are not.
    pub not_apart: Option<String>,
}

impl Virtualisation {
    /// Takes about a second, most of it QEMU's start. `identity` is one that machines run as: what works for root
    /// may not for them.
    pub async fn examine(qemu: &Path, identity: Option<Identity>) -> Virtualisation {
        let no_taps = user_mode::can_make_taps().err().map(|why| why.to_string());
        let not_apart = identity.is_none().then(not_apart);
        if !qemu.exists() {
            let missing =
                format!("{} is not there; `apt-get install qemu-system-x86` brings it", qemu.display());
            let kvm = KvmVerdict::Unusable { reason: "there is no QEMU to try it with".into() };
            return Virtualisation { qemu: Err(missing), kvm, no_taps, not_apart };
        }
        let capabilities = Capabilities::ask(qemu, identity).await.map_err(|why| {
            let cause = std::error::Error::source(&why).map(|cause| format!(": {cause}"));
            format!("{why}{}", cause.unwrap_or_default())
        });
        Virtualisation { qemu: capabilities, kvm: kvm::examine(qemu, identity).await, no_taps, not_apart }
    }
}

/// Only root can give users away.
fn not_apart() -> String {
    format!(
        "all machines run as user id {}, as Sheaf does, and nothing limits what they use: a guest that breaks out of QEMU \
         has all of them; run Sheaf as root",
        rustix::process::geteuid().as_raw()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_without_qemu_says_how_to_get_it() {
        let found = Virtualisation::examine(Path::new("/nowhere/qemu-system-x86_64"), None).await;
        assert!(found.qemu.unwrap_err().contains("apt-get install qemu-system-x86"));
        assert!(!found.kvm.is_usable());
    }

    #[tokio::test]
    async fn qemu_is_asked_for_its_version() {
        let found = Virtualisation::examine(Path::new(QEMU), None).await;
        let version = found.qemu.expect("the tests install QEMU").version;
        assert!(version.major >= 7, "{version}");
        let why = found.not_apart.expect("there is no identity that machines could have");
        assert!(why.contains("run Sheaf as root"), "{why}");
    }
}
