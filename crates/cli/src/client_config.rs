//! Settings of the commands that ask a cluster: which cluster, and what for.

use std::path::{Path, PathBuf};

use crate::{
    BadSetting, Host, Secret, admin_password_file,
    args::{
        ClusterArgs, ConsoleArgs, DEFAULT_DATA_DIR, DemoArgs, DownloadArgs, GrantArgs, SupportBundleArgs,
        UploadArgs, UserCommand,
    },
};

const LONGEST: usize = 63;
/// What a node calls the kubeconfig of its administrator.
const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoConfig {
    /// Of whom to be; absolute.
    pub kubeconfig: PathBuf,
    pub image: DemoImage,
    pub name: String,
    pub namespace: String,
}

/// What the demo's machine boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DemoImage {
    /// Made here.
    Debian,
    File(PathBuf),
    Url(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleConfig {
    pub kubeconfig: PathBuf,
    pub name: String,
    pub namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadConfig {
    pub kubeconfig: PathBuf,
    pub file: PathBuf,
    pub name: String,
    pub namespace: String,
}

/// `sheaf image download`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadConfig {
    pub kubeconfig: PathBuf,
    pub name: String,
    pub namespace: String,
    /// What is there already is replaced when all of it has come.
    pub file: PathBuf,
}

/// `sheaf support-bundle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupportBundleConfig {
    pub kubeconfig: PathBuf,
    /// None for the name that the cluster gives it.
    pub output: Option<PathBuf>,
    pub description: String,
    pub issue_url: String,
    /// Whether the cluster keeps it, too.
    pub keep: bool,
}

/// `sheaf user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserConfig {
    pub kubeconfig: PathBuf,
    pub wish: UserWish,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserWish {
    Create { name: String, display_name: String, groups: Vec<String>, password: Option<Secret> },
    List,
    SetPassword { name: String, password: Option<Secret> },
    Delete { name: String },
    Grant(Grant),
    Revoke(Grant),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub who: String,
    pub role: String,
    /// `None` for all of them.
    pub namespace: Option<String>,
    pub is_group: bool,
    /// Whether it is given to somebody of whom the cluster has no object.
    pub is_elsewhere: bool,
}

pub fn user(command: UserCommand, host: &Host) -> Result<UserConfig, BadSetting> {
    let password = |file: Option<PathBuf>| {
        file.as_deref().map(|file| admin_password_file::read_for("--password-file", file)).transpose()
    };
    let (cluster, wish) = match command {
        UserCommand::Create(args) => {
            let wish = UserWish::Create {
                // What somebody signs in with may be more than a name of an object.
                name: path_segment("NAME", args.name)?,
                display_name: args.display_name,
                groups: args.groups,
                password: password(args.password_file)?,
            };
            (args.cluster, wish)
        }
        UserCommand::List(cluster) => (cluster, UserWish::List),
        UserCommand::Passwd(args) => {
            let password = password(args.password_file)?;
            (args.cluster, UserWish::SetPassword { name: path_segment("NAME", args.name)?, password })
        }
        UserCommand::Delete(args) => {
            (args.cluster, UserWish::Delete { name: path_segment("NAME", args.name)? })
        }
        UserCommand::Grant(args) => {
            let (cluster, grant) = grant(args.grant)?;
            (cluster, UserWish::Grant(Grant { is_elsewhere: args.elsewhere, ..grant }))
        }
        UserCommand::Revoke(args) => {
            let (cluster, grant) = grant(args)?;
            (cluster, UserWish::Revoke(grant))
        }
    };
    Ok(UserConfig { kubeconfig: kubeconfig(cluster, host)?, wish })
}

fn grant(args: GrantArgs) -> Result<(ClusterArgs, Grant), BadSetting> {
    let grant = Grant {
        who: path_segment("WHO", args.who)?,
        role: path_segment("ROLE", args.role)?,
        namespace: args.namespace.map(|namespace| name("--namespace", namespace)).transpose()?,
        is_group: args.group,
        is_elsewhere: false,
    };
    Ok((args.cluster, grant))
}

