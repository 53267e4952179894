//! Why a command that asked a cluster did not do what it was asked, and with which code it ends.
//!
//! | code | means |
//! |---|---|
//! | 0 | done |
//! | 1 | the cluster did not do it, or it went wrong |
//! | 2 | what was typed cannot be meant, or nobody said yes |
//! | 3 | there is no such thing |
//! | 4 | not allowed, or not signed in |
//! | 5 | it is there already, or somebody else changed it meanwhile |
//! | 6 | the cluster cannot be reached |
//! | 7 | waited in vain |
//!
//! The table stands in `docs/guides/command-line.md`, too.

use std::{error::Error, io, path::PathBuf};

use serde_json::Value;

use sheaf_client::streams::StreamError;

use crate::{
    cluster::ClusterError,
    nouns::{image::upload::ImageError, vm::console::ConsoleError},
};

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("there is no {about}{}", .meant.as_ref().map(|name| format!(": did you mean {name}?")).unwrap_or_else(|| format!("{}{advice}", if .advice.is_empty() { "" } else { ": " })))]
    NotFound { about: String, meant: Option<String>, advice: String },
    #[error("you may not {doing}: {message}")]
    Forbidden { doing: String, message: String },
    #[error(
        "{server} does not know you: the session has ended, or the kubeconfig {kubeconfig} is of another cluster; `sheaf login {server}` signs in again"
    )]
    NotSignedIn { server: String, kubeconfig: String },
    /// Something that is needed for it.
    #[error("cannot {doing}: {message}")]
    Missing { doing: String, message: String },
    #[error("cannot {doing}: {message}")]
    Conflict { doing: String, message: String },
    #[error("cannot {doing}: {message}")]
    Refused { doing: String, message: String },
    #[error("cannot reach the cluster at {server} ({why}): is it running, and is that its address?")]
    Unreachable { server: String, why: String },
    #[error("waited {waited} for {what}, and it has not come to that; it stands so: {last}")]
    TimedOut { what: String, waited: String, last: String },
    #[error("{0}")]
    Wrong(String),
    #[error("nothing was done: {0}")]
    NotConfirmed(String),
    #[error("cannot {doing}")]
    Cannot {
        doing: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Console(#[from] ConsoleError),
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Whoever read what was printed has seen enough.
    #[error("nobody reads what is printed")]
    NobodyReads,
    /// A program that was started for it ended with this code, and said why itself.
    #[error("the program that was started ended with code {0}")]
    Ended(u8),
}

impl Refusal {
    pub fn cannot(doing: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Refusal {
        Refusal::Cannot { doing: doing.to_owned(), source: source.into() }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Refusal::NobodyReads => 0,
            Refusal::Wrong(_) | Refusal::NotConfirmed(_) => 2,
            Refusal::NotFound { .. } | Refusal::Missing { .. } => 3,
            Refusal::Cluster(ClusterError::NoContext { .. }) => 3,
            Refusal::Cluster(ClusterError::NoKubeconfig { .. }) => 4,
            Refusal::Image(ImageError::AlreadyThere { .. }) => 5,
            Refusal::Forbidden { .. } | Refusal::NotSignedIn { .. } => 4,
            Refusal::Conflict { .. } => 5,
            Refusal::Unreachable { .. } => 6,
            Refusal::TimedOut { .. } => 7,
            Refusal::Ended(code) => *code,
            Refusal::Cannot { source, .. } => source.downcast_ref::<StreamError>().map_or(1, code_of_stream),
            Refusal::Console(ConsoleError::Open { source, .. })
            | Refusal::Image(ImageError::NotTaken { source, .. } | ImageError::NotGiven { source, .. }) => {
                code_of_stream(source)
            }
            Refusal::Refused { .. }
            | Refusal::Read { .. }
            | Refusal::Write { .. }
            | Refusal::Console(_)
            | Refusal::Image(_)
            | Refusal::Cluster(_) => 1,
        }
    }

    /// Whether it has said all there is to say.
    pub fn is_silent(&self) -> bool {
        matches!(self, Refusal::NobodyReads | Refusal::Ended(_))
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Refusal::NotFound { .. } | Refusal::Missing { .. })
    }

    pub fn is_conflict(&self) -> bool {
        matches!(self, Refusal::Conflict { .. })
    }
}

fn code_of_stream(why: &StreamError) -> u8 {
    match why {
        StreamError::Refused { code: 401 | 403, .. } => 4,
        StreamError::Refused { code: 404, .. } => 3,
        StreamError::Refused { code: 409, .. } => 5,
        StreamError::Unreachable { .. } => 6,
        _ => 1,
    }
}

/// What was said, also by Rancher's API, whose errors are none of Kubernetes'.
pub fn sentence(message: &str) -> String {
    let read = |text: &str| {
        let told = serde_json::from_str::<Value>(text).ok()?;
        // Also as a text that is itself JSON.
        let told = match told.as_str() {
            Some(inside) => serde_json::from_str(inside).ok()?,
            None => told,
        };
        told["message"].as_str().map(str::to_owned)
    };
    read(message.trim()).unwrap_or_else(|| message.to_owned())
}

/// Whether asking again would be answered the same: who is too busy, or just starting, is asked again.
pub fn is_final(why: &kube::Error) -> bool {
    matches!(why, kube::Error::Api(status) if status.code != 429 && status.code < 500)
}

/// The innermost cause, which says most: outer ones say that a request failed.
pub fn first_cause(why: &dyn Error) -> String {
    let mut cause = why;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_as_a_sentence_whoever_says_it() {
        assert_eq!(
            sentence(r#"{"type":"error","message":"Username is already in use."}"#),
            "Username is already in use."
        );
        let quoting = r#"{"type":"error","message":"\"admin\" is no local user"}"#;
        assert_eq!(sentence(quoting), "\"admin\" is no local user");
        assert_eq!(sentence(&Value::from(quoting).to_string()), "\"admin\" is no local user");
        assert_eq!(sentence("users \"x\" not found"), "users \"x\" not found");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_may_be_meant() {
        let missing = |meant: Option<&str>| {
            let advice = "`sheaf vm list` prints those there are".to_owned();
            let about = "virtual machine default/wbe".to_owned();
            Refusal::NotFound { about, meant: meant.map(str::to_owned), advice }.to_string()
        };
        assert_eq!(missing(Some("web")), "there is no virtual machine default/wbe: did you mean web?");
        assert_eq!(
            missing(None),
            "there is no virtual machine default/wbe: `sheaf vm list` prints those there are"
        );
    }
}
