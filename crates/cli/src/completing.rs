//! Completion of what is typed in a shell, names in the cluster included.
//!
//! The shell calls this program again (`SHEAF_COMPLETE=bash sheaf -- ...`). Names are asked of the cluster that the words on the
//! line mean, with little patience: who waits for a completion types on. What goes wrong is silence, as there is nobody to
//! tell.

use std::{env, ffi::OsStr, sync::OnceLock, time::Duration};

use clap::CommandFactory;
use clap_complete::{
    CompletionCandidate,
    engine::{ArgValueCompleter, ValueCompleter},
    env::{CompleteEnv, EnvCompleter, Shells},
};
use http::Method;
use sheaf_world::World;

use crate::{
    Args, Host, Shell,
    asking::{Access, AskArgs, Format, Resource, Session, out::Out, resource},
    cluster,
};

const PATIENCE: Duration = Duration::from_millis(1500);
/// What the shell tells this program by.
const VARIABLE: &str = "SHEAF_COMPLETE";

/// The parser calls completers with nothing but what was typed; what else they need is put here first.
static WORLD: OnceLock<World> = OnceLock::new();

/// Answers the shell, if it is one that asks; the process ends then.
pub fn answer_a_shell(world: World) {
    // It is called once, at the very beginning.
    _ = WORLD.set(world);
    CompleteEnv::with_factory(Args::command).var(VARIABLE).complete();
}

/// What to put into the shell's start file.
pub fn script(shell: Shell) -> Vec<u8> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    if let Some(completer) = shells.completer(&shell.to_string()) {
        // Writing to memory cannot fail, and a shell that is known has a script.
        _ = EnvCompleter::write_registration(completer, VARIABLE, "sheaf", "sheaf", "sheaf", &mut script);
    }
    script
}

/// The names of a kind.
#[derive(Clone, Copy)]
struct Names(&'static Resource);

impl ValueCompleter for Names {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let typed = typed.to_string_lossy().into_owned();
        asked(async |session| {
            let all = session.list(self.0, &session.namespace, "").await.unwrap_or_default();
            candidates(all.iter().filter_map(|one| one["metadata"]["name"].as_str()), &typed)
        })
        .unwrap_or_default()
    }
}

/// The names of what the words before them mean: a noun, or any kind behind `get` and `delete`.
#[derive(Clone, Copy)]
struct NamesMeant;

impl ValueCompleter for NamesMeant {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let words = plain_words(env::args_os().map(|word| word.to_string_lossy().into_owned()));
        let typed = typed.to_string_lossy().into_owned();
        asked(async |session| {
            let resource = match words.first().map(String::as_str) {
                Some("get" | "delete") => {
                    let served = crate::anything::kinds::served(session).await.ok()?;
                    crate::anything::kinds::meant(&served, words.get(1)?).ok()?
                }
                Some(noun) => NOUNS.iter().find(|(called, _)| *called == noun)?.1.clone(),
                None => return None,
            };
            let all = session.list(&resource, &session.namespace, "").await.ok()?;
            Some(candidates(all.iter().filter_map(|one| one["metadata"]["name"].as_str()), &typed))
        })
        .flatten()
        .unwrap_or_default()
    }
}

const NOUNS: [(&str, &Resource); 8] = [
    ("vm", &resource::MACHINES),
    ("image", &resource::IMAGES),
    ("volume", &resource::VOLUMES),
    ("snapshot", &resource::SNAPSHOTS),
    ("network", &resource::NETWORKS),
    ("key", &resource::KEYS),
    ("template", &resource::TEMPLATES),
    ("host", &resource::NODES),
];

/// What Rancher's API lists: a field of each.
#[derive(Clone, Copy)]
struct Listed {
    path: &'static str,
    field: &'static str,
}

impl ValueCompleter for Listed {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let typed = typed.to_string_lossy().into_owned();
        asked(async |session| {
            let page = session.ask(Method::GET, self.path, None, "list them").await.ok()?;
            let all = page["data"].as_array()?.iter();
            Some(candidates(all.filter_map(|one| one[self.field].as_str()), &typed))
        })
        .flatten()
        .unwrap_or_default()
    }
}

fn candidates<'a>(names: impl Iterator<Item = &'a str>, typed: &str) -> Vec<CompletionCandidate> {
    names.filter(|name| name.starts_with(typed)).map(CompletionCandidate::new).collect()
}

/// The kinds that are served.
#[derive(Clone, Copy)]
struct Kinds;

impl ValueCompleter for Kinds {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let typed = typed.to_string_lossy().into_owned();
        asked(async |session| {
            let served = crate::anything::kinds::served(session).await.unwrap_or_default();
            let mut names: Vec<String> = served.iter().map(|one| one.resource.plural.to_string()).collect();
            names.sort();
            names.dedup();
            names.retain(|name| name.starts_with(&typed));
            names.into_iter().map(CompletionCandidate::new).collect()
        })
        .unwrap_or_default()
    }
}

#[derive(Clone, Copy)]
struct Contexts;

