//! Network interfaces: the end the guest sees and the end the host sees.

use serde_json::{Value, json};

use super::pci;
use crate::{
    descriptors::{DescriptorName, Numbers},
    machine::{Backend, DeviceName, HostForward, Nic, NicModel, Protocol},
};

/// The id of a NIC's device, for whoever wants to unplug it or cut its link.
pub fn device_id(nic: &Nic) -> String {
    format!("nic-{}", nic.name)
}

pub fn backend_id(nic: &Nic) -> String {
    backend_id_of(&nic.name)
}

/// The id of the host's end of the NIC of this name.
pub fn backend_id_of(nic: &DeviceName) -> String {
    format!("net-{nic}")
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
        Backend::User { forwards } => user_mode(nic, forwards),
    }
}

pub fn user_mode(nic: &Nic, forwards: &[HostForward]) -> Value {
    json!({
        "type": "user",
        "id": backend_id(nic),
        "hostfwd": forwards.iter().map(forward).collect::<Vec<Value>>(),
    })
}

/// The host's end of a NIC that is plugged in later: a tap that QEMU was handed under a name.
pub fn late_tap(nic: &Nic, tap: &str) -> Value {
    json!({ "type": "tap", "id": backend_id(nic), "fd": tap, "vhost": false })
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
    device_at(nic, &pci::nic_port(index))
}

/// The guest's end, behind this port.
pub fn device_at(nic: &Nic, port: &str) -> Value {
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
        "bus": port,
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
