//! The file in which contexts are kept: a kubeconfig, so kubectl and every other client can use it, too.
//!
//! What others put there stays as it is. It is written under another name and renamed, of mode 0600 from its first byte: a
//! token is in it.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::asking::Refusal;

#[derive(Debug)]
pub struct KubeconfigFile {
    path: PathBuf,
    tree: Value,
}

impl KubeconfigFile {
    /// An empty one where there is none.
    pub fn open(path: &Path) -> Result<KubeconfigFile, Refusal> {
        // What is renamed over a link would cut it.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(Refusal::Read { path, source }),
        };
        let mut tree: Value = match text.trim().is_empty() {
            true => json!({}),
            false => serde_yaml_ng::from_str(&text)
                .map_err(|why| Refusal::cannot(&format!("read the kubeconfig {}", path.display()), why))?,
        };
        if !tree.is_object() {
            return Err(Refusal::Wrong(format!(
                "{} is no kubeconfig: move it away, or name another",
                path.display()
            )));
        }
        for (field, usual) in [("apiVersion", "v1"), ("kind", "Config")] {
            if tree[field].is_null() {
                tree[field] = usual.into();
            }
        }
        for list in ["clusters", "users", "contexts"] {
            if !tree[list].is_array() {
                tree[list] = json!([]);
            }
        }
        Ok(KubeconfigFile { path, tree })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether somebody agreed already that this server has this authority.
    pub fn trusts(&self, server: &str, authority: &str) -> bool {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let data = STANDARD.encode(authority);
        let clusters = self.tree["clusters"].as_array();
        clusters.into_iter().flatten().any(|one| {
            one["cluster"]["server"] == server
                && one["cluster"]["certificate-authority-data"] == data.as_str()
        })
    }

    pub fn contexts(&self) -> impl Iterator<Item = &Value> {
        self.tree["contexts"].as_array().into_iter().flatten()
    }

    pub fn current(&self) -> &str {
        self.tree["current-context"].as_str().unwrap_or_default()
    }

    /// The server that a cluster of this file has.
    pub fn server_of(&self, cluster: &str) -> &str {
        named(&self.tree["clusters"], cluster)
            .and_then(|one| one["cluster"]["server"].as_str())
            .unwrap_or_default()
    }

    pub fn has(&self, context: &str) -> bool {
        named(&self.tree["contexts"], context).is_some()
    }

    /// A context with its cluster and its user, all of one name, which becomes the current one.
    pub fn put(&mut self, name: &str, cluster: &Value, user: &str, token: &str, namespace: Option<&str>) {
        let user_name = format!("{user}@{name}");
        let mut context = json!({"cluster": name, "user": user_name});
        let had = named(&self.tree["contexts"], name).and_then(|one| one["context"]["namespace"].as_str());
        if let Some(namespace) = namespace.or(had) {
            context["namespace"] = namespace.into();
        }
        replace(&mut self.tree["clusters"], name, json!({"name": name, "cluster": cluster}));
        replace(&mut self.tree["users"], &user_name, json!({"name": user_name, "user": {"token": token}}));
        replace(&mut self.tree["contexts"], name, json!({"name": name, "context": context}));
        self.tree["current-context"] = name.into();
    }

    pub fn choose(&mut self, context: &str) {
        self.tree["current-context"] = context.into();
    }

    pub fn set_namespace(&mut self, context: &str, namespace: &str) {
        if let Some(list) = self.tree["contexts"].as_array_mut()
            && let Some(found) = list.iter_mut().find(|one| one["name"] == context)
        {
            found["context"]["namespace"] = namespace.into();
        }
    }

    /// Takes a context away, and with it the cluster and the user that nobody else has.
    pub fn forget(&mut self, context: &str) {
        let Some(found) = named(&self.tree["contexts"], context).cloned() else { return };
        remove(&mut self.tree["contexts"], context);
        for (list, field) in [("clusters", "cluster"), ("users", "user")] {
            let name = found["context"][field].as_str().unwrap_or_default().to_owned();
            if !self.contexts().any(|one| one["context"][field] == name.as_str()) {
                remove(&mut self.tree[list], &name);
            }
        }
        if self.current() == context {
            self.tree["current-context"] = "".into();
        }
    }

