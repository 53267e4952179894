//! `sheaf context`: the clusters that are remembered, and which of them is meant.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use super::{file, kubeconfig_file::KubeconfigFile};
use crate::{
    BadSetting, Host,
    asking::{
        Refusal, names,
        out::Out,
        table::{Cell, laid_out},
    },
    completing,
    nearest_name::nearest,
};

#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Print the contexts there are
    #[command(visible_alias = "ls")]
    List(FileArgs),
    /// Make a context the one that is meant when none is named
    Use(UseArgs),
    /// Forget a context: its cluster and what was kept for signing in there
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, ClapArgs)]
pub struct FileArgs {
    /// The kubeconfig [default: the first that KUBECONFIG names, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct UseArgs {
    /// The context
    #[arg(add = completing::contexts())]
    pub name: String,
    /// Namespace to work in from then on
    #[arg(short, long, value_name = "NAME", value_parser = names::object)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub file: FileArgs,
}

#[derive(Debug, ClapArgs)]
pub struct DeleteArgs {
    /// The context
    #[arg(add = completing::contexts())]
    pub name: String,
    #[command(flatten)]
    pub file: FileArgs,
}

/// `sheaf context`.
#[derive(Debug)]
pub struct ContextConfig {
    /// All that are read. The first is the one that says which context is meant.
    pub kubeconfigs: Vec<PathBuf>,
    pub command: ContextCommand,
}

impl ContextConfig {
    pub fn new(command: ContextCommand, host: &Host) -> Result<ContextConfig, BadSetting> {
        let typed = match &command {
            ContextCommand::List(args) => args,
            ContextCommand::Use(args) => &args.file,
            ContextCommand::Delete(args) => &args.file,
        };
        let mut kubeconfigs = vec![file(typed.kubeconfig.clone(), host)?];
        if typed.kubeconfig.is_none() {
            kubeconfigs.extend(host.kubeconfigs.iter().skip(1).cloned());
        }
        Ok(ContextConfig { kubeconfigs, command })
    }
}

pub fn run(config: &ContextConfig) -> Result<(), Refusal> {
    let mut files: Vec<KubeconfigFile> =
        config.kubeconfigs.iter().map(|path| KubeconfigFile::open(path)).collect::<Result<_, _>>()?;
    let out = Out::look();
    match &config.command {
        ContextCommand::List(_) => out.print(&table(&files, out)),
        ContextCommand::Use(args) => {
            let at = place_of(&files, &args.name)?;
            if let Some(namespace) = &args.namespace {
                files[at].set_namespace(&args.name, namespace);
                files[at].write()?;
            }
            files[0].choose(&args.name);
            files[0].write()?;
            out.print(&format!("the context {} is meant from now on\n", args.name))
        }
        ContextCommand::Delete(args) => {
            let at = place_of(&files, &args.name)?;
            files[at].forget(&args.name);
            files[at].write()?;
            out.print(&format!(
                "the context {} is forgotten; a session that it had ends by itself (`sheaf logout` ends one at once)\n",
                args.name
            ))
        }
    }
}

/// The file that has the context: the first that does is the one that counts.
fn place_of(files: &[KubeconfigFile], name: &str) -> Result<usize, Refusal> {
    if let Some(at) = files.iter().position(|file| file.has(name)) {
        return Ok(at);
    }
    let names: Vec<&str> =
        files.iter().flat_map(KubeconfigFile::contexts).filter_map(|one| one["name"].as_str()).collect();
    let paths: Vec<String> = files.iter().map(|file| file.path().display().to_string()).collect();
    Err(Refusal::NotFound {
        about: format!("context {name} in {}", paths.join(":")),
        meant: nearest(name, names.iter().copied()).map(str::to_owned),
        advice: "`sheaf context list` prints those there are, `sheaf login` makes one".to_owned(),
    })
}

fn table(files: &[KubeconfigFile], out: Out) -> String {
    let titles = ["", "NAME", "SERVER", "USER", "NAMESPACE"].map(str::to_owned).to_vec();
    let current = files.iter().map(KubeconfigFile::current).find(|name| !name.is_empty()).unwrap_or_default();
    let mut seen: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for file in files {
        for one in file.contexts() {
            let name = one["name"].as_str().unwrap_or_default();
            // What an earlier file says of a thing counts.
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            let text = |field: &str| one["context"][field].as_str().unwrap_or_default().to_owned();
            let mark = if name == current { "*" } else { " " };
            let server = files
                .iter()
                .map(|file| file.server_of(&text("cluster")).to_owned())
                .find(|one| !one.is_empty());
            let user = text("user").split('@').next().unwrap_or_default().to_owned();
            let cells =
                [mark.to_owned(), name.to_owned(), server.unwrap_or_default(), user, text("namespace")];
            rows.push(cells.map(Cell::from).to_vec());
        }
    }
    laid_out(titles, rows, out)
}
