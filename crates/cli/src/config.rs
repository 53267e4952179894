//! All settings, checked and complete: one tree, made once from arguments and host.
//!
//! Pure but for the password file, which is read here so that a bad one is told before
//! anything is touched. Whether a port is free or a directory can be written is found
//! out where it is used, and told in the same words ([`BadSetting`]).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;
use clap_complete::Shell;

use sheaf_resources::kinds::ip_pool::Cidr;

use crate::{
    AuditLevel, BadSetting, Host, LogFormat, OutputFormat, Secret, admin_password_file,
    args::{Args, Command, DEFAULT_VM_CIDR, DoctorArgs, DownArgs, InstallArgs, KubeconfigArgs, UpArgs},
    client_config::{self, DemoConfig, SupportBundleConfig},
    kubeconfig,
    login::{LoginConfig, contexts::ContextConfig},
    node_name,
    nouns::AskConfig,
};

const API_PORT: u16 = 6443;

/// What to do, with everything it takes.
#[derive(Debug)]
pub enum Config {
    Up(UpConfig),
    Down(DownConfig),
    Install(InstallConfig),
    Demo(DemoConfig),
    /// Something of a cluster.
    Ask(Box<AskConfig>),
    Login(LoginConfig),
    Context(ContextConfig),
    SupportBundle(SupportBundleConfig),
    Kubeconfig(KubeconfigConfig),
    /// The data directory of the node whose key to rotate.
    RotateKey(PathBuf),
    Doctor(DoctorConfig),
    Version(OutputFormat),
    Completions(Shell),
    /// Become QEMU.
    LaunchMachine,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpConfig {
    pub name: String,
    pub advertise: IpAddr,
    /// Absolute.
    pub data_dir: PathBuf,
    pub listen: Vec<Listen>,
    /// The default network of machines; for the first start only.
    pub vm_cidr: Cidr,
    /// For the first start only; an administrator who exists keeps the password they have.
    pub admin_password: Option<Secret>,
    /// Where it is written to who did what; nowhere when there is none.
    pub audit_log: Option<PathBuf>,
    pub audit_level: AuditLevel,
    pub log_format: LogFormat,
    /// Where the objects are, when not in the data directory.
    pub etcd: Option<String>,
    pub sync_delay: Duration,
    pub die_after_step: Option<u64>,
    pub die_as_told_in: Option<PathBuf>,
    pub allow_local_images: bool,
    /// Say more than one line when ready.
    pub hints: bool,
}

/// One address to serve on. An IPv6 one serves IPv6 alone, so that a listener and the
/// addresses of its clients are always of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    pub address: SocketAddr,
    /// Not asked for by name: a host without this address family does without it.
    pub optional: bool,
}

