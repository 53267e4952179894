//! Which layout a data directory has, and the way from an older one to today's.
//!
//! Each step leads from one format to the next. The number is written after the step, so
//! a step that a crash cut short runs again: **every step must be repeatable**. Newer
//! formats are refused, since what an older Sheaf does not know it would destroy.

use std::{fs, io, path::Path};

use sheaf_pki::durable;
use tracing::info;

use super::{DataDirError, Layout};

/// What this Sheaf writes.
pub const CURRENT: u32 = 1;

/// The way here, oldest first: one step for every format before [`CURRENT`].
const MIGRATIONS: &[Migration] = &[];

/// One step from format `from` to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Migration {
    pub from: u32,
    /// For the log: what changes.
    pub what: &'static str,
    pub run: fn(&Layout) -> io::Result<()>,
}

/// Brings the directory to [`CURRENT`]; an empty one starts there.
pub(super) fn bring_up_to_date(layout: &Layout) -> Result<(), DataDirError> {
    migrate(layout, CURRENT, MIGRATIONS)
}

fn migrate(layout: &Layout, current: u32, migrations: &[Migration]) -> Result<(), DataDirError> {
    let Some(mut format) = read(layout)? else {
        return write(layout, current);
    };
    if format > current {
        return Err(DataDirError::Newer { path: layout.root().to_owned(), format, known: current });
    }
    while format < current {
        let step = migrations
            .iter()
            .find(|step| step.from == format)
            .ok_or_else(|| DataDirError::TooOld { path: layout.root().to_owned(), format })?;
        info!(from = format, to = format + 1, what = step.what, "migrating the data directory");
        (step.run)(layout).map_err(|source| DataDirError::Migrate {
            from: format,
            what: step.what,
            source,
        })?;
        format += 1;
        write(layout, format)?;
    }
    Ok(())
}

/// The format of what is there; `None` where nothing is.
fn read(layout: &Layout) -> Result<Option<u32>, DataDirError> {
    let path = layout.format();
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(format) => Ok(Some(format)),
            Err(_) => {
                Err(DataDirError::FormatUnreadable { path, text: text.trim().chars().take(40).collect() })
            }
        },
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(DataDirError::Read { path, source }),
    }
}

/// Refuses a directory that holds something and has no format: nobody wants a node in
/// their home directory by a slip of the hand.
pub(super) fn refuse_foreign(layout: &Layout) -> Result<(), DataDirError> {
    if layout.format().exists() {
        return Ok(());
    }
    match first_foreign_file(layout.root()) {
        Ok(None) => Ok(()),
        Ok(Some(name)) => Err(DataDirError::not_ours(layout.root(), &name)),
        Err(source) => Err(DataDirError::Read { path: layout.root().to_owned(), source }),
    }
}

/// Something that a first start cut short does not explain.
fn first_foreign_file(root: &Path) -> io::Result<Option<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // A file system of its own comes with lost+found.
        if name != "LOCK" && name != "lost+found" && !durable::is_temporary(&name) {
            names.push(name);
        }
    }
    Ok(names.into_iter().min())
}

fn write(layout: &Layout, format: u32) -> Result<(), DataDirError> {
    let path = layout.format();
    durable::replace(&path, durable::PRIVATE, format!("{format}\n").as_bytes())
        .map_err(|source| DataDirError::Write { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two steps that each append to a file, the second of which fails while `stuck` is there.
    const STEPS: &[Migration] = &[
        Migration { from: 1, what: "first", run: |layout| append(layout, "1->2 ") },
        Migration {
            from: 2,
            what: "second",
            run: |layout| {
                append(layout, "2->3 ")?;
                match layout.root().join("stuck").exists() {
                    true => Err(io::Error::other("stuck")),
                    false => Ok(()),
                }
            },
        },
    ];

    fn append(layout: &Layout, text: &str) -> io::Result<()> {
        let path = layout.root().join("steps");
        let old = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, old + text)
    }

    fn directory(format: &str) -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        fs::write(layout.format(), format).unwrap();
        (dir, layout)
    }

    fn steps(layout: &Layout) -> String {
        fs::read_to_string(layout.root().join("steps")).unwrap_or_default()
    }

    #[test]
    fn an_older_directory_is_migrated_step_by_step() {
        let (_dir, layout) = directory("1\n");
        migrate(&layout, 3, STEPS).unwrap();
        assert_eq!(steps(&layout), "1->2 2->3 ");
        assert_eq!(fs::read_to_string(layout.format()).unwrap(), "3\n");
        migrate(&layout, 3, STEPS).unwrap();
        assert_eq!(steps(&layout), "1->2 2->3 ");
    }

    #[test]
    fn a_migration_that_was_cut_short_goes_on_from_the_step_it_was_in() {
        let (_dir, layout) = directory("1\n");
        fs::write(layout.root().join("stuck"), "").unwrap();
        let why = migrate(&layout, 3, STEPS).unwrap_err();
        assert!(matches!(why, DataDirError::Migrate { from: 2, .. }), "{why:?}");
        assert_eq!(fs::read_to_string(layout.format()).unwrap(), "2\n");
        fs::remove_file(layout.root().join("stuck")).unwrap();
        migrate(&layout, 3, STEPS).unwrap();
        assert_eq!(steps(&layout), "1->2 2->3 2->3 ");
    }

    #[test]
    fn a_newer_directory_is_refused_and_left_alone() {
        let (_dir, layout) = directory("4\n");
        let why = migrate(&layout, 3, STEPS).unwrap_err().to_string();
        assert!(why.contains("newer Sheaf (format 4; this one knows up to 3)"), "{why}");
        assert_eq!(steps(&layout), "");
        assert_eq!(fs::read_to_string(layout.format()).unwrap(), "4\n");
    }

    #[test]
    fn every_older_format_has_a_way_to_the_current_one() {
        let from: Vec<u32> = MIGRATIONS.iter().map(|step| step.from).collect();
        assert_eq!(from, (1..CURRENT).collect::<Vec<_>>());
    }

    #[test]
    fn a_format_that_is_no_number_or_has_no_way_here_is_refused() {
        for (text, current) in [("banana", 3), ("", 3), ("-1", 3), ("0", 3)] {
            let (_dir, layout) = directory(text);
            migrate(&layout, current, STEPS).unwrap_err();
            assert_eq!(fs::read_to_string(layout.format()).unwrap(), text);
        }
    }

    #[test]
    fn a_first_start_that_was_cut_short_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        fs::write(layout.lock(), "7").unwrap();
        fs::write(dir.path().join(".format.new"), "").unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        refuse_foreign(&layout).unwrap();
        bring_up_to_date(&layout).unwrap();
        assert_eq!(fs::read_to_string(layout.format()).unwrap(), format!("{CURRENT}\n"));
    }
}
