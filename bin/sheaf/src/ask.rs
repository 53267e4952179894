//! The commands that ask a running node, over its API like any other client.

use std::{env, path::Path, process::ExitCode};

use sheaf_apiserver::dispatch::ROTATE_KEY;
use sheaf_cli::{
    DemoConfig, SupportBundleConfig, demo,
    login::{self, LoginConfig, contexts::ContextConfig},
    nouns::{self, AskConfig},
    support_bundle,
};
use sheaf_world::World;
use tokio::runtime::{Builder, Runtime};

use crate::{data_dir::Layout, failure::Failure, look};

pub fn rotate_key(data_dir: &Path) -> Result<ExitCode, Failure> {
    let text = look::admin_kubeconfig(&Layout::new(data_dir))?;
    let runtime = runtime()?;
    let answer = runtime.block_on(async {
        let failed =
            |source| Failure::Ask { server: data_dir.display().to_string(), source: Box::new(source) };
        let client = sheaf_client::from_kubeconfig(&text).await.map_err(failed)?;
        let request = http::Request::post(ROTATE_KEY)
            .body(Vec::new())
            .map_err(|why| failed(kube::Error::HttpError(why)))?;
        client.request::<serde_json::Value>(request).await.map_err(failed)
    })?;
    let resealed = answer["resealed"].as_u64().unwrap_or_default();
    look::print(&format!(
        "a new key is in use; {resealed} secrets were sealed with it, and the old key is gone\n"
    ))
}

/// A machine to look at, and what to type next on standard output.
pub fn demo(config: &DemoConfig) -> Result<ExitCode, Failure> {
    let shown = runtime()?.block_on(demo::run(config, &World::real()))?;
    let program = env::args_os().next().unwrap_or_else(|| "sheaf".into());
    look::print(&shown.as_text(&program.to_string_lossy()))
}

/// Whatever is asked of a cluster with a verb and a noun.
pub fn ask(config: AskConfig) -> Result<ExitCode, Failure> {
    runtime()?.block_on(nouns::run(config, World::real()))?;
    Ok(ExitCode::SUCCESS)
}

pub fn login(config: &LoginConfig) -> Result<ExitCode, Failure> {
    runtime()?.block_on(login::run(config, World::real()))?;
    Ok(ExitCode::SUCCESS)
}

pub fn context(config: &ContextConfig) -> Result<ExitCode, Failure> {
    login::contexts::run(config)?;
    Ok(ExitCode::SUCCESS)
}

/// What was fetched is told on standard output.
pub fn support_bundle(config: &SupportBundleConfig) -> Result<ExitCode, Failure> {
    let fetched = runtime()?.block_on(support_bundle::run(config))?;
    look::print(&fetched.as_text())
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)
}
