//! `sheaf image upload`: an image of a file on this computer.
//!
//! The file is sent as it is read. When the line breaks, the cluster is asked how much of the file it has and the rest is
//! sent, a few times by itself and otherwise when the command is given again: the object that is there by then is used.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use http::{Request, header};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Limited, StreamBody};
use kube::api::PostParams;
use serde_json::{Value, json};
use sheaf_client::{api, objects::Objects, streams::StreamError};
use sheaf_resources::{
    kinds::virtual_machine_image::{IMPORTED, VirtualMachineImage},
    path::encoded,
};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt, SeekFrom},
    time::{interval, sleep},
};

use clap::Args as ClapArgs;

use crate::{
    asking::{Session, names},
    cluster::{Cluster, ClusterError},
    progress::Progress,
};

/// What is read and sent at once.
const PIECE: usize = 256 * 1024;
const SHOW_EVERY: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Over a line that breaks.
const MOST_ATTEMPTS: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not a file")]
    NotAFile { path: PathBuf },
    #[error("the cluster did not do it")]
    Refused(#[from] kube::Error),
    #[error("{path} was not taken")]
    NotTaken {
        path: PathBuf,
        #[source]
        source: StreamError,
    },
    #[error("there is an image {namespace}/{name} already: choose another --name, or delete it")]
    AlreadyThere { namespace: String, name: String },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the image {namespace}/{name} cannot be read")]
    NotGiven {
        namespace: String,
        name: String,
        #[source]
        source: StreamError,
    },
    #[error(
        "the image {namespace}/{name} stopped coming after {bytes} bytes; the same command goes on from there"
    )]
    CutShort { namespace: String, name: String, bytes: u64 },
    #[error("the image {namespace}/{name} could not be imported: {why}")]
    NotImported { namespace: String, name: String, why: String },
}

impl From<serde_json::Error> for ImageError {
    fn from(why: serde_json::Error) -> Self {
        ImageError::Refused(kube::Error::SerdeError(why))
    }
}

#[derive(Debug, ClapArgs)]
pub struct UploadArgs {
    /// The file
    pub file: PathBuf,
    /// Name of the image
    #[arg(long, value_parser = names::object)]
    pub name: String,
}

/// `sheaf image upload`.
pub async fn upload(session: &Session, args: &UploadArgs) -> Result<(), ImageError> {
    let cluster = &session.cluster;
    let mut progress = Progress::on_stderr();
    let place = Place { namespace: &session.namespace, name: &args.name };
    let file = Source::open(&args.file).await?;
    if find(cluster, place).await?.is_some_and(|image| image.is_imported()) {
        return Err(place.already_there());
    }
    bring(cluster, place, file, &mut progress).await?;
    let image = imported(cluster, place, &mut progress).await?;
    progress.done(&format!(
        "the image {}/{} is there; disks of it have the storage class {}",
        place.namespace, place.name, image.status.storage_class_name
    ));
    Ok(())
}

#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

impl Place<'_> {
    /// Where the bytes of an image are asked for.
    pub fn path(self) -> String {
        let (namespace, name) = (encoded(self.namespace), encoded(self.name));
        format!("/v1/harvester/harvesterhci.io.virtualmachineimages/{namespace}/{name}")
    }

    fn already_there(self) -> ImageError {
        ImageError::AlreadyThere { namespace: self.namespace.into(), name: self.name.into() }
    }
}

/// A file to be sent.
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Source {
    pub async fn open(path: &Path) -> Result<Source, ImageError> {
        let failed = |source| ImageError::Read { path: path.to_owned(), source };
        let file = File::open(path).await.map_err(failed)?;
        let about = file.metadata().await.map_err(failed)?;
        if !about.is_file() {
            return Err(ImageError::NotAFile { path: path.to_owned() });
        }
        Ok(Source { path: path.to_owned(), file, size: about.len() })
    }
}

pub(crate) async fn find(
    cluster: &Cluster,
    place: Place<'_>,
) -> Result<Option<VirtualMachineImage>, ImageError> {
    let images: Objects<VirtualMachineImage> = Objects::namespaced(cluster.objects.clone(), place.namespace);
    Ok(images.get_opt(place.name).await?)
}

