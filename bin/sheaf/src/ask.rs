//! The commands that ask a running node, over its API like any other client.

use std::{path::Path, process::ExitCode};

use sheaf_apiserver::dispatch::ROTATE_KEY;
use tokio::runtime::Builder;

use crate::{data_dir::Layout, failure::Failure, look};

pub fn rotate_key(data_dir: &Path) -> Result<ExitCode, Failure> {
    let text = look::admin_kubeconfig(&Layout::new(data_dir))?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
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