/// What becomes a part of an address.
fn path_segment(setting: &'static str, text: String) -> Result<String, BadSetting> {
    let fits = |text: &str| {
        (1..=128).contains(&text.len())
            && !text.starts_with('.')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:@+".contains(&b))
    };
    match fits(&text) {
        true => Ok(text),
        false => {
            let problem = "it cannot be part of an address".to_owned();
            Err(BadSetting::new(setting, &text, problem, "letters, digits and . - _ : @ +"))
        }
    }
}

pub fn demo(args: DemoArgs, host: &Host) -> Result<DemoConfig, BadSetting> {
    let image = match args.image {
        None => DemoImage::Debian,
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => DemoImage::Url(url),
        Some(file) => DemoImage::File(file.into()),
    };
    Ok(DemoConfig {
        kubeconfig: kubeconfig(args.cluster, host)?,
        image,
        name: name("--name", args.name)?,
        namespace: name("--namespace", args.namespace)?,
    })
}

pub fn console(args: ConsoleArgs, host: &Host) -> Result<ConsoleConfig, BadSetting> {
    Ok(ConsoleConfig {
        kubeconfig: kubeconfig(args.cluster, host)?,
        name: name("NAME", args.name)?,
        namespace: name("--namespace", args.namespace)?,
    })
}

pub fn upload(args: UploadArgs, host: &Host) -> Result<UploadConfig, BadSetting> {
    Ok(UploadConfig {
        kubeconfig: kubeconfig(args.cluster, host)?,
        file: args.file,
        name: name("--name", args.name)?,
        namespace: name("--namespace", args.namespace)?,
    })
}

pub fn download(args: DownloadArgs, host: &Host) -> Result<DownloadConfig, BadSetting> {
    Ok(DownloadConfig {
        kubeconfig: kubeconfig(args.cluster, host)?,
        name: name("NAME", args.name)?,
        namespace: name("--namespace", args.namespace)?,
        file: args.file,
    })
}

pub fn support_bundle(args: SupportBundleArgs, host: &Host) -> Result<SupportBundleConfig, BadSetting> {
    Ok(SupportBundleConfig {
        kubeconfig: kubeconfig(args.cluster, host)?,
        output: args.output,
        description: args.description,
        issue_url: args.issue_url,
        keep: args.keep,
    })
}

/// What was typed, before what the environment says, before what is usual.
fn kubeconfig(args: ClusterArgs, host: &Host) -> Result<PathBuf, BadSetting> {
    let (setting, path) = match (args.kubeconfig, args.data_dir, &host.kubeconfig) {
        (Some(file), _, _) => ("--kubeconfig", file),
        (None, Some(directory), _) => ("--data-dir", directory.join(ADMIN_KUBECONFIG)),
        (None, None, Some(file)) => ("KUBECONFIG", file.clone()),
        (None, None, None) => ("--data-dir", Path::new(DEFAULT_DATA_DIR).join(ADMIN_KUBECONFIG)),
    };
    std::path::absolute(&path)
        .map_err(|why| BadSetting::new(setting, path.display(), why.to_string(), "the path of a kubeconfig"))
}