/// Makes the object if it is not there.
pub(crate) async fn ensure(cluster: &Cluster, place: Place<'_>, spec: Value) -> Result<(), ImageError> {
    let resource = api::built_in("harvesterhci.io", "v1beta1", "VirtualMachineImage", "virtualmachineimages");
    let object = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": place.name, "namespace": place.namespace}, "spec": spec,
    });
    let images = api::objects(&cluster.objects, &resource, place.namespace);
    match images.create(&PostParams::default(), &serde_json::from_value(object)?).await {
        Err(why) if !api::is_already_exists(&why) => Err(why.into()),
        _ => Ok(()),
    }
}

/// Makes the image and sends the file.
pub(crate) async fn bring(
    cluster: &Cluster,
    place: Place<'_>,
    source: Source,
    progress: &mut Progress,
) -> Result<(), ImageError> {
    ensure(cluster, place, json!({"displayName": place.name, "sourceType": "upload"})).await?;
    let Source { path, mut file, size } = source;
    let what = format!("uploading {}", path.file_name().unwrap_or_default().to_string_lossy());
    let mut attempts = 0;
    loop {
        attempts += 1;
        let offset = here_already(cluster, place).await.filter(|offset| *offset < size).unwrap_or(0);
        let failed = |source| ImageError::Read { path: path.clone(), source };
        file.seek(SeekFrom::Start(offset)).await.map_err(failed)?;
        let sent = Arc::new(AtomicU64::new(offset));
        let read = file.try_clone().await.map_err(failed)?;
        let request = Request::post(format!("{}?action=upload&size={size}&offset={offset}", place.path()))
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::CONTENT_LENGTH, size - offset)
            .body(StreamBody::new(pieces(read, sent.clone())))
            .map_err(|why| ImageError::NotTaken { path: path.clone(), source: why.into() })?;
        let mut sending = std::pin::pin!(cluster.streams.send(request));
        let mut ticks = interval(SHOW_EVERY);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut sending => break answer,
                _ = ticks.tick() => progress.count(&what, sent.load(Ordering::Relaxed), size),
            }
        };
        match answer {
            Ok(answer) => {
                // Read to the end, so that the connection ends in order.
                _ = answer.into_body().collect().await;
                progress.count(&what, size, size);
                return Ok(());
            }
            Err(why) if is_a_broken_line(&why) && attempts < MOST_ATTEMPTS => {
                progress.say(&format!("{why}; going on in a moment"));
                sleep(TRY_AGAIN).await;
            }
            Err(source) => return Err(ImageError::NotTaken { path, source }),
        }
    }
}

/// Whether the same may go better in a moment: nobody said no.
fn is_a_broken_line(why: &StreamError) -> bool {
    matches!(why, StreamError::Broken { .. } | StreamError::Unreachable { .. })
}

/// How much of a file the cluster has of an upload that broke off; none where it does not say.
async fn here_already(cluster: &Cluster, place: Place<'_>) -> Option<u64> {
    let request = Request::get(format!("{}/upload", place.path())).body(Empty::<Bytes>::new()).ok()?;
    let answer = cluster.streams.send(request).await.ok()?;
    let body = Limited::new(answer.into_body(), 4096).collect().await.ok()?.to_bytes();
    serde_json::from_slice::<Value>(&body).ok()?["offset"].as_u64()
}

fn pieces(file: File, sent: Arc<AtomicU64>) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send + 'static {
    futures::stream::try_unfold((file, sent), async |(mut file, sent)| {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await?;
        sent.fetch_add(read as u64, Ordering::Relaxed);
        Ok((read > 0).then(|| (Frame::data(piece.freeze()), (file, sent))))
    })
}

/// The image once all of it is there and checked.
pub(crate) async fn imported(
    cluster: &Cluster,
    place: Place<'_>,
    progress: &mut Progress,
) -> Result<VirtualMachineImage, ImageError> {
    let not_imported = |why: String| ImageError::NotImported {
        namespace: place.namespace.into(),
        name: place.name.into(),
        why,
    };
    loop {
        let Some(image) = find(cluster, place).await? else {
            return Err(not_imported("it was deleted meanwhile".into()));
        };
        match image.condition(IMPORTED) {
            Some(condition) if condition.status == "True" => return Ok(image),
            Some(condition) if condition.status == "False" => {
                return Err(not_imported(condition.message.clone()));
            }
            Some(condition) if !condition.message.is_empty() => {
                progress.say(&format!("waiting for the image {}: {}", place.name, condition.message));
            }
            _ if image.spec.source_type == "download" => {
                progress
                    .say(&format!("the node fetches the image {}: {} %", place.name, image.status.progress));
            }
            _ => progress.say(&format!("waiting for the image {} to be checked", place.name)),
        }
        sleep(LOOK_EVERY).await;
    }
}
