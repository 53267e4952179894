//! `sheaf up`: a node from its first start to its end.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod process;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use process::{Running, ended, sheaf};
use rustix::process::Signal;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::Value;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn kubeconfig(data_dir: &Path) -> Value {
    serde_yaml_ng::from_str(&fs::read_to_string(data_dir.join("admin.kubeconfig")).unwrap()).unwrap()
}

fn decoded(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

/// Asks the server that `kubeconfig` names, trusting and being whom it says.
fn ask(kubeconfig: &Value) -> Result<String, std::io::Error> {
    let (cluster, user) = (&kubeconfig["clusters"][0]["cluster"], &kubeconfig["users"][0]["user"]);
    let address = cluster["server"].as_str().unwrap().strip_prefix("https://").unwrap();
    let mut roots = RootCertStore::empty();
    let authority = decoded(&cluster["certificate-authority-data"]);
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(&decoded(&user["client-certificate-data"])).unwrap()],
            PrivateKeyDer::from_pem_slice(&decoded(&user["client-key-data"])).unwrap(),
        )
        .unwrap();
    let host = address.rsplit_once(':').unwrap().0.to_owned();
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from(host).unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
    stream.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Err(why) if answer.is_empty() => Err(why),
        _ => Ok(answer),
    }
}

#[test]
fn a_node_says_one_line_when_ready_and_stops_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let node = Running::start(dir.path(), &[]);
    let (data_dir, url) = (dir.path().display(), node.url().to_owned());
    assert_eq!(node.ready, format!("sheaf is ready: {url}  (data in {data_dir}, node n1)"));
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let (status, took, more, _) = node.stop();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(more, Vec::<String>::new());
}

#[test]
fn hints_tell_where_things_are_and_what_to_type() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, more, _) = Running::start(dir.path(), &["--hints"]).stop();
    let text = more.join("\n");
    for wanted in [
        "admin-password",
        "export KUBECONFIG=",
        "admin.kubeconfig",
        "sheaf vm list",
        "in a browser   https://",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

#[test]
fn what_is_done_is_in_the_audit_log_which_only_its_owner_may_read() {
    let dir = tempfile::tempdir().unwrap();
    let node = Running::start(dir.path(), &[]);
    // By then the node has told the cluster of itself, and controllers have made what every namespace has.
    let log = dir.path().join("audit/audit.log");
    for _ in 0..100 {
        if fs::metadata(&log).is_ok_and(|found| found.len() > 0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(node.stop().0.success());
    assert_eq!((mode(&log), mode(&dir.path().join("audit"))), (0o600, 0o700));
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty());
    assert!(lines.iter().all(|line| line["apiVersion"] == "audit.k8s.io/v1" && line["level"] == "Metadata"));

    let without = tempfile::tempdir().unwrap();
    Running::start(without.path(), &["--audit-log", "off"]).stop();
    assert!(!without.path().join("audit").exists());
    let link = dir.path().join("link.log");
    std::os::unix::fs::symlink(&log, &link).unwrap();
    let data_dir = without.path().join("node");
    for (path, why) in
        [(dir.path().join("missing/audit.log"), "No such file"), (link, "it is a symbolic link")]
    {
        let refused = sheaf(&[
            "up",
            "--name",
            "n1",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            data_dir.to_str().unwrap(),
            "--audit-log",
            path.to_str().unwrap(),
        ]);
        assert_eq!(refused.code, Some(1));
        let told = refused.stderr.contains("cannot write the audit log") && refused.stderr.contains(why);
        assert!(told, "{}", refused.stderr);
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), text);
}

#[test]
fn the_kubeconfig_leads_to_the_node_and_only_its_owner_may_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Running::start(dir.path(), &[]);
    let config = kubeconfig(dir.path());
    assert_eq!(config["clusters"][0]["cluster"]["server"], node.url());
    assert_eq!(config["current-context"], "sheaf");
    let answer = ask(&config).unwrap();
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    assert_eq!(mode(&dir.path().join("admin.kubeconfig")), 0o600);

    let mut stranger = config.clone();
    let elsewhere = tempfile::tempdir().unwrap();
    let _other = Running::start(elsewhere.path(), &[]);
    stranger["users"] = kubeconfig(elsewhere.path())["users"].clone();
    ask(&stranger).unwrap_err();

    let port = node.address().rsplit_once(':').unwrap().1;
    let printed = sheaf(&["kubeconfig", "--data-dir", dir.path().to_str().unwrap()]);
    assert_eq!(serde_yaml_ng::from_str::<Value>(&printed.stdout).unwrap(), config);
    let server = format!("https://localhost:{port}");
    let printed =
        sheaf(&["kubeconfig", "--data-dir", dir.path().to_str().unwrap(), "--server", server.as_str()]);
    ask(&serde_yaml_ng::from_str(&printed.stdout).unwrap()).unwrap();
}

