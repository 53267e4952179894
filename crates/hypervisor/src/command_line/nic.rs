//! Network interfaces: the end the guest sees and the end the host sees.

use serde_json::{Value, json};

use super::pci;
use crate::{
    descriptors::{DescriptorName, Numbers},
    machine::{Backend, HostForward, Nic, NicModel, Protocol},
};

/// The id of a NIC's device, for whoever wants to unplug it or cut its link.
pub fn device_id(nic: &Nic) -> String {
    format!("nic-{}", nic.name)
}

pub fn backend_id(nic: &Nic) -> String {
    format!("net-{}", nic.name)
}

pub fn backend(nic: &Nic, numbers: &Numbers) -> Value {
    match &nic.backend {
        Backend::Tap { vhost } => {
            let tap = numbers.of(&DescriptorName::Tap { nic: nic.name.clone() });
            let mut backend =
                json!({ "type": "tap", "id": backend_id(nic), "fd": tap.to_string(), "vhost": vhost });
            if *vhost {
                let vhost = numbers.of(&DescriptorName::Vhost { nic: nic.name.clone() });
                backend["vhostfd"] = vhost.to_string().into();
            }
            backend
        }
        Backend::User { forwards } => json!({
            "type": "user",
            "id": backend_id(nic),
            "hostfwd": forwards.iter().map(forward).collect::<Vec<Value>>(),
        }),
    }
}

fn forward(forward: &HostForward) -> Value {
    let HostForward { protocol, host_address, host_port, guest_port } = forward;
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    json!({ "str": format!("{protocol}:{host_address}:{host_port}-:{guest_port}") })
}

pub fn device(nic: &Nic, index: usize) -> Value {
    let mut device = json!({
        "driver": match nic.model {
            NicModel::Virtio => "virtio-net-pci",
            NicModel::E1000 => "e1000",
            NicModel::E1000e => "e1000e",
            NicModel::Rtl8139 => "rtl8139",
            NicModel::Ne2kPci => "ne2k_pci",
            NicModel::Pcnet => "pcnet",
        },
        "id": device_id(nic),
        "netdev": backend_id(nic),
        "mac": nic.mac.to_string(),
        "bus": pci::nic_port(index),
        "addr": "0x0",
    });
    match nic.boot_index {
        Some(boot_index) => device["bootindex"] = boot_index.into(),
        // A boot ROM that is never used only makes every start slower.
        None => device["romfile"] = "".into(),
    }
    if let Some(mtu) = nic.mtu {
        device["host_mtu"] = mtu.into();
    }
    device
}