    pub fn write(&self) -> Result<(), Refusal> {
        let failed = |source| Refusal::Write { path: self.path.clone(), source };
        let text =
            serde_yaml_ng::to_string(&self.tree).map_err(|why| Refusal::cannot("write a kubeconfig", why))?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        if !directory.exists() {
            fs::create_dir_all(directory).map_err(failed)?;
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        }
        // A temporary file is for its owner alone.
        let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(&self.path).map_err(|why| failed(why.error))?;
        Ok(())
    }
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|one| one["name"] == name)
}

fn remove(list: &mut Value, name: &str) {
    if let Some(list) = list.as_array_mut() {
        list.retain(|one| one["name"] != name);
    }
}

fn replace(list: &mut Value, name: &str, entry: Value) {
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|one| one["name"] == name) {
        Some(found) => *found = entry,
        None => list.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "apiVersion: v1\nkind: Config\npreferences: {colors: true}\nclusters:\n- name: eks\n  cluster: {server: https://eks}\n\
                          users:\n- name: me\n  user: {exec: {command: aws}}\ncontexts:\n- name: eks\n  context: {cluster: eks, user: me}\ncurrent-context: eks\n";

    fn with(text: &str) -> (tempfile::TempDir, KubeconfigFile) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        fs::write(&path, text).unwrap();
        let file = KubeconfigFile::open(&path).unwrap();
        (dir, file)
    }

    fn put(file: &mut KubeconfigFile) {
        let cluster = json!({"server": "https://a:6443", "certificate-authority-data": "UEVN"});
        file.put("a", &cluster, "admin", "t0ken", Some("team"));
    }

    #[test]
    fn what_others_put_there_stays() {
        let (_dir, mut file) = with(OTHERS);
        put(&mut file);
        file.write().unwrap();
        let read = KubeconfigFile::open(file.path()).unwrap();
        assert_eq!(read.current(), "a");
        assert_eq!(read.tree["preferences"]["colors"], true);
        assert_eq!(read.tree["users"][0]["user"]["exec"]["command"], "aws");
        assert_eq!(read.server_of("eks"), "https://eks");
        let mut again = read;
        again.forget("a");
        again.choose("eks");
        assert_eq!(again.tree, serde_yaml_ng::from_str::<Value>(OTHERS).unwrap());
    }

    #[test]
    fn it_is_for_its_owner_alone_whatever_it_was_before() {
        let (_dir, mut file) = with(OTHERS);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        put(&mut file);
        file.write().unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_stays_a_link() {
        let (dir, file) = with(OTHERS);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(file.path(), &link).unwrap();
        let mut through = KubeconfigFile::open(&link).unwrap();
        put(&mut through);
        through.write().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(KubeconfigFile::open(file.path()).unwrap().current(), "a");
    }

    #[test]
    fn signing_in_again_keeps_the_namespace_and_makes_nothing_twice() {
        let (_dir, mut file) = with("");
        put(&mut file);
        file.put("a", &json!({"server": "https://a:6443"}), "admin", "newer", None);
        assert_eq!(file.contexts().count(), 1);
        assert_eq!(file.tree["contexts"][0]["context"]["namespace"], "team");
        assert_eq!(file.tree["users"], json!([{"name": "admin@a", "user": {"token": "newer"}}]));
        assert!(!file.trusts("https://a:6443", "PEM"));
    }

    #[test]
    fn an_authority_that_was_agreed_upon_is_trusted_for_its_server_alone() {
        let (_dir, mut file) = with("");
        put(&mut file);
        assert!(file.trusts("https://a:6443", "PEM"));
        assert!(!file.trusts("https://b:6443", "PEM") && !file.trusts("https://a:6443", "OTHER"));
    }

    #[test]
    fn what_is_no_kubeconfig_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        for text in ["- a\n- b\n", "just text", "a: [\n"] {
            fs::write(&path, text).unwrap();
            KubeconfigFile::open(&path).unwrap_err();
        }
    }
}
