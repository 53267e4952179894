//! The commands that only look and print.

use std::{env, fs, io, io::Write, path::Path, process::ExitCode};

use sheaf_cli::{
    DoctorConfig, InstallConfig, KubeconfigConfig, OutputFormat, Shell, completing, doctor, install,
    kubeconfig, version::Version,
};
use sheaf_world::World;

use crate::{
    data_dir::{self, Layout},
    failure::Failure,
};

/// The version of Kubernetes whose API is served, as `/version` tells it.
use sheaf_apiserver::KUBERNETES_VERSION;

pub fn version(output: OutputFormat) -> Result<ExitCode, Failure> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("SHEAF_COMMIT"),
        kubernetes: KUBERNETES_VERSION,
    };
    print(&match output {
        OutputFormat::Text => version.as_text() + "\n",
        OutputFormat::Json => version.as_json() + "\n",
    })
}

/// The administrator's kubeconfig of the node on this host.
pub fn admin_kubeconfig(layout: &Layout) -> Result<String, Failure> {
    let path = layout.admin_kubeconfig();
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Err(Failure::NoKubeconfig { path }),
        Err(source) => Err(Failure::Read { path, source }),
    }
}

pub fn kubeconfig(config: &KubeconfigConfig) -> Result<ExitCode, Failure> {
    let text = admin_kubeconfig(&Layout::new(&config.data_dir))?;
    print(&match &config.server {
        Some(server) => kubeconfig::with_server(&text, server)?,
        None if config.fingerprint => format!("{}\n", kubeconfig::fingerprint(&text)?),
        None => text,
    })
}

pub fn doctor(config: &DoctorConfig) -> Result<ExitCode, Failure> {
    let layout = Layout::new(&config.data_dir);
    let findings = doctor::examine(&doctor::Patient {
        root: Path::new("/"),
        path: env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect(),
        data_dir: &config.data_dir,
        listen: &config.listen,
        running: data_dir::holder(&layout),
        certificates: &certificates(&layout),
        now: World::real().clock.since_epoch(),
    });
    print(&match config.output {
        OutputFormat::Text => doctor::as_table(&findings),
        OutputFormat::Json => doctor::as_json(&findings) + "\n",
    })?;
    Ok(ExitCode::from(u8::from(doctor::worst(&findings) == doctor::Verdict::Fail)))
}

/// Does more than look, and says what.
pub fn install(config: &InstallConfig) -> Result<ExitCode, Failure> {
    print(&install::install(config)?)
}

pub fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    print(&String::from_utf8_lossy(&completing::script(shell)))
}

/// The node's certificates, as far as this user may read them.
fn certificates(layout: &Layout) -> Vec<doctor::Certificate> {
    let Ok(entries) = fs::read_dir(layout.pki()) else { return Vec::new() };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let is_certificate = |path: &&std::path::PathBuf| path.extension().is_some_and(|end| end == "crt");
    paths
        .iter()
        .filter(is_certificate)
        .filter_map(|path| {
            let facts = sheaf_pki::inspect(&fs::read_to_string(path).ok()?).ok()?;
            let name = path.file_stem()?.to_string_lossy().into_owned();
            Some(doctor::Certificate { name, expires: facts.not_after, is_authority: facts.is_ca })
        })
        .collect()
}

pub fn print(text: &str) -> Result<ExitCode, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // `sheaf ... | head` has what it wanted.
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Print(why)),
        _ => Ok(ExitCode::SUCCESS),
    }
}
