//! `sheaf login`: a context in the kubeconfig for a cluster somewhere else.
//!
//! ```text
//!   which authority does it show? --> is that the one meant? --> name and password --> a token, kept
//!   (the line is cut before a          (a fingerprint that        (over a connection     in the kubeconfig,
//!    word is sent)                      was given, or a person)    that is verified)      mode 0600
//! ```
//!
//! Nothing is ever sent over a connection whose other end is not known. The password is not kept: what is kept is the
//! token of a session, which ends by itself.

pub mod authority;
pub mod contexts;
pub mod kubeconfig_file;
mod passwords;

use std::path::PathBuf;

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args as ClapArgs;
use http::{Method, Uri};
use serde_json::{Value, json};
use sheaf_world::World;

use self::{authority::Fingerprint, kubeconfig_file::KubeconfigFile};
use crate::{
    BadSetting, Host, Secret, admin_password_file,
    asking::{
        Access, Format, Refusal, Session, confirm, names,
        out::{Out, note},
    },
    host::USUAL,
    kubeconfig::server_problem,
};

const LOGIN: &str = "/v3-public/localProviders/local?action=login";
const USUAL_PORT: u16 = 6443;

#[derive(Debug, ClapArgs)]
pub struct LoginArgs {
    /// Address of the cluster, such as https://10.0.0.5:6443 or just 10.0.0.5
    pub server: String,
    /// Who to sign in as
    #[arg(short, long, value_name = "NAME", default_value = "admin")]
    pub user: String,
    /// SHA-256 fingerprint of the cluster's certificate authority, as `sheaf kubeconfig --fingerprint` prints it on its
    /// node; without it you are shown the one there is and asked
    #[arg(long, value_name = "HEX", value_parser = Fingerprint::parse)]
    pub fingerprint: Option<Fingerprint>,
    /// File with the password, of mode 0600 [default: it is asked for]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// File with the password to have from then on, of mode 0600, where the one that was given is for the first login only
    /// [default: it is asked for]
    #[arg(long, value_name = "FILE")]
    pub new_password_file: Option<PathBuf>,
    /// What to call it in the kubeconfig [default: the cluster's host name]
    #[arg(long, value_name = "NAME", value_parser = names::segment)]
    pub context: Option<String>,
    /// Namespace to work in from then on
    #[arg(short, long, value_name = "NAME", value_parser = names::object)]
    pub namespace: Option<String>,
    /// Kubeconfig to keep it in [default: the first that KUBECONFIG names, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// `sheaf login`.
#[derive(Debug)]
pub struct LoginConfig {
    /// `https://HOST:PORT`.
    pub server: String,
    pub user: String,
    pub fingerprint: Option<Fingerprint>,
    pub password: Option<Secret>,
    pub new_password: Option<Secret>,
    pub context: String,
    pub namespace: Option<String>,
    pub kubeconfig: PathBuf,
}

impl LoginConfig {
    pub fn new(args: LoginArgs, host: &Host) -> Result<LoginConfig, BadSetting> {
        let server = address(&args.server)?;
        let name = server.trim_start_matches("https://").trim_end_matches(&format!(":{USUAL_PORT}"));
        let context = args.context.unwrap_or_else(|| name.replace(['[', ']'], "").replace(':', "-"));
        let secret = |setting: &'static str, file: Option<PathBuf>| {
            file.as_deref().map(|file| admin_password_file::read_for(setting, file)).transpose()
        };
        Ok(LoginConfig {
            context,
            user: args.user,
            fingerprint: args.fingerprint,
            password: secret("--password-file", args.password_file)?,
            new_password: secret("--new-password-file", args.new_password_file)?,
            namespace: args.namespace,
            kubeconfig: file(args.kubeconfig, host)?,
            server,
        })
    }
}

/// The one that is written.
pub(crate) fn file(typed: Option<PathBuf>, host: &Host) -> Result<PathBuf, BadSetting> {
    let found = typed
        .or_else(|| host.kubeconfigs.first().cloned())
        .or_else(|| host.home.as_ref().map(|home| home.join(USUAL)));
    let fits = "a file to keep contexts in, such as ~/.kube/config";
    let path = found.ok_or_else(|| BadSetting::new("--kubeconfig", "", "HOME is not set", fits))?;
    std::path::absolute(&path)
        .map_err(|why| BadSetting::new("--kubeconfig", path.display(), why.to_string(), fits))
}

/// Of what was typed, the URL that is meant.
fn address(typed: &str) -> Result<String, BadSetting> {
    let fits = "the address of a node, such as https://10.0.0.5:6443, 10.0.0.5 or sheaf.example";
    let bad = |problem: &str| BadSetting::new("SERVER", typed, problem, fits);
    let url = match typed.contains("://") {
        true => typed.to_owned(),
        false => format!("https://{typed}"),
    };
    if let Some(problem) = server_problem(&url) {
        return Err(bad(problem));
    }
    let uri: Uri = url.parse().map_err(|_| bad("it is not an address"))?;
    if uri.path() != "/"
        || uri.query().is_some()
        || uri.authority().is_some_and(|all| all.as_str().contains('@'))
    {
        return Err(bad("there is more in it than a host and a port"));
    }
    // Who names a scheme and no port means the port of that scheme, as browsers do.
    let usual = if typed.contains("://") { 443 } else { USUAL_PORT };
    Ok(format!("https://{}:{}", uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(usual)))
}

