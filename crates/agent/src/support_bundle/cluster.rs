//! The cluster's part of a bundle: every object, as the API server hands them out for this purpose, without their secrets.
//!
//! They come one by one, ordered by kind and namespace, and are written as they come: a file for each kind in each namespace.

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use sheaf_client::objects::{DEADLINE, within_deadline};
use sheaf_resources::path;

use super::archive::{Archive, Gone};

/// No object is nearly as large.
const LONGEST_LINE: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("the API server does not say what is in the cluster")]
    Api(#[source] Box<kube::Error>),
    #[error("what the API server says of the cluster broke off")]
    BrokenOff(#[source] std::io::Error),
    #[error("what the API server says of the cluster cannot be read: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Archive(#[from] Gone),
}

/// What is said first.
#[derive(Debug, Default, Deserialize)]
pub struct Head {
    pub objects: i64,
    #[serde(rename = "kubernetesVersion", default)]
    pub kubernetes_version: String,
    #[serde(rename = "namespaceUID", default)]
    pub namespace_uid: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Object { resource: String, namespace: String, object: Value },
    File { file: String, text: String },
    End { end: bool },
}

/// Writes all of it; `tell` is told how many of how many objects are done.
pub async fn gather(
    client: &Client,
    bundle: &str,
    archive: &Archive,
    tell: impl Fn(i64, i64),
) -> Result<Head, Failure> {
    let request =
        http::Request::get(format!("/v1/harvester/supportbundles/{}/cluster", path::encoded(bundle)));
    let request = request.body(Vec::new()).map_err(|why| Failure::Unreadable(why.to_string()))?;
    let lines = within_deadline(client.request_stream(request)).await;
    let lines = lines.map_err(|why| Failure::Api(Box::new(why)))?;
    let mut lines = std::pin::pin!(lines);
    let unreadable = |why: serde_json::Error| Failure::Unreadable(why.to_string());
    let first = line(&mut lines).await?;
    let head: Head = serde_json::from_slice(&first).map_err(unreadable)?;
    let (mut done, mut open) = (0, String::new());
    loop {
        match serde_json::from_slice(&line(&mut lines).await?).map_err(unreadable)? {
            Line::Object { resource, namespace, object } => {
                let path = path_of(&resource, &namespace);
                if path != open {
                    archive.entry(&path).await?;
                    archive.write("apiVersion: v1\nkind: List\nitems:\n").await?;
                    open = path;
                }
                let item = serde_yaml_ng::to_string(&[object]);
                archive.write(item.map_err(|why| Failure::Unreadable(why.to_string()))?).await?;
                done += 1;
                tell(done, head.objects);
            }
            Line::File { file, text } => {
                archive.add(&file, text).await?;
                open.clear();
            }
            Line::End { end: true } => return Ok(head),
            Line::End { end: false } => return Err(Failure::Unreadable("it ends without an end".into())),
        }
    }
}

fn path_of(resource: &str, namespace: &str) -> String {
    match namespace {
        "" => format!("yamls/cluster/{resource}.yaml"),
        namespace => format!("yamls/namespaced/{namespace}/{resource}.yaml"),
    }
}

/// The next line, without its end. There always is one: the last says that it is the last.
async fn line(lines: &mut (impl AsyncBufRead + Unpin)) -> Result<Vec<u8>, Failure> {
    let mut line = Vec::new();
    loop {
        let piece = tokio::time::timeout(DEADLINE, lines.fill_buf()).await;
        let piece = piece.map_err(|_| Failure::BrokenOff(std::io::ErrorKind::TimedOut.into()))?;
        let piece = piece.map_err(Failure::BrokenOff)?;
        if piece.is_empty() {
            return Err(Failure::BrokenOff(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(piece.len(), |end| end + 1);
        line.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        lines.consume_unpin(taken);
        if line.len() > LONGEST_LINE {
            return Err(Failure::Unreadable("an object is too large".into()));
        }
        if end.is_some() {
            return Ok(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_is_read_line_by_line_and_one_that_breaks_off_is_no_end() {
        let mut stream = futures::io::BufReader::with_capacity(3, &b"{\"a\":1}\n\n{\"half"[..]);
        assert_eq!(line(&mut stream).await.unwrap(), b"{\"a\":1}");
        assert_eq!(line(&mut stream).await.unwrap(), b"");
        assert!(matches!(line(&mut stream).await, Err(Failure::BrokenOff(_))));
    }

    #[test]
    fn objects_are_by_namespace_and_kind() {
        assert_eq!(path_of("v1/nodes", ""), "yamls/cluster/v1/nodes.yaml");
        assert_eq!(
            path_of("kubevirt.io/v1/virtualmachines", "a"),
            "yamls/namespaced/a/kubevirt.io/v1/virtualmachines.yaml"
        );
    }
}
