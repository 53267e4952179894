//! What there is to run machines with: QEMU and KVM, asked rather than guessed.

use std::path::Path;

use sheaf_hypervisor::{Capabilities, KvmVerdict, kvm, user_ids::Identity};

/// Where Debian has it.
pub const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Found out once at start: neither changes while a node runs without somebody installing something.
#[derive(Clone, Debug)]
pub struct Virtualisation {
    /// What QEMU can do, or why there is none to use.
    pub qemu: Result<Capabilities, String>,
    pub kvm: KvmVerdict,
}

impl Virtualisation {
    /// Takes about a second, most of it QEMU's start. `identity` is one that machines run as: what works for root
    /// may not for them.
    pub async fn examine(qemu: &Path, identity: Option<Identity>) -> Virtualisation {
        if !qemu.exists() {
            let missing =
                format!("{} is not there; `apt-get install qemu-system-x86` brings it", qemu.display());
            let kvm = KvmVerdict::Unusable { reason: "there is no QEMU to try it with".into() };
            return Virtualisation { qemu: Err(missing), kvm };
        }
        let capabilities = Capabilities::ask(qemu, identity).await.map_err(|why| {
            let cause = std::error::Error::source(&why).map(|cause| format!(": {cause}"));
            format!("{why}{}", cause.unwrap_or_default())
        });
        Virtualisation { qemu: capabilities, kvm: kvm::examine(qemu, identity).await }
    }
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
    }
}
