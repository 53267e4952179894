//! `sheaf vm create`: machines of an image, of a template, or of disks that are there.

use std::{fs, path::PathBuf};

use clap::Args as ClapArgs;
use serde_json::Value;

use super::{
    console, draft,
    draft::{Firmware, Image, Key, Made, Wanted},
    power::until_running,
};
use crate::{
    asking::{
        Format, Refusal, Session,
        facts::text,
        format::{json_text, yaml},
        names,
        resource::{IMAGES, KEYS, MACHINES, NETWORKS, SECRETS, TEMPLATE_VERSIONS, TEMPLATES, VOLUMES},
        waiting::WaitArgs,
    },
    completing,
    nouns::image,
};

const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;
const MOST_AT_ONCE: u32 = 500;

#[derive(Debug, ClapArgs)]
pub struct CreateArgs {
    /// Name of the virtual machine; with --count, each gets a number behind it
    #[arg(value_parser = names::object)]
    pub name: String,
    /// Image to boot from: NAME or NAMESPACE/NAME
    #[arg(short, long, value_name = "IMAGE", value_parser = names::reference, add = completing::names_of(&IMAGES))]
    pub image: Option<String>,
    /// Template to make it of: NAME or NAME:VERSION
    #[arg(short, long, value_name = "TEMPLATE", add = completing::names_of(&TEMPLATES))]
    pub template: Option<String>,
    /// Volume that is there already, as a disk; may be given several times
    #[arg(long = "volume", value_name = "VOLUME", value_parser = names::segment, add = completing::names_of(&VOLUMES))]
    pub volumes: Vec<String>,
    /// Processors [default: 2]
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: Option<u32>,
    /// Memory, such as 512Mi or 4Gi [default: 2Gi]
    #[arg(short, long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<String>,
    /// Size of the first disk, such as 20Gi [default: 10Gi, or what the image needs]
    #[arg(short, long, value_name = "SIZE", value_parser = gibibytes)]
    pub disk: Option<i64>,
    /// Another, empty disk of this size; may be given several times
    #[arg(long = "data-disk", value_name = "SIZE", value_parser = gibibytes)]
    pub data_disks: Vec<i64>,
    /// Network of an interface: `default`, NAME or NAMESPACE/NAME; may be given several times [default: default]
    #[arg(long = "network", value_name = "NETWORK", value_parser = names::reference, add = completing::names_of(&NETWORKS))]
    pub networks: Vec<String>,
    /// SSH key that may log in; may be given several times
    #[arg(short, long = "key", value_name = "KEY", value_parser = names::reference, add = completing::names_of(&KEYS))]
    pub keys: Vec<String>,
    /// File with user data for cloud-init
    #[arg(long, value_name = "FILE")]
    pub user_data: Option<PathBuf>,
    /// File with network data for cloud-init
    #[arg(long, value_name = "FILE")]
    pub network_data: Option<PathBuf>,
    /// Firmware [default: bios]
    #[arg(long, value_enum)]
    pub firmware: Option<Firmware>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Label; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Make so many of them
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_AT_ONCE)))]
    pub count: u32,
    /// Do not start it
    #[arg(long, conflicts_with_all = ["console", "wait", "run_strategy"])]
    pub stopped: bool,
    /// Always, RerunOnFailure, Manual or Halted
    #[arg(long, value_name = "STRATEGY", value_parser = ["Always", "RerunOnFailure", "Manual", "Halted", "Once"])]
    pub run_strategy: Option<String>,
    /// Print what would be made, and make nothing
    #[arg(long, conflicts_with_all = ["console", "wait"])]
    pub dry_run: bool,
    /// Enter its console as soon as it runs
    #[arg(long, conflicts_with = "count")]
    pub console: bool,
    #[command(flatten)]
    pub wait: WaitArgs,
}

