//! `sheaf volume`: disks as things of their own, plugged into a machine or not.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use super::vm::{
    create::{gibibytes, image},
    standing::IMAGE_ID,
};
use crate::{
    asking::{
        Refusal, Session,
        facts::{Facts, amount, list, text},
        listing::{self, DeleteArgs, ListArgs},
        names,
        resource::{IMAGES, INSTANCES, MACHINES, STORAGE_CLASSES, VOLUMES},
        table::{Cell, Column, Tone, column, wide},
        waiting::{Standing, WaitArgs, until},
    },
    completing,
};

const GIB: i64 = 1 << 30;
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume: empty, or a copy of an image
    Create(CreateArgs),
    /// Print the volumes there are
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Tell everything about a volume
    Show(NameArgs),
    /// Make a volume larger; its machine may go on meanwhile
    Resize(ResizeArgs),
    /// Make another volume with the same contents
    Clone(CloneArgs),
    /// Make an image of what is on a volume
    Export(ExportArgs),
    /// Delete volumes, with what is on them
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The volume
    #[arg(value_parser = names::segment, add = completing::names_of(&VOLUMES))]
    pub name: String,
}

#[derive(Debug, ClapArgs)]
pub struct CreateArgs {
    /// Name of the volume
    #[arg(value_parser = names::object)]
    pub name: String,
    /// Its size, such as 20Gi [default with --image: what the image needs]
    #[arg(short, long, value_name = "SIZE", value_parser = gibibytes, required_unless_present = "image")]
    pub size: Option<i64>,
    /// Image to copy: NAME or NAMESPACE/NAME
    #[arg(short, long, value_name = "IMAGE", value_parser = names::reference, add = completing::names_of(&IMAGES))]
    pub image: Option<String>,
    /// Storage class [default: the cluster's]
    #[arg(long, value_name = "CLASS", value_parser = names::segment, conflicts_with = "image",
        add = completing::names_of(&STORAGE_CLASSES))]
    pub class: Option<String>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct ResizeArgs {
    #[command(flatten)]
    pub volume: NameArgs,
    /// Its new size, such as 40Gi; a volume never becomes smaller
    #[arg(value_parser = gibibytes)]
    pub size: i64,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct CloneArgs {
    #[command(flatten)]
    pub volume: NameArgs,
    /// Name of the copy
    #[arg(value_parser = names::object)]
    pub copy: String,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct ExportArgs {
    #[command(flatten)]
    pub volume: NameArgs,
    /// What to call the image
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Storage class of the image [default: the cluster's]
    #[arg(long, value_name = "CLASS", value_parser = names::segment, add = completing::names_of(&STORAGE_CLASSES))]
    pub class: Option<String>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

const COLUMNS: &[Column] = &[
    column("NAMESPACE", |volume, _| text(volume, "/metadata/namespace").into()),
    column("NAME", |volume, _| text(volume, "/metadata/name").into()),
    column("STATUS", |volume, _| status(volume)),
    column("SIZE", |volume, _| size(volume).into()),
    column("IMAGE", |volume, _| image_of(volume).into()),
    column("AGE", |volume, moment| {
        sheaf_resources::age::since(text(volume, "/metadata/creationTimestamp"), moment.now).into()
    }),
    wide("CLASS", |volume, _| text(volume, "/spec/storageClassName").into()),
    wide("MODE", |volume, _| text(volume, "/spec/volumeMode").into()),
];

fn image_of(volume: &Value) -> &str {
    volume["metadata"]["annotations"][IMAGE_ID].as_str().unwrap_or_default()
}

fn size(volume: &Value) -> String {
    let (has, wants) =
        (text(volume, "/status/capacity/storage"), text(volume, "/spec/resources/requests/storage"));
    amount(if has.is_empty() { wants } else { has })
}

fn status(volume: &Value) -> Cell {
    let bytes = |place: &str| sheaf_resources::quantity::value(text(volume, place)).unwrap_or(0);
    let phase = text(volume, "/status/phase");
    if !volume["metadata"]["deletionTimestamp"].is_null() {
        return Cell::toned("deleting", Tone::Busy);
    }
    match phase {
        "Bound" if bytes("/spec/resources/requests/storage") > bytes("/status/capacity/storage") => {
            Cell::toned("growing", Tone::Busy)
        }
        "Bound" => Cell::toned("ready", Tone::Good),
        "Lost" => Cell::toned("lost", Tone::Bad),
        _ => Cell::toned("waiting", Tone::Busy),
    }
}

pub async fn run(session: &Session, command: VolumeCommand) -> Result<(), Refusal> {
    match command {
        VolumeCommand::Create(args) => create(session, &args).await,
        VolumeCommand::List(args) => {
            let next = "`sheaf volume create NAME --size 20Gi` makes one";
            listing::list(session, &VOLUMES, &args, COLUMNS, next).await
        }
        VolumeCommand::Show(args) => show(session, &args.name).await,
        VolumeCommand::Resize(args) => resize(session, &args).await,
        VolumeCommand::Clone(args) => clone(session, &args).await,
        VolumeCommand::Export(args) => export(session, &args).await,
        VolumeCommand::Delete(args) => {
            listing::delete(session, &VOLUMES, &args, "What is on it is lost.").await
        }
    }
}

async fn create(session: &Session, args: &CreateArgs) -> Result<(), Refusal> {
    let image = match &args.image {
        Some(typed) => Some(image(session, typed).await?),
        None => None,
    };
    let least = image.as_ref().map_or(1, |image| ((image.virtual_size + GIB - 1) / GIB).max(1));
    let size = args.size.unwrap_or(least);
    if size < least {
        return Err(Refusal::Wrong(format!(
            "--size {size}Gi is less than the image holds, which is {least}Gi"
        )));
    }
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": args.name, "namespace": session.namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": format!("{size}Gi")}},
        },
    });
    if let Some(image) = &image {
        claim["metadata"]["annotations"] = json!({IMAGE_ID: image.id});
        claim["spec"]["storageClassName"] = image.storage_class.as_str().into();
    } else if let Some(class) = &args.class {
        session.get(&STORAGE_CLASSES, "", class).await?;
        claim["spec"]["storageClassName"] = class.as_str().into();
    }
    let made = session.create(&VOLUMES, &claim).await?;
    if args.wait.wait {
        until_bound(session, &args.name, size * GIB, args.wait).await?;
    }
    if let Some(text) = session.format.one(&VOLUMES, &made)? {
        return session.out.print(&text);
    }
    session.out.print(&format!(
        "{} is made; `sheaf vm attach MACHINE --volume {}` plugs it in\n",
        VOLUMES.about(&session.namespace, &args.name),
        args.name
    ))
}