pub async fn run(config: &LoginConfig, world: World) -> Result<(), Refusal> {
    let file = KubeconfigFile::open(&config.kubeconfig)?;
    let authority = authority::shown_by(&config.server).await?;
    let fingerprint = authority.fingerprint();
    match &config.fingerprint {
        Some(wanted) if *wanted == fingerprint => {}
        Some(wanted) => {
            let why = format!(
                "{} shows an authority with the fingerprint {fingerprint}, and not {wanted}: it is another cluster, or \
                 somebody stands in between; nothing was sent",
                config.server
            );
            return Err(Refusal::Refused { doing: format!("sign in at {}", config.server), message: why });
        }
        None if file.trusts(&config.server, &authority.pem) => {}
        None => {
            let what = format!(
                "The cluster at {} shows an authority with the fingerprint\n  {fingerprint}\n`sheaf kubeconfig \
                 --fingerprint` on its node prints the right one.",
                config.server
            );
            confirm::ask(&what, "give that one with --fingerprint")?;
        }
    }
    let password = match &config.password {
        Some(password) => password.clone(),
        None => passwords::asked(&format!("Password of {} at {}: ", config.user, config.server))?,
    };
    let access = json!({
        "server": config.server, "certificate-authority-data": STANDARD.encode(&authority.pem),
    });
    let session = session(&access, None, &world).await?;
    let mut signed_in = sign_in(&session, config, &password).await?;
    if signed_in["mustChangePassword"] == true {
        note("This password was for the first login only: choose another.");
        let new = match &config.new_password {
            Some(new) => new.clone(),
            None => passwords::chosen()?,
        };
        let first = self::session(&access, signed_in["token"].as_str(), &world).await?;
        let body = json!({"currentPassword": password.reveal(), "newPassword": new.reveal()});
        first
            .ask(Method::POST, "/v3/users?action=changepassword", Some(&body), "change the password")
            .await?;
        signed_in = sign_in(&session, config, &new).await?;
    }
    let token = signed_in["token"].as_str().unwrap_or_default();
    // Minutes may have passed since it was read, and others write it, too.
    let mut file = KubeconfigFile::open(&config.kubeconfig)?;
    file.put(&config.context, &access, &config.user, token, config.namespace.as_deref());
    file.write()?;
    Out::look().print(&format!(
        "signed in at {} as {}; the context {} of {} is the current one\n",
        config.server,
        config.user,
        config.context,
        config.kubeconfig.display()
    ))
}

async fn sign_in(session: &Session, config: &LoginConfig, password: &Secret) -> Result<Value, Refusal> {
    let body = json!({
        "username": config.user, "password": password.reveal(), "responseType": "token",
        "description": "sheaf login",
    });
    let doing = format!("sign in at {} as {}", config.server, config.user);
    session.ask(Method::POST, LOGIN, Some(&body), &doing).await.map_err(|why| match why {
        Refusal::NotSignedIn { .. } => {
            Refusal::Forbidden { doing, message: "the name or the password is wrong".to_owned() }
        }
        other => other,
    })
}

/// Over a connection that is verified with the authority which was agreed upon.
async fn session(cluster: &Value, token: Option<&str>, world: &World) -> Result<Session, Refusal> {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "login",
        "clusters": [{"name": "login", "cluster": cluster}],
        "users": [{"name": "login", "user": token.map(|token| json!({"token": token})).unwrap_or_else(|| json!({}))}],
        "contexts": [{"name": "login", "context": {"cluster": "login", "user": "login"}}],
    });
    let failed = |why: std::io::Error| Refusal::cannot("keep a kubeconfig for the moment", why);
    let file = tempfile::NamedTempFile::new().map_err(failed)?;
    std::fs::write(file.path(), kubeconfig.to_string()).map_err(failed)?;
    Session::open(&Access::of(file.path()), Format::Json, Out::default(), world.clone()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_as_people_type_it() {
        for (typed, meant) in [
            ("10.0.0.5", "https://10.0.0.5:6443"),
            ("sheaf.example:7443", "https://sheaf.example:7443"),
            ("https://sheaf.example", "https://sheaf.example:443"),
            ("https://10.0.0.5:6443/", "https://10.0.0.5:6443"),
            ("[::1]", "https://[::1]:6443"),
        ] {
            assert_eq!(address(typed).unwrap(), meant, "{typed}");
        }
        for odd in
            ["", "http://a", "https://", "a b", "https://a/k8s", "https://me:secret@a", "https://a?b=c"]
        {
            address(odd).unwrap_err();
        }
    }
}
