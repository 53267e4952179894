//! `sheaf image download`: a file on this computer of an image.
//!
//! It is written under another name and renamed when all of it is there, so what has the name is whole. What broke off is
//! gone on with: that other name has the image's uid in it, and an image never changes.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use tokio::{
    fs::{File, OpenOptions},
    io::AsyncWriteExt,
};

use clap::Args as ClapArgs;

use super::upload::{self, ImageError, Place};
use crate::{
    asking::{Session, names, resource::IMAGES},
    completing,
    progress::Progress,
};

#[derive(Debug, ClapArgs)]
pub struct DownloadArgs {
    /// The image
    #[arg(value_parser = names::segment, add = completing::names_of(&IMAGES))]
    pub name: String,
    /// The file to write; what is there already is replaced when all of it has come
    pub file: PathBuf,
}

/// `sheaf image download`.
pub async fn download(session: &Session, config: &DownloadArgs) -> Result<(), ImageError> {
    let (cluster, namespace) = (&session.cluster, &session.namespace);
    let mut progress = Progress::on_stderr();
    let place = Place { namespace, name: &config.name };
    let image = upload::find(cluster, place).await?;
    let uid = image.and_then(|image| image.metadata.uid).unwrap_or_default();
    let partial = partial_name(&config.file, &uid);
    let failed = |source| ImageError::Write { path: partial.clone(), source };
    let mut file = OpenOptions::new().create(true).append(true).open(&partial).await.map_err(failed)?;
    let here = file.metadata().await.map_err(failed)?.len();
    let mut request = Request::get(format!("{}/download", place.path()));
    if here > 0 {
        request = request.header(header::RANGE, format!("bytes={here}-"));
    }
    let not_given =
        |source| ImageError::NotGiven { namespace: namespace.clone(), name: config.name.clone(), source };
    let request = request.body(Empty::<Bytes>::new()).map_err(|why| not_given(why.into()))?;
    let answer = match cluster.streams.send(request).await {
        // Nothing was missing but the name; whether that is so is not worth finding out.
        Err(why) if here > 0 && is_beyond_the_end(&why) => {
            file.set_len(0).await.map_err(failed)?;
            let anew = Request::get(format!("{}/download", place.path())).body(Empty::<Bytes>::new());
            cluster.streams.send(anew.map_err(|why| not_given(why.into()))?).await.map_err(not_given)?
        }
        answer => answer.map_err(not_given)?,
    };
    let mut done = if answer.headers().contains_key(header::CONTENT_RANGE) { here } else { 0 };
    file.set_len(done).await.map_err(failed)?;
    let length = answer.headers().get(header::CONTENT_LENGTH);
    let total = done + length.and_then(|text| text.to_str().ok()?.parse::<u64>().ok()).unwrap_or(0);
    let what = format!("downloading {}", config.name);
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map(|frame| frame.into_data().unwrap_or_default()) else { break };
        file.write_all(&data).await.map_err(failed)?;
        done += data.len() as u64;
        progress.count(&what, done, total);
    }
    keep(file, done == total, &partial, &config.file).await.map_err(failed)?;
    if done != total {
        let (namespace, name) = (namespace.clone(), config.name.clone());
        return Err(ImageError::CutShort { namespace, name, bytes: done });
    }
    progress.done(&format!("{} has the image {}/{}", config.file.display(), namespace, config.name));
    Ok(())
}

fn is_beyond_the_end(why: &sheaf_client::streams::StreamError) -> bool {
    matches!(why, sheaf_client::streams::StreamError::Refused { code: 416, .. })
}

fn partial_name(file: &Path, uid: &str) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{uid}.partial"));
    file.with_file_name(name)
}

async fn keep(mut file: File, is_whole: bool, partial: &Path, path: &Path) -> std::io::Result<()> {
    file.flush().await?;
    file.sync_all().await?;
    match is_whole {
        true => tokio::fs::rename(partial, path).await,
        false => Ok(()),
    }
}
