//! What there is to run machines with: QEMU and KVM, asked rather than guessed.

use std::path::Path;

use sheaf_hypervisor::{Capabilities, KvmVerdict, kvm};

/// Where Debian has it.
pub const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Found out once at start: neither changes while a node runs without somebody installing something.
#[derive(Clone, Debug)]
pub struct Virtualisation {
    /// QEMU's version, or why there is none to use.
    pub qemu: Result<String, String>,
    pub kvm: KvmVerdict,
}

impl Virtualisation {
    /// Takes about a second, most of it QEMU's start.
    pub async fn examine(qemu: &Path) -> Virtualisation {
        if !qemu.exists() {
            let missing =
                format!("{} is not there; `apt-get install qemu-system-x86` brings it", qemu.display());
            let kvm = KvmVerdict::Unusable { reason: "there is no QEMU to try it with".into() };
            return Virtualisation { qemu: Err(missing), kvm };
        }
        let version = match Capabilities::ask(qemu, None).await {
            Ok(capabilities) => Ok(capabilities.version.to_string()),
            Err(why) => {
                let cause = std::error::Error::source(&why).map(|cause| format!(": {cause}"));
                Err(format!("{why}{}", cause.unwrap_or_default()))
            }
        };
        Virtualisation { qemu: version, kvm: kvm::examine(qemu, None).await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_without_qemu_says_how_to_get_it() {
        let found = Virtualisation::examine(Path::new("/nowhere/qemu-system-x86_64")).await;
        assert!(found.qemu.unwrap_err().contains("apt-get install qemu-system-x86"));
        assert!(!found.kvm.is_usable());
    }

    #[tokio::test]
    async fn qemu_is_asked_for_its_version() {
        let found = Virtualisation::examine(Path::new(QEMU)).await;
        let version = found.qemu.expect("the tests install QEMU");
        assert!(version.split('.').next().unwrap().parse::<u32>().unwrap() >= 7, "{version}");
    }
}