pub async fn run(session: &Session, args: &CreateArgs) -> Result<(), Refusal> {
    if args.count > 1 && !args.volumes.is_empty() {
        let why =
            "a volume is one machine's: --volume and --count do not go together; --image gives each a copy";
        return Err(Refusal::Wrong(why.to_owned()));
    }
    let wanted = wanted(session, args).await?;
    let mut draft = match &args.template {
        Some(template) => draft::of_template(&version(session, template).await?, &session.namespace),
        None => draft::fresh(&session.namespace),
    };
    if wanted.image.is_none()
        && wanted.volumes.is_empty()
        && (args.template.is_none() || draft::asks_for_image(&draft))
    {
        return Err(nothing_to_boot_from(session, args.template.is_some()).await);
    }
    draft::dress(&mut draft, &wanted).map_err(Refusal::Wrong)?;
    let width = args.count.to_string().len();
    let names: Vec<String> = match args.count {
        1 => vec![args.name.clone()],
        count => (1..=count).map(|number| format!("{}-{number:0width$}", args.name)).collect(),
    };
    // The longest is looked at before the first is made.
    if let Some(name) = names.last() {
        names::object(name).map_err(|why| Refusal::Wrong(format!("the name {name:?}: {why}")))?;
    }
    for name in &names {
        let made = draft::named(&draft, name, &session.world.chance.name_suffix());
        match args.dry_run {
            true => print(session, &made)?,
            false => make(session, &made).await?,
        }
    }
    if args.dry_run {
        return Ok(());
    }
    for name in &names {
        if args.wait.wait || args.console {
            until_running(session, name, args.wait.timeout).await?;
        }
        if args.wait.wait && session.format.is_for_people() {
            session.out.print(&format!("{} runs\n", MACHINES.about(&session.namespace, name)))?;
        }
    }
    if args.console {
        console::enter(session, &args.name).await?;
    }
    Ok(())
}

fn print(session: &Session, made: &Made) -> Result<(), Refusal> {
    for object in made.secret.iter().chain([&made.vm]) {
        let text = match session.format {
            Format::Json => json_text(object),
            Format::Name => format!("{}\n", text(object, "/metadata/name")),
            Format::Table | Format::Wide | Format::Yaml => format!("---\n{}", yaml(object)?),
        };
        session.out.print(&text)?;
    }
    Ok(())
}

async fn make(session: &Session, made: &Made) -> Result<(), Refusal> {
    if let Some(secret) = &made.secret {
        session.create(&SECRETS, secret).await?;
    }
    let vm = match session.create(&MACHINES, &made.vm).await {
        Ok(vm) => vm,
        Err(why) => {
            if let Some(secret) = &made.secret {
                // What was made for it goes with it; why it was not made is what is told.
                let name = text(secret, "/metadata/name");
                _ = session.delete(&SECRETS, &session.namespace, name).await;
            }
            return Err(why);
        }
    };
    if let Some(secret) = &made.secret {
        own(session, secret, &vm).await?;
    }
    if let Some(text) = session.format.one(&MACHINES, &vm)? {
        return session.out.print(&text);
    }
    let name = text(&vm, "/metadata/name");
    let starts = if text(&vm, "/spec/runStrategy") == "Halted" { "it is off" } else { "it is starting" };
    session.out.print(&format!(
        "{} is made, {starts}; `sheaf vm show {name}` tells how it stands\n",
        MACHINES.about(&session.namespace, name)
    ))
}

/// The Secret goes when its machine goes.
async fn own(session: &Session, secret: &Value, vm: &Value) -> Result<(), Refusal> {
    let owner = serde_json::json!({"metadata": {"ownerReferences": [{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": vm["metadata"]["name"], "uid": vm["metadata"]["uid"],
    }]}});
    session.change(&SECRETS, &session.namespace, text(secret, "/metadata/name"), &owner).await.map(drop)
}