/// Until it is there, and as large as it should be.
async fn until_bound(session: &Session, name: &str, bytes: i64, wait: WaitArgs) -> Result<(), Refusal> {
    let what = format!("the {} to be ready", VOLUMES.about(&session.namespace, name));
    until(session, &VOLUMES, (&session.namespace, name), &what, wait.timeout, |volume| {
        let Some(volume) = volume else { return Standing::Never("it was deleted".to_owned()) };
        let has = sheaf_resources::quantity::value(text(volume, "/status/capacity/storage")).unwrap_or(0);
        match text(volume, "/status/phase") {
            "Bound" if has >= bytes => Standing::There(()),
            "Bound" => Standing::OnItsWay(match list(volume, "/status/conditions").next() {
                Some(condition) => text(condition, "/message").to_owned(),
                None => "it is growing".to_owned(),
            }),
            "Lost" => Standing::Never("it is lost".to_owned()),
            _ => Standing::OnItsWay("its host has not made it yet".to_owned()),
        }
    })
    .await
}

async fn show(session: &Session, name: &str) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    let volume = session.get(&VOLUMES, namespace, name).await?;
    if let Some(text) = session.format.one(&VOLUMES, &volume)? {
        return session.out.print(&text);
    }
    let machines = session.list(&MACHINES, namespace, "").await.unwrap_or_default();
    let users: Vec<&str> = machines
        .iter()
        .filter(|vm| super::vm::standing::claims(vm).iter().any(|(_, claim)| claim == name))
        .map(|vm| text(vm, "/metadata/name"))
        .collect();
    let mut facts = Facts::default();
    facts
        .say("Name", name)
        .say("Namespace", namespace.as_str())
        .say("Status", text(&volume, "/status/phase"))
        .say("Size", size(&volume))
        .say("Image", image_of(&volume))
        .say("Storage class", text(&volume, "/spec/storageClassName"))
        .say("Mode", text(&volume, "/spec/volumeMode"))
        .say("Volume", text(&volume, "/spec/volumeName"))
        .say("Used by", if users.is_empty() { "nobody".to_owned() } else { users.join(", ") });
    let said: Vec<&str> = list(&volume, "/status/conditions")
        .map(|one| text(one, "/message"))
        .filter(|text| !text.is_empty())
        .collect();
    facts.text("What is said of it", &said.join("\n"));
    session.out.print(&facts.as_text())
}

