//! Settings: what is filled in, and what is said about those that cannot be used.

use super::*;

fn host() -> Host {
    Host {
        hostname: "Rack2-N1".into(),
        route_address: Some(Ipv4Addr::new(10, 0, 0, 5).into()),
        stdout_is_a_terminal: false,
        kubeconfigs: Vec::new(),
        home_kubeconfig: None,
        home: None,
    }
}

fn parse(args: &[&str]) -> Result<UpConfig, BadSetting> {
    parse_on(&host(), args)
}

fn parse_on(host: &Host, args: &[&str]) -> Result<UpConfig, BadSetting> {
    let words = ["sheaf", "up"].iter().chain(args);
    match Config::new(Args::try_parse_from(words).unwrap(), host)? {
        Config::Up(config) => Ok(config),
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_has_a_default() {
    let config = parse(&[]).unwrap();
    assert_eq!(config.name, "rack2-n1");
    assert_eq!(config.advertise.to_string(), "10.0.0.5");
    assert_eq!(config.data_dir, Path::new("/var/lib/sheaf"));
    let listen: Vec<_> = config.listen.iter().map(|l| (l.address.to_string(), l.optional)).collect();
    assert_eq!(listen, [("0.0.0.0:6443".into(), false), ("[::]:6443".into(), true)]);
    assert_eq!(config.vm_cidr, Cidr::DEFAULT_NETWORK);
    assert_eq!(config.vm_cidr.to_string(), DEFAULT_VM_CIDR);
    assert_eq!(config.admin_password, None);
    assert_eq!(config.audit_log.as_deref(), Some(Path::new("/var/lib/sheaf/audit/audit.log")));
    assert_eq!(config.audit_level, AuditLevel::Metadata);
    assert!(!config.hints);
}

#[test]
fn the_audit_log_is_where_it_is_told_to_be_or_nowhere() {
    let log = |args: &[&str]| parse(args).unwrap().audit_log;
    assert_eq!(log(&["--data-dir", "/d"]), Some("/d/audit/audit.log".into()));
    assert_eq!(log(&["--audit-log", "/var/log/a.log"]), Some("/var/log/a.log".into()));
    assert_eq!(log(&["--audit-log", "off"]), None);
    assert_eq!(log(&["--audit-level", "None"]), None);
    let config = parse(&["--audit-level", "requestresponse"]).unwrap();
    assert_eq!(config.audit_level, AuditLevel::RequestResponse);
    assert_eq!(parse(&["--audit-log", "/"]).unwrap_err().setting, "--audit-log");
}

#[test]
fn a_host_without_a_way_out_advertises_itself_to_itself() {
    let host = Host { route_address: None, ..host() };
    assert_eq!(parse_on(&host, &[]).unwrap().advertise.to_string(), "127.0.0.1");
}

#[test]
fn a_node_that_listens_on_one_address_advertises_that_one() {
    let config = parse(&["--listen", "127.0.0.1:7000"]).unwrap();
    assert_eq!(config.advertise.to_string(), "127.0.0.1");
    let config = parse(&["--listen", "127.0.0.1:7000", "--listen", "0.0.0.0:6443"]).unwrap();
    assert_eq!(config.advertise.to_string(), "10.0.0.5");
}

#[test]
fn each_bad_setting_is_named_with_what_was_read_and_what_fits() {
    let cases: &[(&[&str], &str, &str, &str)] = &[
        (&["--listen", "0.0.0.0"], "--listen", "0.0.0.0", "no port"),
        (&["--listen", "6443"], "--listen", "6443", "no address"),
        (&["--listen", ":6443"], "--listen", ":6443", "no address"),
        (&["--listen", "0.0.0.0:65536"], "--listen", "0.0.0.0:65536", "0 to 65535"),
        (&["--listen", "node.example:6443"], "--listen", "node.example:6443", "not looked up"),
        (&["--listen", "fe80::1:2:6443"], "--listen", "fe80::1:2:6443", "no port"),
        (&["--listen", "1:2:3:4:5:6:7:8:6443"], "--listen", "1:2:3:4:5:6:7:8:6443", "brackets"),
        (&["--listen", ""], "--listen", "", "not an IP address"),
        (&["--listen", "[::]:1", "--listen", "[::]:1"], "--listen", "[::]:1", "twice"),
        (&["--advertise", "example.com"], "--advertise", "example.com", "not an IP address"),
        (&["--advertise", "10.0.0.5:6443"], "--advertise", "10.0.0.5:6443", "port"),
        (&["--advertise", "0.0.0.0"], "--advertise", "0.0.0.0", "nobody can connect"),
        (&["--advertise", "224.0.0.1"], "--advertise", "224.0.0.1", "nobody can connect"),
        (&["--name", "Node_1"], "--name", "Node_1", "'N'"),
        (&["--name", ""], "--name", "", "needs a name"),
    ];
    for (args, setting, read, problem) in cases {
        let why = parse(args).expect_err(&format!("{args:?}"));
        assert_eq!((why.setting, why.read.as_str()), (*setting, *read), "{args:?}");
        assert!(why.problem.contains(problem), "{args:?}: {why}");
        assert!(!why.fits.is_empty(), "{args:?}");
    }
}

#[test]
fn a_host_whose_name_no_node_may_have_is_told_to_choose_one() {
    let why = parse_on(&Host { hostname: "my_host".into(), ..host() }, &[]).unwrap_err();
    assert_eq!(why.setting, "--name");
    assert!(why.read.contains("my_host") && why.read.contains("--name is not given"), "{why}");
}

#[test]
fn a_kubeconfig_is_not_made_for_a_server_without_tls() {
    let words = ["sheaf", "kubeconfig", "--server", "http://10.0.0.5:6443"];
    let why = Config::new(Args::try_parse_from(words).unwrap(), &host()).unwrap_err();
    assert_eq!((why.setting, why.read.as_str()), ("--server", "http://10.0.0.5:6443"));
}

#[test]
fn the_network_of_machines_is_a_network_with_room_in_it() {
    assert_eq!(parse(&["--vm-cidr", "192.168.40.0/22"]).unwrap().vm_cidr.to_string(), "192.168.40.0/22");
    for (text, problem) in [
        ("10.52.0.0", "it is not an IPv4 network"),
        ("fd00::/64", "it is not an IPv4 network"),
        ("10.52.0.7/16", "its address has bits that are not of the network"),
        ("127.0.0.0/8", "machines cannot have such addresses"),
        ("10.0.0.0/30", "its prefix is not between 8 and 29"),
        ("0.0.0.0/0", "its prefix is not between 8 and 29"),
    ] {
        let why = parse(&["--vm-cidr", text]).unwrap_err().to_string();
        assert!(why.contains("--vm-cidr") && why.contains(problem), "{text}: {why}");
    }
}
