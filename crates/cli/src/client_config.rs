//! Settings of the commands that ask a cluster for something of their own: the demo and support bundles.

use std::path::PathBuf;

use crate::{
    BadSetting, Host,
    args::{ClusterArgs, DemoArgs, SupportBundleArgs},
    asking::{Access, AskArgs, names},
};

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

pub fn support_bundle(args: SupportBundleArgs, host: &Host) -> Result<SupportBundleConfig, BadSetting> {
    Ok(SupportBundleConfig {
        kubeconfig: kubeconfig(args.cluster, host)?,
        output: args.output,
        description: args.description,
        issue_url: args.issue_url,
        keep: args.keep,
    })
}

/// The first that counts.
fn kubeconfig(args: ClusterArgs, host: &Host) -> Result<PathBuf, BadSetting> {
    let args = AskArgs { kubeconfig: args.kubeconfig, data_dir: args.data_dir, ..AskArgs::default() };
    Ok(Access::new(&args, host)?.kubeconfigs.swap_remove(0))
}

fn name(setting: &'static str, name: String) -> Result<String, BadSetting> {
    let fits = "at most 63 lower-case letters, digits and `-`, such as `demo` or `web-1`";
    names::object(&name).map_err(|why| {
        let problem = why.split(';').next().unwrap_or_default().to_owned();
        BadSetting::new(setting, &name, problem, fits)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Args, Config};

    fn parse(environment: &[&str], words: &[&str]) -> Result<Config, BadSetting> {
        let host = Host {
            hostname: "n1".into(),
            route_address: None,
            stdout_is_a_terminal: false,
            kubeconfigs: environment.iter().map(PathBuf::from).collect(),
            home_kubeconfig: None,
            home: None,
        };
        Config::new(Args::try_parse_from(["sheaf"].iter().chain(words)).unwrap(), &host)
    }

    fn access(environment: &[&str], more: &[&str]) -> Access {
        match parse(environment, &[&["vm", "console", "web"], more].concat()).unwrap() {
            Config::Ask(config) => config.access,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_typed_outranks_the_environment_and_that_what_is_usual() {
        let found = |environment: &[&str], more: &[&str]| {
            let paths = access(environment, more).kubeconfigs;
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
        };
        assert_eq!(found(&[], &[]), "/var/lib/sheaf/admin.kubeconfig");
        assert_eq!(found(&["/home/a/config", "/b"], &[]), "/home/a/config:/b");
        assert_eq!(found(&["/home/a/config"], &["--data-dir", "/data"]), "/data/admin.kubeconfig");
        assert_eq!(found(&["/home/a/config"], &["--kubeconfig", "/other"]), "/other");
        let both = ["sheaf", "vm", "console", "web", "--kubeconfig", "a", "--data-dir", "b"];
        Args::try_parse_from(both).unwrap_err();
    }

    #[test]
    fn a_namespace_is_the_contexts_unless_told() {
        assert_eq!(access(&[], &[]).namespace, None);
        assert_eq!(access(&[], &["-n", "team-a"]).namespace.as_deref(), Some("team-a"));
        // Wherever it stands.
        Args::try_parse_from(["sheaf", "vm", "-n", "team-a", "list", "-o", "json"]).unwrap();
        Args::try_parse_from(["sheaf", "vm", "list", "-n", "Team"]).unwrap_err();
    }

    #[test]
    fn the_demo_boots_debian_a_file_or_a_url() {
        let image = |words: &[&str]| match parse(&[], &[&["demo"], words].concat()).unwrap() {
            Config::Demo(config) => (config.name, config.image),
            other => panic!("{other:?}"),
        };
        assert_eq!(image(&[]), ("demo".into(), DemoImage::Debian));
        let file = DemoImage::File("guest.qcow2".into());
        assert_eq!(image(&["--image", "guest.qcow2", "--name", "a"]), ("a".into(), file));
        let url = "https://example.com/guest.qcow2";
        assert_eq!(image(&["--image", url]).1, DemoImage::Url(url.into()));
        for name in ["", "Demo", "a.b", "-a", "a-", "a/b", &"a".repeat(64)] {
            let why = parse(&[], &["demo", &format!("--name={name}")]).unwrap_err();
            assert_eq!((why.setting, why.read.as_str()), ("--name", name));
        }
    }
}
