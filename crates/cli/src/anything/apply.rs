//! `sheaf apply`: makes or changes objects as files say, with server-side apply.
//!
//! The server keeps who owns which field; a field that somebody else set is not taken from them unasked.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::Args as ClapArgs;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::kinds::{of_type, served};
use crate::asking::{Format, Refusal, Session, format::without_owners, names};

const APPLY: &str = "application/apply-patch+yaml";

#[derive(Debug, ClapArgs)]
pub struct ApplyArgs {
    /// File with objects as YAML or JSON, a directory of such files, or - for standard input
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Only say what would become of it
    #[arg(long)]
    pub dry_run: bool,
    /// Take fields over that somebody else set
    #[arg(long)]
    pub force: bool,
}

pub async fn run(session: &Session, args: &ApplyArgs) -> Result<(), Refusal> {
    let objects = read_all(&args.files)?;
    if objects.is_empty() {
        return Err(Refusal::Wrong("there is no object in what was read".to_owned()));
    }
    let all = served(session).await?;
    let mut targets = Vec::new();
    // All are looked at before the first is sent: a file that is half wrong changes nothing.
    for (place, object) in &objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let wrong = |why: String| Refusal::Wrong(format!("{place}: {why}; nothing was changed"));
        if api_version.is_empty() || kind.is_empty() {
            return Err(wrong("an object says what it is in apiVersion and kind".to_owned()));
        }
        let resource = of_type(&all, api_version, kind)
            .ok_or_else(|| wrong(format!("no kind {kind} of {api_version} is served")))?;
        names::segment(name).map_err(|why| wrong(format!("metadata.name {name:?}: {why}")))?;
        let namespace = match text("/metadata/namespace") {
            "" => session.namespace.clone(),
            said => {
                names::object(said).map_err(|why| wrong(format!("metadata.namespace {said:?}: {why}")))?
            }
        };
        targets.push((resource, namespace, name.to_owned(), object));
    }
    for (resource, namespace, name, object) in targets {
        let about = format!("{} {name}", resource.kind);
        let had = session.find(&resource, &namespace, &name).await?;
        let mut query = format!("?fieldManager=sheaf&force={}", args.force);
        if args.dry_run {
            query += "&dryRun=All";
        }
        let path = format!("{}{query}", resource.path(&namespace, &name));
        let doing = format!("apply the {about}");
        let answer = session.send(Method::PATCH, &path, APPLY, object.to_string().into_bytes(), &doing).await;
        let now = answer.map_err(|why| match why {
            Refusal::Conflict { doing, message } => Refusal::Conflict {
                doing,
                message: format!("{message}; --force takes the fields over, which is told to nobody"),
            },
            other => other,
        })?;
        let now: Value = serde_json::from_str(&now).map_err(|why| Refusal::cannot(&doing, why))?;
        let what = match &had {
            None => "made",
            Some(had) if compared(had.clone()) == compared(now.clone()) => "unchanged",
            Some(_) => "changed",
        };
        let would = if args.dry_run { " (not really: --dry-run)" } else { "" };
        let text = match session.format {
            Format::Table | Format::Wide => format!("{} {what}{would}\n", resource.name_of(&now)),
            Format::Yaml => format!("---\n{}", crate::asking::format::yaml(&without_owners(now))?),
            other => other.one(&resource, &without_owners(now))?.unwrap_or_default(),
        };
        session.out.print(&text)?;
    }
    Ok(())
}

/// Without what every write changes; a dry run does not even change that.
fn compared(object: Value) -> Value {
    let mut object = without_owners(object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("generation");
    }
    object
}

/// Every object with where it came from.
pub fn read_all(files: &[PathBuf]) -> Result<Vec<(String, Value)>, Refusal> {
    let mut objects = Vec::new();
    for file in files {
        if file == Path::new("-") {
            let mut text = String::new();
            let failed = |source| Refusal::Read { path: "standard input".into(), source };
            io::stdin().lock().read_to_string(&mut text).map_err(failed)?;
            objects.extend(documents("standard input", &text)?);
            continue;
        }
        for path in files_in(file)? {
            let text =
                fs::read_to_string(&path).map_err(|source| Refusal::Read { path: path.clone(), source })?;
            objects.extend(documents(&path.display().to_string(), &text)?);
        }
    }
    Ok(objects)
}

fn files_in(path: &Path) -> Result<Vec<PathBuf>, Refusal> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |source| Refusal::Read { path: path.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_one =
            path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|one| end == *one));
        if is_one && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The documents of a file; a list is taken apart.
fn documents(place: &str, text: &str) -> Result<Vec<(String, Value)>, Refusal> {
    let mut objects = Vec::new();
    for (number, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
        let place = match number {
            0 => place.to_owned(),
            number => format!("{place}, document {}", number + 1),
        };
        let mut value = Value::deserialize(document)
            .map_err(|why| Refusal::Wrong(format!("{place} is not YAML: {why}; nothing was changed")))?;
        let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match value.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) if is_list => {
                objects.extend(items.into_iter().map(|item| (place.clone(), item)));
            }
            Some(items) => {
                value["items"] = items;
                objects.push((place, value));
            }
            // Between two marks there may be nothing.
            None if value.is_null() => {}
            None => objects.push((place, value)),
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_many_documents_and_lists_are_taken_apart() {
        let text = "kind: A\n---\n---\nkind: List\nitems:\n- kind: B\n- kind: C\n";
        let kinds: Vec<String> = documents("f", text)
            .unwrap()
            .iter()
            .map(|(place, object)| format!("{place} {}", object["kind"].as_str().unwrap_or_default()))
            .collect();
        assert_eq!(kinds, ["f A", "f, document 3 B", "f, document 3 C"]);
        assert_eq!(documents("f", "{\"kind\": \"A\"}").unwrap()[0].1, serde_json::json!({"kind": "A"}));
    }

    #[test]
    fn what_is_not_yaml_names_its_place() {
        let why = documents("web.yaml", "kind: A\n---\na: [\n").unwrap_err().to_string();
        assert!(why.starts_with("web.yaml, document 2 is not YAML"), "{why}");
    }

    #[test]
    fn a_directory_is_its_files_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.json", "notes.txt"] {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        let names: Vec<_> = files_in(dir.path()).unwrap();
        assert_eq!(names, [dir.path().join("a.json"), dir.path().join("b.yaml")]);
    }
}
