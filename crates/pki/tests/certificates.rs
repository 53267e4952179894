//! What the node's certificates promise, on a virtual clock and with real handshakes.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, crypto::ring,
    time_provider::TimeProvider,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use sheaf_pki::{
    ADMIN, AGENT, APISERVER_CLIENT, APISERVER_USER, Leaf, NodeCertificates, PkiError, SERVING, ServingNames,
    common_name, inspect,
};
use sheaf_world::World;

const DAY: Duration = Duration::from_secs(86_400);
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));

fn names() -> ServingNames {
    ServingNames::of_node("n1", [ADDRESS])
}

fn ensure(dir: &Path, world: &World) -> NodeCertificates {
    NodeCertificates::ensure(dir, names(), world).unwrap()
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

fn now(world: &World) -> i64 {
    world.clock.since_epoch().as_secs() as i64
}

#[derive(Debug)]
struct At(World);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.clock.since_epoch()))
    }
}

fn client(authority: &str, identity: Option<&Leaf>, world: &World) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(At(world.clone())))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(leaf) => builder
            .with_client_auth_cert(
                CertificateDer::pem_slice_iter(leaf.certificate.as_bytes()).map(Result::unwrap).collect(),
                PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

type Pair = (ClientConnection, ServerConnection);

fn shake_hands(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: &str,
) -> Result<Pair, rustls::Error> {
    let mut client = ClientConnection::new(client, ServerName::try_from(name.to_owned()).unwrap())?;
    let mut server = ServerConnection::new(server)?;
    while client.is_handshaking() || server.is_handshaking() || client.wants_write() || server.wants_write() {
        carry(&mut client, &mut server)?;
    }
    Ok((client, server))
}

fn carry(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), rustls::Error> {
    let mut wire = Vec::new();
    client.write_tls(&mut wire).unwrap();
    server.read_tls(&mut wire.as_slice()).unwrap();
    server.process_new_packets()?;
    let mut wire = Vec::new();
    server.write_tls(&mut wire).unwrap();
    client.read_tls(&mut wire.as_slice()).unwrap();
    client.process_new_packets()?;
    Ok(())
}

fn shown_to(client: &ClientConnection) -> CertificateDer<'static> {
    client.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_client_reaches_the_node_by_each_of_its_names_and_no_other() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    let node = ensure(dir.path(), &world);
    let trusting = client(node.authority_pem(), None, &world);
    for name in ["n1", "localhost", "kubernetes.default.svc.cluster.local", "127.0.0.1", "::1", "10.0.0.5"] {
        let (client, server) = shake_hands(trusting.clone(), node.server_config(), name).expect(name);
        assert_eq!(client.alpn_protocol(), Some(&b"h2"[..]));
        assert!(server.peer_certificates().is_none(), "a client without a certificate is let in as nobody");
    }
    shake_hands(trusting, node.server_config(), "n2").unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn the_administrator_is_who_the_certificate_says() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    let node = ensure(dir.path(), &world);
    let facts = inspect(&node.admin().certificate).unwrap();
    assert_eq!(facts.common_name, "admin");
    assert_eq!(facts.organisations, ["system:masters"]);
    let admin = client(node.authority_pem(), Some(&node.admin()), &world);
    let (_, server) = shake_hands(admin, node.server_config(), "localhost").unwrap();
    assert_eq!(server.peer_certificates().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn certificates_of_strangers_and_of_servers_do_not_pass_as_clients() {
    let (dir, elsewhere, world) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::seeded(1));
    let node = ensure(dir.path(), &world);
    let stranger = ensure(elsewhere.path(), &world).admin();
    let server = Leaf {
        certificate: read(dir.path(), "apiserver.crt"),
        key: read(dir.path(), "apiserver.key"),
        expires: 0,
    };
    for wrong in [stranger, server] {
        let client = client(node.authority_pem(), Some(&wrong), &world);
        shake_hands(client, node.server_config(), "localhost").unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn the_api_server_reaches_an_agent_as_itself_and_only_the_node_it_meant() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    let node = ensure(dir.path(), &world);
    let (client, server) = shake_hands(node.agent_client_config(), node.agent_server_config(), "n1").unwrap();
    let named = server.peer_certificates().unwrap()[0].clone();
    assert_eq!(common_name(&named).as_deref(), Some(APISERVER_USER));
    // A stream takes its connection over, which HTTP/2 does not let it.
    assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
    for other in ["n2", "localhost", "127.0.0.1"] {
        shake_hands(node.agent_client_config(), node.agent_server_config(), other).unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_reaches_an_agent_without_a_certificate_of_its_authority() {
    let (dir, elsewhere, world) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::seeded(1));
    let node = ensure(dir.path(), &world);
    let nobody = client(node.authority_pem(), None, &world);
    shake_hands(nobody, node.agent_server_config(), "n1").unwrap_err();
    let stranger = ensure(elsewhere.path(), &world);
    shake_hands(stranger.agent_client_config(), node.agent_server_config(), "n1").unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn an_expired_client_certificate_does_not_pass() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    let old_admin = ensure(dir.path(), &world).admin();
    tokio::time::advance(366 * DAY).await;
    let node = ensure(dir.path(), &world);
    let client = client(node.authority_pem(), Some(&old_admin), &world);
    shake_hands(client, node.server_config(), "localhost").unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_second_start_changes_nothing() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    ensure(dir.path(), &world);
    let files = ["ca.crt", "ca.key", "apiserver.crt", "apiserver.key", "admin.crt", "admin.key"];
    let before = files.map(|name| read(dir.path(), name));
    tokio::time::advance(200 * DAY).await;
    assert_eq!(ensure(dir.path(), &world).renew_due().unwrap(), Vec::<&str>::new());
    assert_eq!(files.map(|name| read(dir.path(), name)), before);
    let distinct: BTreeSet<_> = before.iter().collect();
    assert_eq!(distinct.len(), files.len());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_slept_past_its_certificates_end_starts_with_new_ones() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    let authority = ensure(dir.path(), &world).authority_pem().to_owned();
    tokio::time::advance(2 * 365 * DAY).await;
    let node = ensure(dir.path(), &world);
    assert_eq!(node.authority_pem(), authority);
    assert!(node.admin().expires > now(&world));
    shake_hands(client(&authority, Some(&node.admin()), &world), node.server_config(), "n1").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_running_node_renews_and_open_connections_go_on() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    let node = Arc::new(ensure(dir.path(), &world));
    let trusting = client(node.authority_pem(), None, &world);
    let (mut old_client, mut old_server) = shake_hands(trusting.clone(), node.server_config(), "n1").unwrap();

    tokio::time::advance(238 * DAY).await;
    let renewed = Arc::new(Mutex::new(Vec::new()));
    let task = tokio::spawn({
        let (node, renewed) = (node.clone(), renewed.clone());
        async move { node.keep_fresh(|names| renewed.lock().unwrap().extend_from_slice(names)).await }
    });
    tokio::time::sleep(4 * DAY).await;
    assert_eq!(*renewed.lock().unwrap(), Vec::<&str>::new());
    tokio::time::sleep(3 * DAY).await;
    assert_eq!(*renewed.lock().unwrap(), [ADMIN, AGENT, SERVING, APISERVER_CLIENT]);
    task.abort();

    let (new_client, _) = shake_hands(trusting, node.server_config(), "n1").unwrap();
    assert_ne!(shown_to(&new_client), shown_to(&old_client));
    assert_eq!(node.admin().certificate, read(dir.path(), "admin.crt"));

    old_client.writer().write_all(b"still here").unwrap();
    carry(&mut old_client, &mut old_server).unwrap();
    let mut said = [0; 10];
    old_server.reader().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"still here");
}

#[tokio::test(start_paused = true)]
async fn a_new_address_makes_a_new_serving_certificate_and_leaves_the_administrators() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    ensure(dir.path(), &world);
    let (serving, admin) = (read(dir.path(), "apiserver.crt"), read(dir.path(), "admin.crt"));
    let moved = ServingNames::of_node("n1", [Ipv4Addr::new(10, 0, 0, 6).into()]);
    NodeCertificates::ensure(dir.path(), moved.clone(), &world).unwrap();
    assert_ne!(read(dir.path(), "apiserver.crt"), serving);
    assert_eq!(read(dir.path(), "admin.crt"), admin);
    assert_eq!(inspect(&read(dir.path(), "apiserver.crt")).unwrap().addresses, moved.addresses);
}

#[tokio::test(start_paused = true)]
async fn a_new_authority_signs_everything_anew_and_the_old_one_stays_trusted_beside_it() {
    let (dir, elsewhere, world) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), World::seeded(1));
    let old_admin = ensure(dir.path(), &world).admin();
    ensure(elsewhere.path(), &world);
    let both = read(elsewhere.path(), "ca.crt") + &read(dir.path(), "ca.crt");
    fs::write(dir.path().join("ca.crt"), both).unwrap();
    fs::write(dir.path().join("ca.key"), read(elsewhere.path(), "ca.key")).unwrap();

    let node = ensure(dir.path(), &world);
    assert_ne!(node.admin(), old_admin);
    let trusts_new_only = client(&read(elsewhere.path(), "ca.crt"), Some(&old_admin), &world);
    shake_hands(trusts_new_only, node.server_config(), "n1").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pair_that_a_crash_tore_apart_is_made_anew() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    ensure(dir.path(), &world);
    // The key of the next renewal was written, its certificate was not.
    fs::write(dir.path().join("apiserver.key"), read(dir.path(), "admin.key")).unwrap();
    fs::write(dir.path().join("admin.crt"), "-----BEGIN CERTIF").unwrap();
    let node = ensure(dir.path(), &world);
    let admin = client(node.authority_pem(), Some(&node.admin()), &world);
    shake_hands(admin, node.server_config(), "n1").unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_authority_whose_first_certificate_was_never_written_is_completed() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    ensure(dir.path(), &world);
    let key = read(dir.path(), "ca.key");
    fs::remove_file(dir.path().join("ca.crt")).unwrap();
    ensure(dir.path(), &world);
    assert_eq!(read(dir.path(), "ca.key"), key);
}

