//! Which room may enter which.

use std::{collections::BTreeMap, fs, path::Path};

use toml::{Table, Value};

use crate::violation::{Violation, must_hold, root};

/// For each room, the rooms it may depend on. A room that is not here may not be built.
///
/// The empty rows are the point: they can be read, tested and replaced alone. Only
/// `apiserver` is handed the store; everyone else goes through the API.
const MAY_ENTER: &[(&str, &[&str])] = &[
    ("world", &[]),
    ("store", &[]),
    ("cel", &[]),
    ("console", &[]),
    ("resources", &["cel"]),
    ("hypervisor", &[]),
    ("network", &[]),
    ("storage", &[]),
    ("planner", &["resources"]),
    ("pki", &["world"]),
    ("apiserver", &["console", "planner", "resources", "store", "world"]),
    // In process it hands requests straight to the API server.
    ("client", &["apiserver", "resources", "world"]),
    ("controllers", &["client", "planner", "resources", "world"]),
    ("agent", &["client", "hypervisor", "network", "pki", "planner", "resources", "storage", "world"]),
    ("cli", &["client", "pki", "resources", "world"]),
];

/// These put the house together, so every room is open to them.
const BUILDERS: &[&str] = &["bin", "testbed", "tests"];

/// What tests may use beside what their room may: a cluster to run in, and a seed.
const MAY_ENTER_FROM_TESTS: &[&str] = &["testbed", "world"];

struct Manifest {
    path: String,
    room: String,
    contents: Table,
}

impl Manifest {
    fn parse(path: &str, text: &str) -> Manifest {
        let contents: Table = text.parse().unwrap_or_else(|why| panic!("{path}: {why}"));
        let room = match path.split('/').collect::<Vec<_>>()[..] {
            ["crates", room, _] => room,
            [room, ..] => room,
            [] => panic!("a manifest has a path"),
        };
        Manifest { path: path.to_owned(), room: room.to_owned(), contents }
    }

    /// Every dependency, with the section it stands in.
    fn dependencies(&self) -> Vec<(&str, &str, &Value)> {
        let targets = self.contents.get("target").and_then(Value::as_table);
        let tables =
            targets.into_iter().flat_map(Table::values).filter_map(Value::as_table).chain([&self.contents]);
        tables
            .flat_map(|table| {
                ["dependencies", "dev-dependencies", "build-dependencies"]
                    .into_iter()
                    .filter_map(|section| Some((section, table.get(section)?.as_table()?)))
            })
            .flat_map(|(section, dependencies)| {
                dependencies.iter().map(move |(name, value)| (section, name.as_str(), value))
            })
            .collect()
    }

    fn violation(&self, what: String) -> Violation {
        Violation { path: self.path.clone(), line: 1, what }
    }
}

/// All manifests of the workspace.
fn manifests() -> Vec<Manifest> {
    let mut paths = vec!["tests/Cargo.toml".to_owned()];
    for directory in ["bin", "crates"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            paths.push(format!("{directory}/{name}/Cargo.toml"));
        }
    }
    paths.retain(|path| root().join(path).exists());
    paths.sort();
    paths.iter().map(|path| Manifest::parse(path, &fs::read_to_string(root().join(path)).unwrap())).collect()
}

/// `sheaf-store` is the room `store`; the binary's own package is `sheaf`.
fn room_of_package(name: &str) -> Option<&str> {
    if name == "sheaf" { Some("bin") } else { name.strip_prefix("sheaf-") }
}

fn forbidden_doors(manifests: &[Manifest]) -> Vec<Violation> {
    let table: BTreeMap<_, _> = MAY_ENTER.iter().copied().collect();
    let mut found = Vec::new();
    for manifest in manifests.iter().filter(|manifest| !BUILDERS.contains(&manifest.room.as_str())) {
        let Some(open) = table.get(manifest.room.as_str()) else {
            found.push(manifest.violation(format!("the room {} is not on the map", manifest.room)));
            continue;
        };
        for (section, name, _) in manifest.dependencies() {
            let Some(room) = room_of_package(name) else { continue };
            let for_tests = section == "dev-dependencies" && MAY_ENTER_FROM_TESTS.contains(&room);
            if !open.contains(&room) && !for_tests {
                found.push(manifest.violation(format!("{} may not enter {room}", manifest.room)));
            }
        }
    }
    found
}

fn own_versions(manifests: &[Manifest]) -> Vec<Violation> {
    let mut found = Vec::new();
    for manifest in manifests {
        for (_, name, value) in manifest.dependencies() {
            if value.get("workspace").and_then(Value::as_bool) != Some(true) {
                found.push(manifest.violation(format!("{name} is not taken from the workspace")));
            }
        }
    }
    found
}

