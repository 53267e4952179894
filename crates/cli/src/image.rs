//! `sheaf image upload`: an image of a file on this computer.
//!
//! The file is sent as it is read. What was begun and broke off can be done again: the object that is there by then is
//! used, and its bytes are sent from the beginning.

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
use http_body_util::{BodyExt, StreamBody};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use sheaf_client::{api, streams::StreamError};
use sheaf_resources::kinds::virtual_machine_image::{IMPORTED, VirtualMachineImage};
use tokio::{
    fs::File,
    io::AsyncReadExt,
    time::{interval, sleep},
};

use crate::{
    UploadConfig,
    cluster::{Cluster, ClusterError},
    progress::Progress,
};

/// What is read and sent at once.
const PIECE: usize = 256 * 1024;
const SHOW_EVERY: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    #[error("the image {namespace}/{name} could not be imported: {why}")]
    NotImported { namespace: String, name: String, why: String },
}

impl From<serde_json::Error> for ImageError {
    fn from(why: serde_json::Error) -> Self {
        ImageError::Refused(kube::Error::SerdeError(why))
    }
}

/// `sheaf image upload`.
pub async fn upload(config: &UploadConfig) -> Result<(), ImageError> {
    let cluster = Cluster::of(&config.kubeconfig).await?;
    let mut progress = Progress::on_stderr();
    let place = Place { namespace: &config.namespace, name: &config.name };
    let file = Source::open(&config.file).await?;
    if find(&cluster, place).await?.is_some_and(|image| image.is_imported()) {
        return Err(place.already_there());
    }
    bring(&cluster, place, file, &mut progress).await?;
    let image = imported(&cluster, place, &mut progress).await?;
    progress.done(&format!(
        "the image {}/{} is there; disks of it have the storage class {}",
        config.namespace, config.name, image.status.storage_class_name
    ));
    Ok(())
}

#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

impl Place<'_> {
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
    let images: Api<VirtualMachineImage> = Api::namespaced(cluster.objects.clone(), place.namespace);
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
    let Source { path, file, size } = source;
    let sent = Arc::new(AtomicU64::new(0));
    let request = Request::post(format!(
        "/v1/harvester/harvesterhci.io.virtualmachineimages/{}/{}?action=upload&size={size}",
        place.namespace, place.name
    ))
    .header(header::CONTENT_TYPE, "application/octet-stream")
    .header(header::CONTENT_LENGTH, size)
    .body(StreamBody::new(pieces(file, sent.clone())))
    .map_err(|why| ImageError::NotTaken { path: path.clone(), source: why.into() })?;

    let what = format!("uploading {}", path.file_name().unwrap_or_default().to_string_lossy());
    let mut sending = std::pin::pin!(cluster.streams.send(request));
    let mut ticks = interval(SHOW_EVERY);
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut sending => break answer,
            _ = ticks.tick() => progress.count(&what, sent.load(Ordering::Relaxed), size),
        }
    };
    let answer = answer.map_err(|source| ImageError::NotTaken { path, source })?;
    // Read to the end, so that the connection ends in order.
    _ = answer.into_body().collect().await;
    progress.count(&what, size, size);
    Ok(())
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
