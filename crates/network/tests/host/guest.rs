//! A guest: a namespace whose `eth0` is wired to a tap of the node, as QEMU would do it.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    process::Output,
    thread,
};

use sheaf_network::Mac;
use tun_rs::{DeviceBuilder, Layer};

use crate::place::{Place, attempt, run, within};

pub struct Guest {
    pub namespace: String,
}

impl Guest {
    /// Plugs a NIC with this MAC into a tap of the node.
    pub fn plug_in(place: &Place, what: &str, mac: Mac, tap: OwnedFd) -> Guest {
        let namespace = place.add(what);
        let nic = within(&namespace, || {
            let nic =
                DeviceBuilder::new().name("eth0").layer(Layer::L2).offload(true).mac_addr(mac.0).build_sync();
            nic.unwrap().as_fd().try_clone_to_owned().unwrap()
        });
        // Each ends when its interface is removed.
        wire(tap.try_clone().unwrap(), nic.try_clone().unwrap());
        wire(nic, tap);
        Guest { namespace }
    }

    /// Gives the guest an address by hand.
    pub fn settle(&self, address: &str) {
        run(&format!("ip -n {} addr add {address}/16 dev eth0", self.namespace));
        run(&format!("ip -n {} route add default via 10.52.0.1", self.namespace));
    }

    pub fn attempt(&self, command: &str) -> Output {
        attempt(&format!("ip netns exec {} {command}", self.namespace))
    }

    pub fn can_ping(&self, address: &str) -> bool {
        can_ping(&self.namespace, address)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = attempt(&format!("ip -n {} link del eth0", self.namespace));
    }
}

pub fn can_ping(namespace: &str, address: &str) -> bool {
    // Busybox's, because not every host has another.
    attempt(&format!("ip netns exec {namespace} busybox ping -c 1 -W 2 {address}")).status.success()
}

fn wire(from: OwnedFd, to: OwnedFd) {
    let (mut from, mut to) = (File::from(from), File::from(to));
    thread::spawn(move || {
        let mut frame = vec![0; 70_000];
        while let Ok(length) = from.read(&mut frame) {
            // A frame that finds the other end down is lost, as on any wire.
            let _ = to.write(&frame[..length]);
        }
    });
}