async fn wanted(session: &Session, args: &CreateArgs) -> Result<Wanted, Refusal> {
    let image = match &args.image {
        Some(typed) => Some(image(session, typed).await?),
        None => None,
    };
    let mut keys = Vec::new();
    for typed in &args.keys {
        let (namespace, name) = names::split(typed, &session.namespace);
        let key = session.get(&KEYS, namespace, name).await?;
        keys.push(Key {
            id: format!("{namespace}/{name}"),
            public_key: text(&key, "/spec/publicKey").to_owned(),
        });
    }
    let mut networks = Vec::new();
    for typed in &args.networks {
        if typed == "default" {
            networks.push(typed.clone());
            continue;
        }
        let (namespace, name) = names::split(typed, &session.namespace);
        session.get(&NETWORKS, namespace, name).await?;
        networks.push(format!("{namespace}/{name}"));
    }
    for volume in &args.volumes {
        session.get(&VOLUMES, &session.namespace, volume).await?;
    }
    Ok(Wanted {
        cpus: args.cpus,
        memory: args.memory.clone(),
        image,
        disk_gib: args.disk,
        data_disks_gib: args.data_disks.clone(),
        volumes: args.volumes.clone(),
        networks,
        keys,
        user_data: read(args.user_data.as_ref())?,
        network_data: read(args.network_data.as_ref())?,
        firmware: args.firmware,
        description: args.description.clone(),
        labels: args.labels.clone(),
        run_strategy: if args.stopped { Some("Halted".to_owned()) } else { args.run_strategy.clone() },
    })
}

fn read(file: Option<&PathBuf>) -> Result<Option<String>, Refusal> {
    let read = |path: &PathBuf| {
        fs::read_to_string(path).map_err(|source| Refusal::Read { path: path.clone(), source })
    };
    file.map(read).transpose()
}

/// One that is there and ready.
pub async fn image(session: &Session, typed: &str) -> Result<Image, Refusal> {
    let (namespace, name) = names::split(typed, &session.namespace);
    let found = image::found(session, namespace, name).await?;
    let about = IMAGES.about(namespace, text(&found, "/metadata/name"));
    let imported = image::imported(&found);
    if imported.is_none_or(|one| text(one, "/status") != "True") {
        let why = imported.map(|one| text(one, "/message")).filter(|why| !why.is_empty());
        let message = match why {
            Some(why) => why.to_owned(),
            None => format!("it has {} % so far", found["status"]["progress"].as_u64().unwrap_or(0)),
        };
        return Err(Refusal::Refused { doing: format!("use the {about}, which is not ready"), message });
    }
    let source = match text(&found, "/spec/url") {
        "" => text(&found, "/spec/displayName"),
        url => url,
    };
    let is_disc = found["metadata"]["labels"]["harvesterhci.io/image-type"] == "iso" || is_iso(source);
    Ok(Image {
        id: format!("{namespace}/{}", text(&found, "/metadata/name")),
        storage_class: text(&found, "/status/storageClassName").to_owned(),
        virtual_size: found["status"]["virtualSize"].as_i64().unwrap_or(0),
        is_disc,
    })
}

/// `debian.iso`, also packed: `debian.iso.xz`.
fn is_iso(name: &str) -> bool {
    let lower = name.to_lowercase();
    lower.ends_with(".iso") || [".gz", ".xz", ".zst"].iter().any(|end| lower.ends_with(&format!(".iso{end}")))
}

/// The version of a template that is meant: `NAME` or `NAME:NUMBER`.
async fn version(session: &Session, typed: &str) -> Result<Value, Refusal> {
    let (reference, number) = match typed.rsplit_once(':') {
        Some((reference, number)) => {
            let wrong =
                || Refusal::Wrong(format!("--template {typed}: the version behind the colon is a number"));
            (reference, Some(number.parse::<i64>().map_err(|_| wrong())?))
        }
        None => (typed, None),
    };
    let reference =
        names::reference(reference).map_err(|why| Refusal::Wrong(format!("--template {typed}: {why}")))?;
    let (namespace, name) = names::split(&reference, &session.namespace);
    let (namespace, template) = match session.find(&TEMPLATES, namespace, name).await? {
        Some(template) => (namespace, template),
        // Where the built-in ones are.
        None if !reference.contains('/') => match session.find(&TEMPLATES, "harvester-public", name).await? {
            Some(template) => ("harvester-public", template),
            None => {
                return Err(session
                    .get(&TEMPLATES, namespace, name)
                    .await
                    .err()
                    .unwrap_or(Refusal::NobodyReads));
            }
        },
        None => {
            return Err(session.get(&TEMPLATES, namespace, name).await.err().unwrap_or(Refusal::NobodyReads));
        }
    };
    let Some(number) = number else {
        let id = text(&template, "/spec/defaultVersionId").to_owned();
        let (namespace, version) = names::split(&id, namespace);
        if version.is_empty() {
            return Err(Refusal::Wrong(format!(
                "the {} has no version yet",
                TEMPLATES.about(namespace, name)
            )));
        }
        return session.get(&TEMPLATE_VERSIONS, namespace, version).await;
    };
    let id = format!("{namespace}/{name}");
    let versions = session.list(&TEMPLATE_VERSIONS, namespace, "").await?;
    let mine: Vec<Value> = versions.into_iter().filter(|one| text(one, "/spec/templateId") == id).collect();
    let numbers: Vec<String> = mine.iter().map(|one| one["status"]["version"].to_string()).collect();
    mine.into_iter().find(|one| one["status"]["version"].as_i64() == Some(number)).ok_or_else(|| {
        Refusal::NotFound {
            about: format!("version {number} of the {}", TEMPLATES.about(namespace, name)),
            meant: None,
            advice: format!("there is {}", numbers.join(", ")),
        }
    })
}