/// A node to be stopped.
#[derive(Debug, PartialEq, Eq)]
pub struct DownConfig {
    pub data_dir: PathBuf,
    /// How long its guests have to shut down; none where they go on.
    pub stop_vms: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct InstallConfig {
    pub data_dir: PathBuf,
    /// Below which to write; nothing is started then.
    pub root: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct KubeconfigConfig {
    pub data_dir: PathBuf,
    pub server: Option<String>,
    /// Print the authority's fingerprint and nothing else.
    pub fingerprint: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct DoctorConfig {
    pub data_dir: PathBuf,
    pub listen: Vec<Listen>,
    pub output: OutputFormat,
}

impl Config {
    /// Reads the command line. What the argument parser itself refuses, and `--help`,
    /// end the process here (with code 2 and 0).
    pub fn from_args() -> Result<Config, BadSetting> {
        Config::new(Args::parse(), &Host::look())
    }

    pub fn new(args: Args, host: &Host) -> Result<Config, BadSetting> {
        Ok(match args.command {
            Command::Up(args) => Config::Up(up(args, host)?),
            Command::Down(args) => Config::Down(down(args)?),
            Command::Install(args) => Config::Install(install(args)?),
            Command::Demo(args) => Config::Demo(client_config::demo(args, host)?),
            Command::Ask(command) => Config::Ask(Box::new(AskConfig::new(command, host)?)),
            Command::Login(args) => Config::Login(LoginConfig::new(args, host)?),
            Command::Context(command) => Config::Context(ContextConfig::new(command, host)?),
            Command::SupportBundle(args) => Config::SupportBundle(client_config::support_bundle(args, host)?),
            Command::Kubeconfig(args) => Config::Kubeconfig(kubeconfig(args)?),
            Command::RotateKey(args) => Config::RotateKey(data_dir(&args.data_dir)?),
            Command::Doctor(args) => Config::Doctor(doctor(args)?),
            Command::Version(args) => Config::Version(args.output),
            Command::Completions(args) => Config::Completions(args.shell),
            Command::LaunchMachine => Config::LaunchMachine,
        })
    }
}

fn up(args: UpArgs, host: &Host) -> Result<UpConfig, BadSetting> {
    let listen = listen(&args.listen)?;
    let data_dir = data_dir(&args.data_dir)?;
    Ok(UpConfig {
        name: name(args.name, host)?,
        advertise: advertise(args.advertise.as_deref(), &listen, host)?,
        audit_log: audit_log(args.audit_log.as_deref(), args.audit_level, &data_dir)?,
        audit_level: args.audit_level,
        data_dir,
        listen,
        vm_cidr: vm_cidr(&args.vm_cidr)?,
        admin_password: args.admin_password_file.as_deref().map(admin_password_file::read).transpose()?,
        log_format: args.log_format,
        etcd: args.etcd,
        sync_delay: Duration::from_millis(args.sync_delay_ms),
        die_after_step: args.die_after_step,
        die_as_told_in: args.die_as_told_in,
        allow_local_images: args.allow_local_images,
        hints: args.hints || host.stdout_is_a_terminal,
    })
}

fn down(args: DownArgs) -> Result<DownConfig, BadSetting> {
    let stop_vms = args.stop_vms.then(|| Duration::from_secs(args.grace));
    Ok(DownConfig { data_dir: data_dir(&args.data_dir)?, stop_vms })
}

fn install(args: InstallArgs) -> Result<InstallConfig, BadSetting> {
    let fits = "a directory whose name has no quotes, backslashes, percent or dollar signs, or line breaks";
    let data_dir = data_dir(&args.data_dir)?;
    match data_dir.to_str() {
        Some(text) if !text.contains(['"', '\'', '\\', '%', '$', '\n']) => {}
        _ => {
            let problem = "a systemd unit cannot name it";
            return Err(BadSetting::new("--data-dir", data_dir.display(), problem, fits));
        }
    }
    Ok(InstallConfig { data_dir, root: args.root })
}

fn kubeconfig(args: KubeconfigArgs) -> Result<KubeconfigConfig, BadSetting> {
    if let Some(server) = &args.server
        && let Some(problem) = kubeconfig::server_problem(server)
    {
        let fits = "an https URL of this node, such as https://10.0.0.5:6443";
        return Err(BadSetting::new("--server", server, problem, fits));
    }
    let data_dir = data_dir(&args.data_dir)?;
    Ok(KubeconfigConfig { data_dir, server: args.server, fingerprint: args.fingerprint })
}

fn doctor(args: DoctorArgs) -> Result<DoctorConfig, BadSetting> {
    Ok(DoctorConfig {
        data_dir: data_dir(&args.data_dir)?,
        listen: listen(&args.listen)?,
        output: args.output,
    })
}

fn name(given: Option<String>, host: &Host) -> Result<String, BadSetting> {
    // A name that was typed is taken as typed: changing it silently would surprise.
    let (name, source) = match given {
        Some(name) => (name, ""),
        None => (host.hostname.to_lowercase(), " (the host's name, since --name is not given)"),
    };
    match node_name::problem(&name) {
        None => Ok(name),
        Some(problem) => Err(BadSetting::new("--name", format!("{name}{source}"), problem, node_name::FITS)),
    }
}

fn listen(given: &[String]) -> Result<Vec<Listen>, BadSetting> {
    if given.is_empty() {
        return Ok(vec![
            Listen { address: (Ipv4Addr::UNSPECIFIED, API_PORT).into(), optional: false },
            Listen { address: (Ipv6Addr::UNSPECIFIED, API_PORT).into(), optional: true },
        ]);
    }
    let mut listen = Vec::<Listen>::new();
    for text in given {
        let bad = |problem: &str| {
            BadSetting::new("--listen", text, problem, "ADDR:PORT, such as 0.0.0.0:6443 or [::1]:6443")
        };
        let address = text.parse::<SocketAddr>().map_err(|_| bad(listen_problem(text)))?;
        if listen.iter().any(|other| other.address == address) {
            return Err(bad("it is given twice"));
        }
        listen.push(Listen { address, optional: false });
    }
    Ok(listen)
}

fn listen_problem(text: &str) -> &'static str {
    if text.parse::<IpAddr>().is_ok() {
        return "it has no port";
    }
    if text.parse::<u16>().is_ok() {
        return "it has no address";
    }
    match text.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_err() => "its port is not a number from 0 to 65535",
        Some(("", _)) => "it has no address",
        Some((host, _)) if host.parse::<Ipv6Addr>().is_ok() => "an IPv6 address needs brackets before a port",
        _ => "it is not an IP address with a port (names are not looked up)",
    }
}

fn advertise(given: Option<&str>, listen: &[Listen], host: &Host) -> Result<IpAddr, BadSetting> {
    let Some(text) = given else {
        // Whoever listens on one address only can be reached there only.
        let anywhere = listen.iter().any(|listen| listen.address.ip().is_unspecified());
        return Ok(match listen.first() {
            Some(listen) if !anywhere => listen.address.ip(),
            _ => host.advertised(),
        });
    };
    let fits = format!("an IP address that others reach this host by, such as {}", host.advertised());
    let bad = |problem: &str| BadSetting::new("--advertise", text, problem, &fits);
    let address: IpAddr = text.parse().map_err(|_| match text.parse::<SocketAddr>() {
        Ok(_) => bad("it has a port, which --listen decides"),
        Err(_) => bad("it is not an IP address"),
    })?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(bad("nobody can connect to that address"));
    }
    Ok(address)
}

