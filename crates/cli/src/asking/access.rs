//! Which cluster is meant, as whom, and where in it.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;

use super::{Format, names};
use crate::{BadSetting, Host, args::DEFAULT_DATA_DIR};

/// What a node calls the kubeconfig of its administrator.
const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
const HEADING: &str = "Cluster";

/// What every command that asks a cluster can be told.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct AskArgs {
    /// Kubeconfig of the cluster [default: what KUBECONFIG names, or ~/.kube/config, or that of the node on this host]
    #[arg(long, value_name = "FILE", global = true, help_heading = HEADING)]
    pub kubeconfig: Option<PathBuf>,
    /// Data directory of the node on this host, whose administrator to be
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "kubeconfig", help_heading = HEADING)]
    pub data_dir: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", global = true, help_heading = HEADING, add = crate::completing::contexts())]
    pub context: Option<String>,
    /// Namespace to work in [default: that of the context, or `default`]
    #[arg(short, long, value_name = "NAME", global = true, help_heading = HEADING, value_parser = names::object,
        add = crate::completing::namespaces())]
    pub namespace: Option<String>,
    /// How to print objects
    #[arg(short, long, value_enum, global = true, help_heading = HEADING, default_value_t)]
    pub output: Format,
}

/// The same, settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Absolute. What the first says of a thing counts, as with kubectl.
    pub kubeconfigs: Vec<PathBuf>,
    pub context: Option<String>,
    pub namespace: Option<String>,
}

impl Access {
    /// What was typed, before what the environment says, before what is usual.
    pub fn new(args: &AskArgs, host: &Host) -> Result<Access, BadSetting> {
        let (setting, paths) = match (&args.kubeconfig, &args.data_dir) {
            (Some(file), _) => ("--kubeconfig", vec![file.clone()]),
            (None, Some(directory)) => ("--data-dir", vec![directory.join(ADMIN_KUBECONFIG)]),
            (None, None) if !host.kubeconfigs.is_empty() => ("KUBECONFIG", host.kubeconfigs.clone()),
            (None, None) => match &host.home_kubeconfig {
                Some(file) => ("~/.kube/config", vec![file.clone()]),
                None => ("--data-dir", vec![Path::new(DEFAULT_DATA_DIR).join(ADMIN_KUBECONFIG)]),
            },
        };
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|why| {
                BadSetting::new(setting, path.display(), why.to_string(), "the path of a kubeconfig")
            })
        };
        Ok(Access {
            kubeconfigs: paths.iter().map(absolute).collect::<Result<_, _>>()?,
            context: args.context.clone(),
            namespace: args.namespace.clone(),
        })
    }

    /// Of what is said about them.
    pub fn paths(&self) -> String {
        self.kubeconfigs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
    }

    /// Of one file, as it stands.
    pub fn of(kubeconfig: &Path) -> Access {
        Access { kubeconfigs: vec![kubeconfig.to_owned()], context: None, namespace: None }
    }
}