impl ValueCompleter for Contexts {
    fn complete(&self, typed: &OsStr) -> Vec<CompletionCandidate> {
        let typed = typed.to_string_lossy().into_owned();
        let Ok(access) = Access::new(
            &typed_so_far(env::args_os().map(|word| word.to_string_lossy().into_owned())),
            &Host::look(),
        ) else {
            return Vec::new();
        };
        let Ok(kubeconfig) = cluster::read(&access.kubeconfigs) else { return Vec::new() };
        let names = kubeconfig.contexts.into_iter().map(|context| context.name);
        names.filter(|name| name.starts_with(&typed)).map(CompletionCandidate::new).collect()
    }
}

pub fn names_of(resource: &'static Resource) -> ArgValueCompleter {
    ArgValueCompleter::new(Names(resource))
}

pub fn names_meant() -> ArgValueCompleter {
    ArgValueCompleter::new(NamesMeant)
}

pub fn users() -> ArgValueCompleter {
    ArgValueCompleter::new(Listed { path: "/v3/users", field: "username" })
}

pub fn tokens() -> ArgValueCompleter {
    ArgValueCompleter::new(Listed { path: "/v3/tokens", field: "id" })
}

pub fn kinds() -> ArgValueCompleter {
    ArgValueCompleter::new(Kinds)
}

pub fn contexts() -> ArgValueCompleter {
    ArgValueCompleter::new(Contexts)
}

pub fn namespaces() -> ArgValueCompleter {
    names_of(&resource::NAMESPACES)
}

fn asked<T>(ask: impl AsyncFnOnce(&Session) -> T) -> Option<T> {
    let args = typed_so_far(env::args_os().map(|word| word.to_string_lossy().into_owned()));
    let access = Access::new(&args, &Host::look()).ok()?;
    let world = WORLD.get()?.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let asking = async {
            let session = Session::open(&access, Format::Name, Out::default(), world).await.ok()?;
            Some(ask(&session).await)
        };
        tokio::time::timeout(PATIENCE, asking).await.ok().flatten()
    })
}

/// Which cluster the words on the line mean, as far as they have been typed: the parser cannot be asked, since the line is
/// not finished.
fn typed_so_far(words: impl Iterator<Item = String>) -> AskArgs {
    let mut args = AskArgs::default();
    let mut words = joined(words).into_iter().peekable();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word, words.peek().cloned()),
        };
        match name.as_str() {
            "--kubeconfig" => args.kubeconfig = value.map(Into::into),
            "--data-dir" => args.data_dir = value.map(Into::into),
            "--context" => args.context = value,
            "-n" | "--namespace" => args.namespace = value,
            _ => {}
        }
    }
    args
}

/// Flags that a name may stand behind, and that take a word of their own.
const WITH_VALUES: [&str; 11] = [
    "--kubeconfig",
    "--data-dir",
    "--context",
    "-n",
    "--namespace",
    "-o",
    "--output",
    "-l",
    "--selector",
    "--timeout",
    "--grace",
];

/// `--flag=value` as it was typed: bash hands it over in three words.
fn joined(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in words {
        match all.last_mut() {
            Some(last) if word == "=" && last.starts_with("--") => {
                last.push('=');
                is_open = true;
            }
            Some(last) if std::mem::take(&mut is_open) => last.push_str(&word),
            _ => all.push(word),
        }
    }
    all
}

/// The words on the line that are no flag and no value of one that says which cluster is meant, without the program's own name.
fn plain_words(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut words = joined(words.skip_while(|word| word != "--").skip(2)).into_iter();
    let mut plain = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            flag if WITH_VALUES.contains(&flag) => {
                words.next();
            }
            flag if flag.starts_with('-') => {}
            _ => plain.push(word),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_before_a_name_say_of_what_it_is() {
        let line = "/usr/bin/sheaf -- sheaf -n team get -o wide --context=lab pvc bo";
        assert_eq!(plain_words(line.split(' ').map(str::to_owned)), ["get", "pvc", "bo"]);
        let split = "sheaf -- sheaf get --namespace = team -l a=b pvc bo";
        assert_eq!(plain_words(split.split(' ').map(str::to_owned)), ["get", "pvc", "bo"]);
        let args = typed_so_far(split.split(' ').map(str::to_owned));
        assert_eq!(args.namespace.as_deref(), Some("team"));
        assert_eq!(plain_words("sheaf -- sheaf".split(' ').map(str::to_owned)), [] as [&str; 0]);
    }

    #[test]
    fn an_unfinished_line_already_says_which_cluster_is_meant() {
        let line = "sheaf -- sheaf vm start -n team --kubeconfig=/tmp/k ";
        let args = typed_so_far(line.split(' ').map(str::to_owned));
        assert_eq!(args.namespace.as_deref(), Some("team"));
        assert_eq!(args.kubeconfig.as_deref(), Some(std::path::Path::new("/tmp/k")));
    }

    #[test]
    fn every_shell_has_a_script_that_calls_us_again() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell)).unwrap();
            assert!(script.contains("SHEAF_COMPLETE") && script.contains("sheaf"), "{shell}: {script}");
        }
    }
}
