//! Changing an object in an editor of one's own.
//!
//! What the cluster refuses comes back into the editor with the reason above it, so nothing typed is lost. Giving it up
//! is saving it unchanged, or empty.

use std::{env, ffi::OsString, fs, io::Write, process::Command};

use http::Method;
use serde_json::Value;

use super::{Refusal, Resource, Session, format::yaml, out::note};

/// How often it is tried again because a status was written in between.
const ATTEMPTS: u32 = 8;
const HEAD: &str =
    "# Lines that begin with # are left out. Save it unchanged, or empty, to change nothing.\n";

/// Answers the object as it is afterwards; none if nothing was changed.
pub async fn edit(
    session: &Session,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, Refusal> {
    let doing = format!("change the {}", resource.about(namespace, name));
    let shown = as_shown(session.get(resource, namespace, name).await?);
    let before = yaml(&shown)?;
    let mut text = before.clone();
    let mut refused: Option<Refusal> = None;
    loop {
        let complaint = refused.as_ref().map(|why| commented(&why.to_string())).unwrap_or_default();
        let typed = in_editor(&format!("{HEAD}{complaint}{text}"), name)?;
        let typed: String =
            typed.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        if typed.trim().is_empty() || typed == before {
            return Ok(None);
        }
        if typed == text
            && let Some(why) = refused
        {
            return Err(why);
        }
        text = typed;
        let wanted: Value = match serde_yaml_ng::from_str(&text) {
            Ok(wanted) => wanted,
            Err(why) => {
                refused = Some(Refusal::Wrong(format!("this is not YAML: {why}")));
                continue;
            }
        };
        if !wanted["metadata"].is_object() {
            refused = Some(Refusal::Wrong("this is no object: it has no metadata".to_owned()));
            continue;
        }
        match put(session, resource, (namespace, name), wanted, &shown, &doing).await {
            Ok(now) => return Ok(Some(now)),
            Err(why @ (Refusal::Refused { .. } | Refusal::Forbidden { .. })) => {
                note(&format!("sheaf: {why}"));
                refused = Some(why);
            }
            Err(Refusal::Conflict { doing, message }) => {
                let message = format!("{message}. What you typed:\n{text}");
                return Err(Refusal::Conflict { doing, message });
            }
            Err(why) => {
                note(&format!("sheaf: what you typed is in {}", kept(&text)?.display()));
                return Err(why);
            }
        }
    }
}

/// Writes what was typed over what was shown, and over nothing else: what others write all the time (its status) was not
/// shown, and is no reason to refuse.
async fn put(
    session: &Session,
    resource: &Resource,
    (namespace, name): (&str, &str),
    mut wanted: Value,
    shown: &Value,
    doing: &str,
) -> Result<Value, Refusal> {
    let path = resource.path(namespace, name);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let now = session.get(resource, namespace, name).await?;
        wanted["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
        if as_shown(now) != *shown {
            let message = "somebody else changed it meanwhile".to_owned();
            return Err(Refusal::Conflict { doing: doing.to_owned(), message });
        }
        match session.ask(Method::PUT, &path, Some(&wanted), doing).await {
            Err(why) if why.is_conflict() && attempts < ATTEMPTS => {}
            answer => return answer,
        }
    }
}

fn as_shown(mut object: Value) -> Value {
    if let Some(all) = object.as_object_mut() {
        all.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    object
}

/// A file that stays, for its owner alone.
fn kept(text: &str) -> Result<std::path::PathBuf, Refusal> {
    let failed = |why: std::io::Error| Refusal::cannot("keep what was typed", why);
    let mut file =
        tempfile::Builder::new().prefix("sheaf-edit-").suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.keep().map(|(_, path)| path).map_err(|why| failed(why.error))
}

fn commented(text: &str) -> String {
    text.lines().map(|line| format!("# {line}\n")).collect::<String>() + "#\n"
}

fn in_editor(text: &str, name: &str) -> Result<String, Refusal> {
    let failed = |why: std::io::Error| Refusal::cannot("write a file for the editor", why);
    let mut file =
        tempfile::Builder::new().prefix(&format!("{name}-")).suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(failed)?;
    let editor =
        ["VISUAL", "EDITOR"].into_iter().find_map(|name| env::var_os(name).filter(|said| !said.is_empty()));
    let editor = editor.unwrap_or_else(|| OsString::from("vi"));
    // As a shell would read it: `EDITOR='code --wait'` is usual.
    let status = Command::new("sh")
        .args(["-c", &format!("{} \"$1\"", editor.to_string_lossy()), "sh"])
        .arg(file.path())
        .status();
    let told = format!("start the editor {}: set EDITOR to one that is there", editor.to_string_lossy());
    let status = status.map_err(|why| Refusal::cannot(&told, why))?;
    if !status.success() {
        return Err(Refusal::NotConfirmed(format!(
            "the editor {} ended with {status}; EDITOR names another",
            editor.to_string_lossy()
        )));
    }
    fs::read_to_string(file.path()).map_err(|source| Refusal::Read { path: file.path().to_owned(), source })
}
