//! `sheaf support-bundle`: everything that helps others to find out what is wrong with a cluster, in one file on this
//! computer, without its secrets.
//!
//! The cluster makes it, and this command waits, fetches it, looks whether it is whole and has the cluster forget it. It is
//! written under another name and renamed when all of it is there.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::json;
use sheaf_client::{api, objects::Objects, streams::StreamError};
use sheaf_resources::kinds::support_bundle::{ERROR, NAMESPACE, READY, SupportBundle};
use tokio::{io::AsyncWriteExt, time::sleep};

use crate::{
    SupportBundleConfig,
    asking::Access,
    cluster::{Cluster, ClusterError},
    progress::Progress,
};

const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, thiserror::Error)]
pub enum SupportBundleError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the cluster did not do it")]
    Refused(#[from] kube::Error),
    #[error("the support bundle {name} could not be made: {why}")]
    NotMade { name: String, why: String },
    #[error("the support bundle {name} cannot be fetched")]
    NotGiven {
        name: String,
        #[source]
        source: StreamError,
    },
    #[error(
        "the support bundle {name} stopped coming after {bytes} of {total} bytes; it is still in the cluster"
    )]
    CutShort { name: String, bytes: u64, total: u64 },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("what came is not a zip file; it is in {path}")]
    NotAZip {
        path: PathBuf,
        #[source]
        source: zip::result::ZipError,
    },
}

/// A bundle on this computer.
#[derive(Debug)]
pub struct Fetched {
    pub file: PathBuf,
    pub bytes: u64,
    /// How many files are in it, by the folder below its own.
    pub inside: BTreeMap<String, usize>,
}

impl Fetched {
    /// What is in it and what is not.
    pub fn as_text(&self) -> String {
        let mut text = format!(
            "{} has the support bundle ({} KiB).\n\nIn it:\n",
            self.file.display(),
            self.bytes / 1024
        );
        for (folder, count) in &self.inside {
            let (what, files) = (about(folder), if *count == 1 { "file" } else { "files" });
            text += &format!("  {folder:<28} {count:>5} {files:<5}  {what}\n");
        }
        text += "\nNot in it: values of Secrets and ConfigMaps, passwords, tokens, keys, user data of cloud-init, and disks and\n\
                 consoles of virtual machines. Names, addresses and events are: look through it before you send it to others.\n";
        text
    }
}

fn about(folder: &str) -> &'static str {
    match folder {
        "README.txt" => "what is where",
        "metadata.yaml" => "what the trouble is",
        "metrics.txt" => "what the API server counts",
        "bundleGenerationError.log" => "what could not be found out",
        "yamls" => "every object, without secrets",
        "nodes" => "hosts, logs and virtual machines",
        _ => "",
    }
}

/// Makes a bundle and fetches it.
pub async fn run(config: &SupportBundleConfig) -> Result<Fetched, SupportBundleError> {
    let cluster = Cluster::of(&Access::of(&config.kubeconfig)).await?;
    let bundles: Objects<SupportBundle> = Objects::namespaced(cluster.objects.clone(), NAMESPACE);
    let mut progress = Progress::on_stderr();
    let wanted = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "SupportBundle",
        "metadata": {"generateName": "bundle-", "namespace": NAMESPACE},
        "spec": {"description": config.description, "issueURL": config.issue_url},
    });
    // As it is written here: an empty description is one, too.
    let wanted: DynamicObject = serde_json::from_value(wanted).map_err(kube::Error::SerdeError)?;
    let resource = api::built_in("harvesterhci.io", "v1beta1", "SupportBundle", "supportbundles");
    let made =
        api::objects(&cluster.objects, &resource, NAMESPACE).create(&PostParams::default(), &wanted).await?;
    let name = made.metadata.name.clone().unwrap_or_default();
    let ready = wait(&bundles, &name, &mut progress).await?;
    let file = match &config.output {
        Some(file) => file.clone(),
        None => PathBuf::from(ready.file_name()),
    };
    let bytes = fetch(&cluster, &name, &file, &mut progress).await?;
    let inside = list(&file).map_err(|source| SupportBundleError::NotAZip { path: file.clone(), source })?;
    if !config.keep {
        // It goes by itself after a while; who may make one need not be who may delete one.
        let deleted = bundles.delete(&name, &DeleteParams::default()).await;
        if let Err(why) = deleted {
            progress.say(&format!("the cluster still has the bundle {name}: {why}"));
        }
    }
    progress.done(&format!("{} has the support bundle {name}", file.display()));
    Ok(Fetched { file, bytes, inside })
}