#[test]
fn a_slow_client_does_not_hold_up_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let node = Running::start(dir.path(), &[]);
    let _silent: Vec<_> = (0..10).map(|_| TcpStream::connect(node.address()).unwrap()).collect();
    let (status, took, ..) = node.stop();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn an_interrupt_stops_it_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Running::start(dir.path(), &[]);
    node.signal(Signal::INT);
    assert!(node.wait().success());
}

#[test]
fn a_second_node_on_one_directory_is_refused_with_the_first_ones_pid() {
    let dir = tempfile::tempdir().unwrap();
    let node = Running::start(dir.path(), &[]);
    let path = dir.path().to_str().unwrap();
    let second = sheaf(&["up", "--name", "n1", "--listen", "127.0.0.1:0", "--data-dir", path]);
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains(&format!("(pid {})", node.pid())), "{}", second.stderr);
    assert_eq!(second.stdout, "");
    ask(&kubeconfig(dir.path())).unwrap();
}

#[test]
fn a_node_that_was_killed_starts_again_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Running::start(dir.path(), &[]);
    let keep = ["pki/ca.crt", "pki/apiserver.crt", "pki/admin.crt", "admin-password", "format"];
    let before = keep.map(|name| fs::read(dir.path().join(name)).unwrap());
    node.signal(Signal::KILL);
    node.wait();
    let node = Running::start(dir.path(), &[]);
    assert_eq!(keep.map(|name| fs::read(dir.path().join(name)).unwrap()), before);
    // The port is another one, and the kubeconfig follows it.
    assert_eq!(kubeconfig(dir.path())["clusters"][0]["cluster"]["server"], node.url());
}

#[test]
fn a_node_whose_store_is_gone_refuses_to_start_with_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    Running::start(dir.path(), &[]).stop();
    let (store, elsewhere) = (dir.path().join("store.redb"), dir.path().join("pki/elsewhere"));
    fs::rename(&store, &elsewhere).unwrap();
    let path = dir.path().to_str().unwrap();
    let up = ["up", "--name", "n1", "--listen", "127.0.0.1:0", "--data-dir", path];
    let refused = sheaf(&up);
    assert_eq!(refused.code, Some(1));
    for told in [store.to_str().unwrap(), "store.mark", "put the file back", "backup", "remove"] {
        assert!(refused.stderr.contains(told), "{told} is not in: {}", refused.stderr);
    }
    assert!(!store.exists());

    // Nor are new keys made meanwhile: the store may come back, sealed with the old ones.
    let key = dir.path().join("keys/encryption.json");
    fs::rename(&key, dir.path().join("pki/key")).unwrap();
    assert!(sheaf(&up).stderr.contains("encryption.json is gone"));
    assert!(!key.exists());

    fs::rename(dir.path().join("pki/key"), &key).unwrap();
    fs::rename(&elsewhere, &store).unwrap();
    Running::start(dir.path(), &[]).stop();
}