#[tokio::test(start_paused = true)]
async fn an_authority_is_never_replaced_unasked() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    ensure(dir.path(), &world);
    let refused = |world: &World| NodeCertificates::ensure(dir.path(), names(), world).unwrap_err();

    let key = read(dir.path(), "ca.key");
    fs::remove_file(dir.path().join("ca.key")).unwrap();
    assert!(matches!(refused(&world), PkiError::AuthorityKeyMissing { .. }));

    fs::write(dir.path().join("ca.key"), read(dir.path(), "admin.key")).unwrap();
    let why = refused(&world).to_string();
    assert!(why.contains("the key of another certificate"), "{why}");

    fs::write(dir.path().join("ca.key"), key).unwrap();
    fs::write(dir.path().join("ca.crt"), "garbage").unwrap();
    assert!(matches!(refused(&world), PkiError::AuthorityUnusable { .. }));

    fs::write(dir.path().join("ca.crt"), read(dir.path(), "admin.crt")).unwrap();
    let why = refused(&world).to_string();
    assert!(why.contains("not one of an authority"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn keys_are_closed_to_others_also_when_they_were_open() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    let pki = dir.path().join("pki");
    ensure(&pki, &world);
    let mode = |name: &str| fs::metadata(pki.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(fs::metadata(&pki).unwrap().permissions().mode() & 0o777, 0o700);
    for key in ["ca.key", "apiserver.key", "admin.key"] {
        assert_eq!(mode(key), 0o600, "{key}");
        fs::set_permissions(pki.join(key), fs::Permissions::from_mode(0o644)).unwrap();
    }
    ensure(&pki, &world);
    for key in ["ca.key", "apiserver.key", "admin.key"] {
        assert_eq!(mode(key), 0o600, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn lives_are_ten_years_and_one() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
    let node = ensure(dir.path(), &world);
    let days = |until: i64| (until - now(&world)) / 86_400;
    assert_eq!(days(node.authority_expires()), 3649);
    assert_eq!(days(node.admin().expires), 364);
    assert!(inspect(&node.admin().certificate).unwrap().not_before < now(&world));
}