fn own_lints(manifests: &[Manifest]) -> Vec<Violation> {
    let has_its_own = |manifest: &&Manifest| {
        manifest.contents.get("lints").and_then(|lints| lints.get("workspace")?.as_bool()) != Some(true)
    };
    manifests
        .iter()
        .filter(has_its_own)
        .map(|manifest| manifest.violation("does not take its lints from the workspace".to_owned()))
        .collect()
}

fn own_chance(manifests: &[Manifest]) -> Vec<Violation> {
    let mut found = Vec::new();
    for manifest in manifests.iter().filter(|manifest| manifest.room != "world") {
        for (section, name, _) in manifest.dependencies() {
            let draws = ["fastrand", "getrandom", "rand", "rand_core", "uuid"].contains(&name);
            if draws && section != "dev-dependencies" {
                found.push(manifest.violation(format!("{name} draws numbers; only world may use it")));
            }
        }
    }
    found
}

#[test]
fn crates_depend_only_on_rooms_they_may_enter() {
    must_hold("crates depend only on rooms they may enter", forbidden_doors(&manifests()));
}

#[test]
fn every_dependency_is_taken_from_the_workspace() {
    must_hold("every dependency is taken from the workspace", own_versions(&manifests()));
}

#[test]
fn every_crate_takes_its_lints_from_the_workspace() {
    must_hold("every crate takes its lints from the workspace", own_lints(&manifests()));
}

#[test]
fn only_world_depends_on_crates_that_draw_numbers() {
    must_hold("only world depends on crates that draw numbers", own_chance(&manifests()));
}

#[test]
fn every_member_of_the_workspace_is_checked() {
    let rooms: Vec<_> = manifests().into_iter().map(|manifest| manifest.room).collect();
    for room in ["apiserver", "bin", "resources", "store", "tests", "world"] {
        assert!(rooms.iter().any(|found| found == room), "{room} is not among {rooms:?}");
    }
    let workspace: Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let top = Path::new(member.as_str().unwrap()).iter().next().unwrap();
        assert!(top == "bin" || top == "crates" || top == "tests", "nobody checks {member}");
    }
}

mod planted {
    use super::*;

    fn complaints(rule: fn(&[Manifest]) -> Vec<Violation>, path: &str, text: &str) -> Vec<String> {
        rule(&[Manifest::parse(path, text)]).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn a_door_that_is_not_on_the_map_is_found_wherever_it_hides() {
        for section in
            ["dependencies", "build-dependencies", "dev-dependencies", "target.'cfg(unix)'.dependencies"]
        {
            let text = format!("[{section}]\nsheaf-store.workspace = true\n");
            assert_eq!(
                complaints(forbidden_doors, "crates/controllers/Cargo.toml", &text),
                ["controllers may not enter store"],
                "{section}"
            );
        }
    }

    #[test]
    fn the_testbed_is_for_tests() {
        let text = |section| format!("[{section}]\nsheaf-testbed = {{ workspace = true }}\n");
        assert_eq!(
            complaints(forbidden_doors, "crates/apiserver/Cargo.toml", &text("dependencies")),
            ["apiserver may not enter testbed"]
        );
        assert!(
            complaints(forbidden_doors, "crates/apiserver/Cargo.toml", &text("dev-dependencies")).is_empty()
        );
        assert!(complaints(forbidden_doors, "tests/Cargo.toml", &text("dependencies")).is_empty());
    }

    #[test]
    fn nobody_depends_on_the_binary() {
        assert_eq!(
            complaints(
                forbidden_doors,
                "crates/cli/Cargo.toml",
                "[dependencies]\nsheaf = { workspace = true }\n"
            ),
            ["cli may not enter bin"]
        );
    }

    #[test]
    fn a_room_without_a_row_is_found() {
        assert_eq!(
            complaints(forbidden_doors, "crates/attic/Cargo.toml", ""),
            ["the room attic is not on the map"]
        );
    }

    #[test]
    fn a_version_of_its_own_is_found() {
        let text = "[dependencies]\nserde = \"1\"\nbytes = { version = \"1\" }\nhttp.workspace = true\n";
        assert_eq!(
            complaints(own_versions, "crates/cli/Cargo.toml", text),
            ["bytes is not taken from the workspace", "serde is not taken from the workspace"]
        );
    }

    #[test]
    fn lints_of_its_own_are_found() {
        assert_eq!(
            complaints(own_lints, "crates/cli/Cargo.toml", "[lints.rust]\nunsafe_code = \"allow\"\n"),
            ["does not take its lints from the workspace"]
        );
        assert!(complaints(own_lints, "crates/cli/Cargo.toml", "[lints]\nworkspace = true\n").is_empty());
    }

    #[test]
    fn chance_of_its_own_is_found() {
        let text = "[dependencies]\nrand = { workspace = true }\n";
        assert_eq!(
            complaints(own_chance, "crates/store/Cargo.toml", text),
            ["rand draws numbers; only world may use it"]
        );
        assert!(complaints(own_chance, "crates/world/Cargo.toml", text).is_empty());
    }
}