async fn resize(session: &Session, args: &ResizeArgs) -> Result<(), Refusal> {
    let (namespace, name) = (&session.namespace, &args.volume.name);
    let change = json!({"spec": {"resources": {"requests": {"storage": format!("{}Gi", args.size)}}}});
    session.change(&VOLUMES, namespace, name, &change).await?;
    if !is_in_use(session, name).await? {
        // There is nothing to wait for: who starts the machine has it grown.
        let about = VOLUMES.about(namespace, name);
        return session
            .out
            .print(&format!("{about} has {} GiB from when its machine next starts\n", args.size));
    }
    if args.wait.wait {
        until_bound(session, name, args.size * GIB, args.wait).await?;
    }
    let done = if args.wait.wait { "has" } else { "is growing to" };
    session.out.print(&format!("{} {done} {} GiB\n", VOLUMES.about(namespace, name), args.size))
}

/// Whether a machine that runs has it.
async fn is_in_use(session: &Session, name: &str) -> Result<bool, Refusal> {
    let running = session.list(&INSTANCES, &session.namespace, "").await?;
    let has_it = |instance: &Value| {
        let mut volumes = list(instance, "/spec/volumes");
        volumes.any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name)
    };
    Ok(running.iter().any(has_it))
}

async fn clone(session: &Session, args: &CloneArgs) -> Result<(), Refusal> {
    let (namespace, name) = (&session.namespace, &args.volume.name);
    let doing = format!("copy the {}", VOLUMES.about(namespace, name));
    session.act(&VOLUMES, (namespace, name), "clone", &json!({"name": args.copy}), &doing).await?;
    if args.wait.wait {
        until_bound(session, &args.copy, 0, args.wait).await?;
    }
    let done = if args.wait.wait { "is a copy" } else { "is becoming a copy" };
    session.out.print(&format!("{} {done} of {name}\n", VOLUMES.about(namespace, &args.copy)))
}

pub async fn export(session: &Session, args: &ExportArgs) -> Result<(), Refusal> {
    let (namespace, name) = (&session.namespace, &args.volume.name);
    let class = match &args.class {
        Some(class) => class.clone(),
        None => default_class(session).await?,
    };
    let doing = format!("make an image of the {}", VOLUMES.about(namespace, name));
    let input = json!({"displayName": args.image, "namespace": namespace, "storageClassName": class});
    let answer = session.act(&VOLUMES, (namespace, name), "export", &input, &doing).await?;
    let made = text(&answer, "/metadata/name").to_owned();
    if args.wait.wait {
        super::image::until_imported(session, namespace, &made, args.wait.timeout).await?;
    }
    let done = if args.wait.wait { "is" } else { "is becoming" };
    session.out.print(&format!(
        "{} ({}) {done} an image of the volume {name}\n",
        IMAGES.about(namespace, &made),
        args.image
    ))
}

async fn default_class(session: &Session) -> Result<String, Refusal> {
    let classes = session.list(&STORAGE_CLASSES, "", "").await?;
    let is_default = |class: &&Value| class["metadata"]["annotations"][DEFAULT_CLASS] == "true";
    let found = classes.iter().find(is_default).map(|class| text(class, "/metadata/name").to_owned());
    found.ok_or_else(|| {
        Refusal::Wrong("the cluster has no default storage class: name one with --class".to_owned())
    })
}