fn vm_cidr(text: &str) -> Result<Cidr, BadSetting> {
    let fits = format!("an IPv4 network with room for machines, such as {DEFAULT_VM_CIDR}");
    let bad = |problem: &str| BadSetting::new("--vm-cidr", text, problem, &fits);
    let cidr = Cidr::parse(text).ok_or_else(|| bad("it is not an IPv4 network"))?;
    if !text.starts_with(&format!("{}/", cidr.network)) {
        return Err(bad("its address has bits that are not of the network"));
    }
    if cidr.network.is_loopback() || cidr.network.is_multicast() || cidr.network.is_link_local() {
        return Err(bad("machines cannot have such addresses"));
    }
    if !(8..=29).contains(&cidr.prefix) {
        return Err(bad("its prefix is not between 8 and 29"));
    }
    Ok(cidr)
}

fn audit_log(
    given: Option<&Path>,
    level: AuditLevel,
    data_dir: &Path,
) -> Result<Option<PathBuf>, BadSetting> {
    match given {
        _ if level == AuditLevel::None => Ok(None),
        None => Ok(Some(data_dir.join("audit/audit.log"))),
        Some(path) if path == Path::new("off") => Ok(None),
        Some(path) => {
            let bad = |problem: &str| {
                let fits = "off, or a file in a directory that is there, such as /var/log/sheaf-audit.log";
                BadSetting::new("--audit-log", path.display(), problem, fits)
            };
            let path = std::path::absolute(path).map_err(|why| bad(&why.to_string()))?;
            match path.is_dir() {
                true => Err(bad("it is a directory")),
                false => Ok(Some(path)),
            }
        }
    }
}

fn data_dir(given: &Path) -> Result<PathBuf, BadSetting> {
    std::path::absolute(given).map_err(|why| {
        BadSetting::new("--data-dir", given.display(), why.to_string(), "a directory, such as /var/lib/sheaf")
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
