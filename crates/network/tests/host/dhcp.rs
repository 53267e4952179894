//! Real DHCP clients in guests.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use sheaf_network::{Network, Port};

use crate::{
    guest::Guest,
    place::{Place, attempt, network, port, run},
};

/// Serves DHCP on the node while `work` runs on another thread.
async fn served<T: Send + 'static>(network: &Network, work: impl FnOnce() -> T + Send + 'static) -> T {
    let mut work = tokio::task::spawn_blocking(work);
    let dhcp = network.serve_dhcp();
    tokio::pin!(dhcp);
    tokio::select! {
        biased;
        done = &mut work => done.unwrap(),
        never = &mut dhcp => match never {},
    }
}

async fn with_ports(ports: &[Port]) -> Network {
    let network = network();
    network.ensure().await.unwrap();
    assert_eq!(network.set_ports(ports).await.unwrap(), []);
    network
}

/// Asks with busybox's client; what it was told, as `name=value` lines, or none.
fn udhcpc(namespace: &str, directory: &Path, more: &str) -> Option<String> {
    let (script, told) = (directory.join("script"), directory.join("told"));
    let _ = fs::remove_file(&told);
    fs::write(&script, format!("#!/bin/sh\n[ \"$1\" = bound ] && env > {}\nexit 0\n", told.display()))
        .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.display();
    let asked = attempt(&format!(
        "ip netns exec {namespace} busybox udhcpc -f -q -n -t 3 -T 1 -i eth0 -s {script} {more}"
    ));
    asked.status.success().then(|| fs::read_to_string(told).unwrap())
}

fn has(told: &str, line: &str) {
    assert!(told.lines().any(|found| found.trim() == line), "{line} is not in\n{told}");
}

#[test]
fn udhcpc_is_told_all_it_needs_and_the_same_after_a_restart() {
    let Some(place) = Place::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    place.on_the_node(async || {
        let first = with_ports(&[port(7)]).await;
        let guest = Guest::plug_in(&place, "guest", port(7).mac, first.open_tap(&port(7)).await.unwrap());
        let ask = |more: &'static str| {
            let (namespace, directory) = (guest.namespace.clone(), directory.path().to_owned());
            move || udhcpc(&namespace, &directory, more)
        };
        let told = served(&first, ask("")).await.expect("a guest that asks is answered");
        for line in [
            "ip=10.52.0.7",
            "subnet=255.255.0.0",
            "mask=16",
            "router=10.52.0.1",
            "dns=10.52.0.1",
            "mtu=1500",
            "hostname=vm-7",
            "domain=sheaf.internal",
            "lease=86400",
            "serverid=10.52.0.1",
            "broadcast=10.52.255.255",
        ] {
            has(&told, line);
        }
        // Wanting another address, and being unable to take a unicast answer.
        has(&served(&first, ask("-r 10.52.0.99")).await.unwrap(), "ip=10.52.0.7");
        has(&served(&first, ask("-B")).await.unwrap(), "ip=10.52.0.7");
        drop(first);
        let second = with_ports(&[port(7)]).await;
        has(&served(&second, ask("")).await.unwrap(), "ip=10.52.0.7");
        // A MAC that is no longer in the table hears nothing.
        second.set_ports(&[]).await.unwrap();
        assert_eq!(served(&second, ask("")).await, None);
        drop(guest);
        second.remove_everything().await.unwrap();
    });
}

#[test]
fn dhclient_takes_its_address_and_renews_it() {
    let Some(place) = Place::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().display().to_string();
    place.on_the_node(async || {
        let network = with_ports(&[port(7)]).await;
        let guest = Guest::plug_in(&place, "guest", port(7).mac, network.open_tap(&port(7)).await.unwrap());
        let namespace = guest.namespace.clone();
        let client = format!(
            "ip netns exec {namespace} dhclient -v -1 -sf /bin/true -lf {at}/leases -pf {at}/pid eth0"
        );
        let (first, again) = served(&network, move || {
            let asked = |command: &str| String::from_utf8(attempt(command).stderr).unwrap();
            let first = asked(&client);
            // It knows its lease now, and asks for it again as after a reboot.
            end_dhclient(&at);
            let again = asked(&client);
            end_dhclient(&at);
            (first, again)
        })
        .await;
        assert!(first.contains("DHCPOFFER of 10.52.0.7 from 10.52.0.1"), "{first}");
        assert!(first.contains("DHCPACK of 10.52.0.7 from 10.52.0.1"), "{first}");
        assert!(again.contains("DHCPACK of 10.52.0.7 from 10.52.0.1"), "{again}");
        assert!(!again.contains("DHCPDISCOVER"), "{again}");
        drop(guest);
        network.remove_everything().await.unwrap();
    });
}

#[test]
fn systemd_networkd_takes_its_address() {
    let networkd = "/lib/systemd/systemd-networkd";
    let Some(place) = Place::new() else { return };
    if !Path::new(networkd).exists() {
        let _ = writeln!(
            std::io::stderr(),
            "\n*** SKIPPED systemd_networkd_takes_its_address: there is no {networkd} ***"
        );
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Mounts of its own, so that it neither finds the host's settings nor leaves any. With `/sys`
    // read-only it takes itself to be in a container, where nobody waits for udev.
    let script = format!(
        "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -o remount,ro,bind /sys || exit 1\n\
         mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/network && chmod -R 777 /run\n\
         printf '[Match]\\nName=eth0\\n[Network]\\nDHCP=ipv4\\nLinkLocalAddressing=no\\nIPv6AcceptRA=no\\n' \
         > /run/systemd/network/10-eth0.network\n\
         SYSTEMD_LOG_LEVEL=info timeout 5 {networkd} 2>&1\n"
    );
    let path = directory.path().join("script");
    fs::write(&path, script).unwrap();
    place.on_the_node(async || {
        let network = with_ports(&[port(7)]).await;
        let guest = Guest::plug_in(&place, "guest", port(7).mac, network.open_tap(&port(7)).await.unwrap());
        let command = format!("ip netns exec {} unshare --mount sh {}", guest.namespace, path.display());
        let said = served(&network, move || String::from_utf8(attempt(&command).stdout).unwrap()).await;
        assert!(said.contains("DHCPv4 address 10.52.0.7/16"), "{said}");
        drop(guest);
        network.remove_everything().await.unwrap();
    });
}

/// Ends the client that went into the background, which writes its process id a little later.
fn end_dhclient(at: &str) {
    let path = format!("{at}/pid");
    for _ in 0..100 {
        match fs::read_to_string(&path) {
            Ok(pid) if !pid.trim().is_empty() => {
                run(&format!("kill {}", pid.trim()));
                fs::remove_file(&path).unwrap();
                return;
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    panic!("dhclient never said which process it is");
}

#[test]
fn a_bridge_that_was_replaced_is_served_again() {
    let Some(place) = Place::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let node = place.node();
    place.on_the_node(async || {
        let network = with_ports(&[port(7)]).await;
        let guest = Guest::plug_in(&place, "guest", port(7).mac, network.open_tap(&port(7)).await.unwrap());
        let dhcp = tokio::spawn(network.serve_dhcp());
        tokio::time::sleep(Duration::from_millis(100)).await;
        run(&format!("ip -n {node} link del sheaf0"));
        network.ensure().await.unwrap();
        let (namespace, at) = (guest.namespace.clone(), directory.path().to_owned());
        let told = tokio::task::spawn_blocking(move || udhcpc(&namespace, &at, "")).await.unwrap();
        has(&told.unwrap(), "ip=10.52.0.7");
        dhcp.abort();
        drop(guest);
        network.remove_everything().await.unwrap();
    });
}
