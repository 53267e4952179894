//! The words of the command line, as typed. What they mean is decided in `config`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::{
    login::{LoginArgs, contexts::ContextCommand},
    nouns::AskCommand,
};

pub(crate) const DEFAULT_VM_CIDR: &str = "10.52.0.0/16";
pub const DEFAULT_DATA_DIR: &str = "/var/lib/sheaf";

/// Turns Linux servers into one cluster for virtual machines.
#[derive(Debug, Parser)]
#[command(name = "sheaf", version, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run this node in the foreground until it is told to stop (SIGTERM or Ctrl-C)
    Up(UpArgs),
    /// Stop the node on this host; its virtual machines run on unless told otherwise
    Down(DownArgs),
    /// Make this host a node for good: a systemd service that starts with it
    Install(InstallArgs),
    /// Show it: a small Debian with an address, a console and SSH, on a node that runs
    Demo(DemoArgs),
    #[command(flatten)]
    Ask(AskCommand),
    /// Sign in to a cluster, and remember it as a context of the kubeconfig
    Login(LoginArgs),
    /// The clusters that are remembered, and which of them is meant
    #[command(subcommand)]
    Context(ContextCommand),
    /// Gather what helps others to find out what is wrong, without secrets, in a file on this computer
    SupportBundle(SupportBundleArgs),
    /// Print the administrator's kubeconfig of the node on this host
    Kubeconfig(KubeconfigArgs),
    /// Make a new key for secrets at rest, seal all of them with it and forget the old one
    RotateKey(RotateKeyArgs),
    /// Check this host for what a node needs, and say how to get what is missing
    Doctor(DoctorArgs),
    /// Print the version
    Version(VersionArgs),
    /// Print a script that completes commands in a shell
    Completions(CompletionsArgs),
    /// Become QEMU, as the order on standard input says
    #[command(hide = true)]
    LaunchMachine,
}

#[derive(Debug, Default, ClapArgs)]
pub struct UpArgs {
    /// Name of this node [default: the host's name, in lower case]
    #[arg(long)]
    pub name: Option<String>,
    /// Address under which clients and other nodes reach this one [default: the address
    /// of the default route; the listen address if only one address is listened on]
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,
    /// Where everything is kept
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Address and port to serve the API on; may be given several times. An IPv6 address
    /// means IPv6 only [default: 0.0.0.0:6443, and [::]:6443 where there is IPv6]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
    /// Addresses of the default network of virtual machines; settled by the first start
    #[arg(long, value_name = "CIDR", default_value = DEFAULT_VM_CIDR)]
    pub vm_cidr: String,
    /// File with the password that user `admin` gets at the first start [default: a random
    /// one, written to DIR/admin-password]
    #[arg(long, value_name = "FILE")]
    pub admin_password_file: Option<PathBuf>,
    /// File that it is written to who did what through the API, or `off` [default: DIR/audit/audit.log]
    #[arg(long, value_name = "FILE|off")]
    pub audit_log: Option<PathBuf>,
    /// How much the audit log says of a request: who and what, also what was sent, also what was answered
    #[arg(long, value_enum, ignore_case = true, default_value_t = AuditLevel::Metadata)]
    pub audit_level: AuditLevel,
    /// How log lines look on standard error; SHEAF_LOG chooses which (such as `debug`)
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Keep the cluster's objects in an etcd that runs already instead of in DIR. For benchmarks and tests:
    /// nodes find their etcd by themselves
    #[arg(long, value_name = "URL", hide = true)]
    pub etcd: Option<String>,
    /// Make every sync of the embedded store take so much longer. For benchmarks: it stands in for a
    /// slower disk
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0, hide = true)]
    pub sync_delay_ms: u64,
    /// Die (SIGKILL) after so many steps on this host. For tests: what the next start makes of it must be right
    #[arg(long, value_name = "NUMBER", hide = true)]
    pub die_after_step: Option<u64>,
    /// The same, with the number in a file, or the name of a step; steps are counted from when it is there, and the
    /// file is taken away
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "die_after_step")]
    pub die_as_told_in: Option<PathBuf>,
    /// Fetch images from this host itself and its link, too. For tests: elsewhere it would let whoever may make an
    /// image look into the host's own services
    #[arg(long, hide = true)]
    pub allow_local_images: bool,
    /// When ready, also say where things are and what to type next, as on a terminal
    #[arg(long)]
    pub hints: bool,
}

/// Which cluster is meant.
#[derive(Debug, Default, ClapArgs)]
pub struct ClusterArgs {
    /// Kubeconfig of the cluster [default: what KUBECONFIG names, or ~/.kube/config, or that of the node on this host]
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub kubeconfig: Option<PathBuf>,
    /// Data directory of the node on this host, whose administrator to be
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct DownArgs {
    /// The node's data directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Also stop its virtual machines: press their power buttons, and cut the power of those that do not obey. What
    /// should run runs again when the node is started
    #[arg(long)]
    pub stop_vms: bool,
    /// How long guests may take to shut down
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "stop_vms")]
    pub grace: u64,
}

#[derive(Debug, ClapArgs)]
pub struct InstallArgs {
    /// Where the node will keep everything
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Write below DIR instead of /, and start nothing: for making an image of a host
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct DemoArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Disk image of the guest, with cloud-init and SSH: a file, or a URL that the node can reach [default: a small
    /// Debian, made here from Debian's packages]
    #[arg(long, value_name = "FILE|URL")]
    pub image: Option<String>,
    /// Name of the virtual machine, its image and its key
    #[arg(long, default_value = "demo")]
    pub name: String,
    /// Namespace of the virtual machine
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub namespace: String,
}

#[derive(Debug, ClapArgs)]
pub struct SupportBundleArgs {
    /// The file to write [default: supportbundle_..., in the working directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What the trouble is; it is written into the bundle
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,
    /// Where the trouble is written down
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    pub issue_url: String,
    /// Leave the bundle in the cluster, too, until it expires
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

#[derive(Debug, ClapArgs)]
pub struct KubeconfigArgs {
    /// The node's data directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Address of the API to put in, where clients reach it by another one
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Print the fingerprint of the certificate authority instead, for `sheaf login` on another computer
    #[arg(long, conflicts_with = "server")]
    pub fingerprint: bool,
}

#[derive(Debug, ClapArgs)]
pub struct RotateKeyArgs {
    /// The node's data directory; the node must be running
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// The data directory that the node uses or will use
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Address and port that the node uses or will use; may be given several times
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
    /// How to print what was found
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
}

#[derive(Debug, ClapArgs)]
pub struct VersionArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
}

#[derive(Debug, ClapArgs)]
pub struct CompletionsArgs {
    pub shell: clap_complete::Shell,
}

/// In the original's spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditLevel {
    #[value(name = "None")]
    None,
    #[default]
    #[value(name = "Metadata")]
    Metadata,
    #[value(name = "Request")]
    Request,
    #[value(name = "RequestResponse")]
    RequestResponse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    #[default]
    Text,
    Json,
}