async fn nothing_to_boot_from(session: &Session, has_template: bool) -> Refusal {
    let images = session.list(&IMAGES, &session.namespace, "").await.unwrap_or_default();
    let names: Vec<&str> = images.iter().map(|one| text(one, "/metadata/name")).take(8).collect();
    let there = match names.as_slice() {
        [] => format!(
            "there is no image in namespace {} yet: `sheaf image upload` or `sheaf image import` brings one",
            session.namespace
        ),
        names => format!("there is {}", names.join(", ")),
    };
    let what = match has_template {
        true => "the template leaves it to you what is on the disk: say --image",
        false => "say what it boots from: --image, --template or --volume",
    };
    Refusal::Wrong(format!("{what} ({there})"))
}

/// Whole gibibytes: `20`, `20G`, `20Gi`, `1Ti`.
pub fn gibibytes(typed: &str) -> Result<i64, String> {
    let wrong = || "it is no size; what fits: 20Gi, 500Gi or 1Ti".to_owned();
    let text =
        if typed.bytes().all(|b| b.is_ascii_digit()) { format!("{typed}Gi") } else { typed.to_owned() };
    let bytes = sheaf_resources::quantity::value(&text).filter(|bytes| *bytes > 0).ok_or_else(wrong)?;
    Ok((bytes + GIB - 1) / GIB)
}

/// A quantity of whole mebibytes: `512Mi`, `4Gi`, `4G` (which is less than 4Gi).
pub fn memory(typed: &str) -> Result<String, String> {
    let wrong = || "it is no amount of memory; what fits: 512Mi, 4Gi".to_owned();
    if typed.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("it has no unit; what fits: {typed}Mi or {typed}Gi"));
    }
    let bytes = sheaf_resources::quantity::value(typed).ok_or_else(wrong)?;
    match bytes < MIB {
        true => Err(wrong()),
        false if bytes % GIB == 0 => Ok(format!("{}Gi", bytes / GIB)),
        false => Ok(format!("{}Mi", bytes / MIB)),
    }
}

fn label(typed: &str) -> Result<(String, String), String> {
    match typed.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("what fits: NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_type_them() {
        for (typed, gib) in [("20", 20), ("20Gi", 20), ("20G", 19), ("512Mi", 1), ("1Ti", 1024)] {
            assert_eq!(gibibytes(typed).unwrap(), gib, "{typed}");
        }
        for (typed, said) in [("512Mi", "512Mi"), ("4Gi", "4Gi"), ("4096Mi", "4Gi"), ("1.5Gi", "1536Mi")] {
            assert_eq!(memory(typed).unwrap(), said, "{typed}");
        }
        assert!(memory("512").unwrap_err().contains("512Mi or 512Gi"));
        for odd in ["", "0", "-1Gi", "lots"] {
            gibibytes(odd).unwrap_err();
            memory(odd).unwrap_err();
        }
    }

    #[test]
    fn discs_are_known_by_their_names_packed_or_not() {
        assert!(is_iso("debian.ISO") && is_iso("https://example.com/debian.iso.xz"));
        assert!(!is_iso("debian.qcow2") && !is_iso("iso"));
    }
}