/// The names of machines, images and namespaces become parts of host names.
fn name(setting: &'static str, name: String) -> Result<String, BadSetting> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let problem = match &name {
        name if name.is_empty() => "it is empty",
        name if name.len() > LONGEST => "it is too long",
        name if !name.chars().all(|c| plain(c) || c == '-') => "there are other characters in it than fit",
        name if !name.starts_with(plain) || !name.ends_with(plain) => "it begins or ends with `-`",
        _ => return Ok(name),
    };
    let fits = "at most 63 lower-case letters, digits and `-`, such as `demo` or `web-1`";
    Err(BadSetting::new(setting, name, problem, fits))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Args, Config};

    fn parse(environment: Option<&str>, words: &[&str]) -> Result<Config, BadSetting> {
        let host = Host {
            hostname: "n1".into(),
            route_address: None,
            stdout_is_a_terminal: false,
            kubeconfig: environment.map(PathBuf::from),
        };
        Config::new(Args::try_parse_from(["sheaf"].iter().chain(words)).unwrap(), &host)
    }

    fn console(environment: Option<&str>, more: &[&str]) -> ConsoleConfig {
        match parse(environment, &[&["vm", "console", "web"], more].concat()).unwrap() {
            Config::Console(config) => config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_typed_outranks_the_environment_and_that_what_is_usual() {
        let found = |environment, more: &[&str]| console(environment, more).kubeconfig.display().to_string();
        assert_eq!(found(None, &[]), "/var/lib/sheaf/admin.kubeconfig");
        assert_eq!(found(Some("/home/a/config"), &[]), "/home/a/config");
        assert_eq!(found(Some("/home/a/config"), &["--data-dir", "/data"]), "/data/admin.kubeconfig");
        assert_eq!(found(Some("/home/a/config"), &["--kubeconfig", "/other"]), "/other");
        let both = ["sheaf", "vm", "console", "web", "--kubeconfig", "a", "--data-dir", "b"];
        Args::try_parse_from(both).unwrap_err();
    }

    #[test]
    fn a_machine_is_in_the_default_namespace_unless_told() {
        assert_eq!(console(None, &[]).namespace, "default");
        assert_eq!(console(None, &["-n", "team-a"]).namespace, "team-a");
    }

    #[test]
    fn the_demo_boots_debian_a_file_or_a_url() {
        let image = |words: &[&str]| match parse(None, &[&["demo"], words].concat()).unwrap() {
            Config::Demo(config) => (config.name, config.image),
            other => panic!("{other:?}"),
        };
        assert_eq!(image(&[]), ("demo".into(), DemoImage::Debian));
        let file = DemoImage::File("guest.qcow2".into());
        assert_eq!(image(&["--image", "guest.qcow2", "--name", "a"]), ("a".into(), file));
        let url = "https://example.com/guest.qcow2";
        assert_eq!(image(&["--image", url]).1, DemoImage::Url(url.into()));
    }

    #[test]
    fn a_role_is_for_one_namespace_unless_it_is_said_to_be_for_all() {
        let wish = |words: &[&str]| match parse(None, &[&["user"], words].concat()).unwrap() {
            Config::User(config) => config.wish,
            other => panic!("{other:?}"),
        };
        let grant = |namespace: Option<&str>, is_group| Grant {
            who: "anna".into(),
            role: "edit".into(),
            namespace: namespace.map(str::to_owned),
            is_group,
            is_elsewhere: false,
        };
        assert_eq!(wish(&["grant", "anna", "edit", "-n", "web"]), UserWish::Grant(grant(Some("web"), false)));
        let to_robot = wish(&["grant", "anna", "edit", "-n", "web", "--elsewhere"]);
        assert_eq!(to_robot, UserWish::Grant(Grant { is_elsewhere: true, ..grant(Some("web"), false) }));
        let everywhere = wish(&["revoke", "anna", "edit", "--everywhere", "--group"]);
        assert_eq!(everywhere, UserWish::Revoke(grant(None, true)));
        let both = ["sheaf", "user", "grant", "anna", "edit", "-n", "web", "--everywhere"];
        for unclear in [&both[..5], &both[..]] {
            Args::try_parse_from(unclear).unwrap_err();
        }
        for odd in ["a/b", "..", "", "a b", "a?b"] {
            assert_eq!(parse(None, &["user", "delete", odd]).unwrap_err().setting, "NAME", "{odd}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused_before_anybody_is_asked() {
        for name in ["", "Demo", "a.b", "-a", "a-", "a/b", &"a".repeat(64)] {
            let why = parse(None, &["image", "upload", "file", &format!("--name={name}")]).unwrap_err();
            assert_eq!((why.setting, why.read.as_str()), ("--name", name));
        }
    }
}