/// The bundle once it can be fetched.
async fn wait(
    bundles: &Objects<SupportBundle>,
    name: &str,
    progress: &mut Progress,
) -> Result<SupportBundle, SupportBundleError> {
    let not_made = |why: &str| SupportBundleError::NotMade { name: name.to_owned(), why: why.to_owned() };
    loop {
        let bundle = match bundles.get_opt(name).await {
            Ok(bundle) => bundle.ok_or_else(|| not_made("it was deleted meanwhile"))?,
            // A node that is started again answers in a moment.
            Err(kube::Error::Api(why)) => return Err(kube::Error::Api(why).into()),
            Err(why) => {
                progress.say(&format!("the cluster does not answer: {why}"));
                sleep(LOOK_EVERY).await;
                continue;
            }
        };
        let status = &bundle.status;
        match status.state.as_str() {
            READY => return Ok(bundle),
            ERROR => return Err(not_made(status.conditions.first().map_or("", |one| one.message.as_str()))),
            "" => progress.say(&format!("the bundle {name} waits for a node that is ready")),
            _ => progress
                .say(&format!("node {} makes the bundle {name}: {} %", status.node_name, status.progress)),
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn fetch(
    cluster: &Cluster,
    name: &str,
    file: &Path,
    progress: &mut Progress,
) -> Result<u64, SupportBundleError> {
    let not_given = |source| SupportBundleError::NotGiven { name: name.to_owned(), source };
    // Deleted by us, once all of it is on the disk here.
    let request = Request::get(format!("/v1/harvester/supportbundles/{name}/download?retain=true"));
    let request = request.body(Empty::<Bytes>::new()).map_err(|why| not_given(why.into()))?;
    let answer = cluster.streams.send(request).await.map_err(not_given)?;
    let length = answer.headers().get(http::header::CONTENT_LENGTH);
    let total = length.and_then(|text| text.to_str().ok()?.parse::<u64>().ok()).unwrap_or(0);
    let partial = partial_name(file);
    let failed = |source| SupportBundleError::Write { path: partial.clone(), source };
    let mut options = tokio::fs::OpenOptions::new();
    // Others on this computer have no business with it.
    let mut out =
        options.create(true).truncate(true).write(true).mode(0o600).open(&partial).await.map_err(failed)?;
    let (mut body, mut bytes) = (answer.into_body(), 0);
    while let Some(Ok(frame)) = body.frame().await {
        let data = frame.into_data().unwrap_or_default();
        out.write_all(&data).await.map_err(failed)?;
        bytes += data.len() as u64;
        progress.count("fetching the support bundle", bytes, total);
    }
    out.flush().await.map_err(failed)?;
    out.sync_all().await.map_err(failed)?;
    if bytes != total || total == 0 {
        _ = tokio::fs::remove_file(&partial).await;
        return Err(SupportBundleError::CutShort { name: name.to_owned(), bytes, total });
    }
    tokio::fs::rename(&partial, file).await.map_err(failed)?;
    Ok(bytes)
}

fn partial_name(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    file.with_file_name(name)
}

/// How many files there are, by the first step of their paths below the folder that all are in.
fn list(file: &Path) -> Result<BTreeMap<String, usize>, zip::result::ZipError> {
    let archive = zip::ZipArchive::new(File::open(file)?)?;
    let mut inside = BTreeMap::new();
    for name in archive.file_names() {
        let name = name?;
        let step = name.split('/').nth(1).unwrap_or(&name);
        *inside.entry(step.to_owned()).or_default() += 1;
    }
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_says_what_is_in_it_and_what_is_not() {
        let inside = BTreeMap::from([("yamls".to_owned(), 12), ("README.txt".to_owned(), 1)]);
        let text = Fetched { file: "b.zip".into(), bytes: 4096, inside }.as_text();
        for part in
            ["b.zip", "4 KiB", "every object, without secrets", "12 files", "Not in it: values of Secrets"]
        {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn half_a_file_has_another_name() {
        assert_eq!(partial_name(Path::new("/a/b.zip")), Path::new("/a/b.zip.partial"));
    }
}
