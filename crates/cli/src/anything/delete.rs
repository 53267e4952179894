//! `sheaf delete`: objects of any kind, by name or as files name them.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::Value;

use super::{
    apply::read_all,
    kinds::{meant, of_type, served},
};
use crate::{
    asking::{
        Refusal, Resource, Session,
        confirm::{YesArgs, confirm},
        names,
        waiting::{WaitArgs, until_gone},
    },
    completing,
};

#[derive(Debug, ClapArgs)]
pub struct DeleteArgs {
    /// The kind: vm, image, pvc, secrets, ...
    #[arg(required_unless_present = "files", add = completing::kinds())]
    pub kind: Option<String>,
    /// What to delete
    #[arg(required_unless_present = "files", value_parser = names::segment, add = completing::names_meant())]
    pub names: Vec<String>,
    /// Delete what these files name, instead
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with_all = ["kind", "names"])]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub yes: YesArgs,
    #[command(flatten)]
    pub wait: WaitArgs,
}

pub async fn run(session: &Session, args: &DeleteArgs) -> Result<(), Refusal> {
    let all = served(session).await?;
    let mut targets: Vec<(Resource, String, String)> = Vec::new();
    if let Some(word) = &args.kind {
        let resource = meant(&all, word)?;
        for name in &args.names {
            targets.push((resource.clone(), session.namespace.clone(), name.clone()));
        }
    }
    for (place, object) in read_all(&args.files)? {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let resource = of_type(&all, text("/apiVersion"), text("/kind")).ok_or_else(|| {
            Refusal::Wrong(format!("{place}: no kind {} of {} is served", text("/kind"), text("/apiVersion")))
        })?;
        let name = names::segment(text("/metadata/name")).map_err(Refusal::Wrong)?;
        let namespace = match text("/metadata/namespace") {
            "" => session.namespace.clone(),
            said => names::object(said).map_err(Refusal::Wrong)?,
        };
        targets.push((resource, namespace, name));
    }
    for (resource, namespace, name) in &targets {
        // What is not there is told before anything is lost.
        session.get(resource, namespace, name).await?;
    }
    let abouts: Vec<String> =
        targets.iter().map(|(resource, namespace, name)| resource.about(namespace, name)).collect();
    confirm(args.yes, &format!("This deletes {}.", abouts.join(", ")))?;
    for ((resource, namespace, name), about) in targets.iter().zip(&abouts) {
        match session.delete(resource, namespace, name).await {
            // It was there a moment ago: it went with another, a namespace perhaps.
            Err(why) if why.is_not_found() => {}
            answer => {
                answer?;
            }
        }
        if args.wait.wait {
            until_gone(session, resource, (namespace, name), args.wait.timeout).await?;
        }
        session.out.print(&format!("{about} is {}\n", if args.wait.wait { "gone" } else { "deleted" }))?;
    }
    Ok(())
}