#[test]
fn a_node_whose_store_is_damaged_says_so_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    Running::start(dir.path(), &[]).stop();
    let store = dir.path().join("store.redb");
    let mut bytes = fs::read(&store).unwrap();
    // All but the first page, which tells redb that this is a file of its own.
    bytes[4096..].iter_mut().for_each(|byte| *byte ^= 0xa5);
    fs::write(&store, bytes).unwrap();
    let path = dir.path().to_str().unwrap();
    let mut up = Command::new(env!("CARGO_BIN_EXE_sheaf"));
    up.args(["up", "--name", "n1", "--listen", "127.0.0.1:0", "--data-dir", path])
        .env_remove("RUST_BACKTRACE");
    let refused = ended(&mut up);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let last = refused.stderr.lines().last().unwrap();
    assert!(last.starts_with("sheaf: ") && last.contains("is damaged"), "{}", refused.stderr);
    assert!(last.contains(store.to_str().unwrap()) && last.contains("backup"), "{last}");
    assert!(!refused.stderr.contains("core::panicking"), "{}", refused.stderr);
}

#[test]
fn as_many_files_may_be_open_as_the_host_allows() {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -S -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sheaf")]);
    let node = Running::start_as(shell, dir.path(), &[]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", node.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let (soft, hard) = line.split_whitespace().next().zip(line.split_whitespace().nth(1)).unwrap();
    assert_eq!(soft, hard);
    assert_ne!(soft, "256");
    let (_, _, _, stderr) = node.stop();
    assert!(stderr.contains("raised the limit of open files"), "{stderr}");
}

#[test]
fn a_directory_of_a_newer_sheaf_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("format"), "999\n").unwrap();
    let path = dir.path().to_str().unwrap();
    let refused = sheaf(&["up", "--name", "n1", "--listen", "127.0.0.1:0", "--data-dir", path]);
    assert_eq!(refused.code, Some(1));
    let wanted = "was written by a newer Sheaf (format 999; this one knows up to 1): use that version or restore a backup";
    assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(dir.path().join("format")).unwrap(), "999\n");
    assert!(!dir.path().join("pki").exists());
}

#[test]
fn logs_for_machines_are_one_json_object_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, _, stderr) = Running::start(dir.path(), &["--log-format", "json"]).stop();
    let levels: Vec<Value> = stderr
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect(line)["level"].clone())
        .collect();
    assert!(levels.contains(&"INFO".into()), "{stderr}");
}

#[test]
fn the_drawn_password_is_private_and_in_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, _, stderr) = Running::start(dir.path(), &["--hints"]).stop();
    let password = fs::read_to_string(dir.path().join("admin-password")).unwrap();
    assert_eq!(mode(&dir.path().join("admin-password")), 0o600);
    assert!(password.trim().len() >= 24, "{password}");
    assert!(stderr.contains("starting") && !stderr.contains(password.trim()), "{stderr}");
}

#[test]
fn a_given_password_is_not_copied() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = elsewhere.path().join("password");
    fs::write(&file, "correct horse battery\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (_, _, _, stderr) =
        Running::start(dir.path(), &["--admin-password-file", file.to_str().unwrap()]).stop();
    assert!(!dir.path().join("admin-password").exists());
    assert!(!stderr.contains("correct horse"), "{stderr}");
}

#[test]
fn an_expired_serving_certificate_is_replaced_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    Running::start(dir.path(), &[]).stop();
    let pki = dir.path().join("pki");
    let (old_kubeconfig, serving) = (kubeconfig(dir.path()), pki.join("apiserver.crt"));
    expire(&pki, "apiserver");
    let expired = fs::read(&serving).unwrap();

    let node = Running::start(dir.path(), &[]);
    assert_ne!(fs::read(&serving).unwrap(), expired);
    // The administrator's certificate was good and is the same; only the port is new.
    let config = kubeconfig(dir.path());
    assert_eq!(config["users"], old_kubeconfig["users"]);
    ask(&config).unwrap();
    node.stop();
}

/// Puts a certificate in place that the authority signed and that expired long ago.
fn expire(pki: &Path, name: &str) {
    let read = |name: &str| fs::read_to_string(pki.join(name)).unwrap();
    let authority = rcgen::KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&read("ca.crt"), authority).unwrap();
    let key = rcgen::KeyPair::from_pem(&read(&format!("{name}.key"))).unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2019, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    fs::write(pki.join(format!("{name}.crt")), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
}
