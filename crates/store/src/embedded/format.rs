//! From a file to a store that may be served: the lock, the format, the epoch.

use std::{fs, io, iter, path::Path};

use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, WriteTransaction, backends::FileBackend,
};

use super::tables::{self, BASE, COMPACTED, FORMAT, HEAD, HISTORY, LOG, META, VERSIONS};
use crate::epoch::mark::{self, Mark};

/// From format 1 to 2, from 2 to 3, and so on. Format 1 is the first there was.
const STEPS: &[Step] = &[count_history];
type Step = fn(&WriteTransaction) -> Result<(), redb::Error>;

/// What this build writes.
const NEWEST: u64 = 1 + STEPS.len() as u64;

/// Why the store could not be opened. Nothing was changed in it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the store at {place} is in use by another process")]
    InUse { place: String },
    #[error(
        "the store at {place} has format {found}, newer than the {newest} this version knows; start the version that wrote it"
    )]
    Newer { place: String, found: u64, newest: u64 },
    #[error(
        "the store {place} is gone or empty, but {mark} tells that there was one: put the file back, or restore it \
         from a backup; if everything in it is really to be given up, remove {mark} and start again"
    )]
    Lost { place: String, mark: String },
    #[error(
        "the store {place} is damaged ({what}): check the disk it lies on, and put the file back from a backup"
    )]
    Damaged { place: String, what: String },
    #[error("cannot open the store at {place}")]
    Storage {
        place: String,
        #[source]
        source: Box<redb::Error>,
    },
    #[error("cannot read or write {place}")]
    File {
        place: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the store's writer")]
    Thread {
        #[source]
        source: io::Error,
    },
}

/// The numbers a store starts with, raw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub head: u64,
    pub compacted: u64,
    pub base: u64,
    pub history: u64,
}

pub(super) fn open_error(place: &str, error: impl Into<redb::Error>) -> OpenError {
    match error.into() {
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse { place: place.to_owned() },
        redb::Error::Corrupted(what) => OpenError::Damaged { place: place.to_owned(), what },
        // A file that does not begin as one of redb does, or that ends before what it refers to.
        redb::Error::Io(why)
            if matches!(why.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            OpenError::Damaged { place: place.to_owned(), what: why.to_string() }
        }
        source => OpenError::Storage { place: place.to_owned(), source: Box::new(source) },
    }
}

/// Opens the file, after making it if there never was one. A store is made before its mark: a mark
/// without a store means that one was lost, and an empty one in its place would be taken for the truth.
pub(super) fn open_file(path: &Path, mark: &Path) -> Result<FileBackend, OpenError> {
    let place = path.display().to_string();
    let is_there = fs::metadata(path).is_ok_and(|file| file.len() > 0);
    if !is_there && mark.exists() {
        return Err(OpenError::Lost { place, mark: mark.display().to_string() });
    }
    if !path.exists() {
        create_file(path)?;
    }
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|source| OpenError::File { place: place.clone(), source })?;
    FileBackend::new(file).map_err(|error: DatabaseError| open_error(&place, error))
}

/// Makes a whole store under another name and then gives it its own: a power cut while a store is being
/// made leaves nothing behind that could not be opened. The name is made durable too, since a synced file
/// that a power cut takes out of its directory is lost all the same.
fn create_file(path: &Path) -> Result<(), OpenError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".new-{}", std::process::id()));
    let draft = Path::new(&draft);
    let place = draft.display().to_string();
    let failed = |source| OpenError::File { place: place.clone(), source };
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(draft);
    let backend = FileBackend::new(file.map_err(failed)?).map_err(|error| open_error(&place, error))?;
    let database =
        Database::builder().create_with_backend(backend).map_err(|error| open_error(&place, error))?;
    create(&database).map_err(|error| open_error(&place, error))?;
    drop(database);
    fs::File::open(draft).and_then(|file| file.sync_all()).map_err(failed)?;
    // Unlike a rename, this never takes the place of a store that somebody else has just made.
    match fs::hard_link(draft, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    fs::remove_file(draft).map_err(failed)?;
    mark::sync_directory_of(path).map_err(failed)
}

/// Makes the tables of a new store, brings an older one up to date, refuses a newer one, and begins
/// a new epoch when the file shows less than was already handed out.
pub(super) fn prepare(
    database: &Database,
    place: &str,
    mark_path: Option<&Path>,
) -> Result<(Found, Option<Mark>), OpenError> {
    let failed = |error: redb::Error| open_error(place, error);
    let mut found = match format_of(database).map_err(failed)? {
        None => create(database).map_err(failed)?,
        Some(format) if format > NEWEST => {
            return Err(OpenError::Newer { place: place.to_owned(), found: format, newest: NEWEST });
        }
        Some(format) => {
            migrate(database, format, STEPS).map_err(failed)?;
            read(database).map_err(failed)?
        }
    };
    let Some(mark_path) = mark_path else { return Ok((found, None)) };
    let file_failed = |source| OpenError::File { place: mark_path.display().to_string(), source };
    let known = mark::read(mark_path).map_err(file_failed)?;
    if let Some(base) = known.and_then(|known| known.next_base(found.base + found.head)) {
        tracing::warn!(place, base, "an older copy of the store was put back; a new epoch begins");
        found.base = base;
        set_base(database, base).map_err(failed)?;
    }
    let mark = Mark::start(mark_path, found.base + found.head).map_err(file_failed)?;
    Ok((found, Some(mark)))
}

fn format_of(database: &Database) -> Result<Option<u64>, redb::Error> {
    let transaction = database.begin_read()?;
    match transaction.open_table(META) {
        Ok(meta) => number(&meta, FORMAT).map(Some),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read(database: &Database) -> Result<Found, redb::Error> {
    let meta = database.begin_read()?.open_table(META)?;
    Ok(Found {
        head: number(&meta, HEAD)?,
        compacted: number(&meta, COMPACTED)?,
        base: number(&meta, BASE)?,
        history: number(&meta, HISTORY)?,
    })
}

fn number(meta: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64, redb::Error> {
    let missing = || redb::Error::Corrupted(format!("the number {name:?} is missing"));
    Ok(meta.get(name)?.ok_or_else(missing)?.value())
}

/// An empty store stands at revision 1, as etcd does: a reader that was told 0 could not say "after what
/// I saw", since 0 means "anything" to clients of the API.
fn create(database: &Database) -> Result<Found, redb::Error> {
    let found = Found { head: 1, compacted: 0, base: 0, history: 0 };
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(FORMAT, NEWEST)?;
        meta.insert(HEAD, found.head)?;
        meta.insert(COMPACTED, found.compacted)?;
        meta.insert(BASE, found.base)?;
        meta.insert(HISTORY, found.history)?;
        transaction.open_table(VERSIONS)?;
        transaction.open_table(LOG)?.insert(found.head, tables::encode_log(0, iter::empty()).as_slice())?;
    }
    transaction.commit()?;
    Ok(found)
}

/// Brings a store of an older format up to date, one step per format, all in one transaction: a
/// migration cut off half-way never happened.
fn migrate(database: &Database, from: u64, steps: &[Step]) -> Result<(), redb::Error> {
    let done = from.checked_sub(1).and_then(|done| usize::try_from(done).ok());
    let to_do = done.and_then(|done| steps.get(done..));
    let to_do = to_do.ok_or_else(|| redb::Error::Corrupted(format!("format {from} was never written")))?;
    if to_do.is_empty() {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    for step in to_do {
        step(&transaction)?;
    }
    transaction.open_table(META)?.insert(FORMAT, from + to_do.len() as u64)?;
    transaction.commit()?;
    Ok(())
}

/// Format 2 counts history in bytes: each revision in the log says how much it superseded.
fn count_history(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    let versions = transaction.open_table(VERSIONS)?;
    let mut log = transaction.open_table(LOG)?;
    let mut logged = Vec::new();
    for row in log.iter()? {
        let (revision, keys) = row?;
        logged.push((revision.value(), tables::decode_keys(keys.value())?));
    }
    let mut history = 0;
    for (revision, keys) in logged {
        let mut superseded = 0;
        for key in &keys {
            let before = tables::version_at(&versions, key, revision.saturating_sub(1))?;
            let live = before.and_then(|version| version.value);
            superseded += live.map_or(0, |live| tables::weight(key, &live));
        }
        log.insert(revision, tables::encode_log(superseded, keys.iter()).as_slice())?;
        history += superseded;
    }
    transaction.open_table(META)?.insert(HISTORY, history)?;
    Ok(())
}

fn set_base(database: &Database, base: u64) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(META)?.insert(BASE, base)?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Store, Transaction, Write,
        embedded::{Options, open},
    };

    #[test]
    fn a_newer_format_is_refused_by_name_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        drop(open(&path, Options::default()).unwrap());
        let database = Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(META).unwrap().insert(FORMAT, NEWEST + 1).unwrap();
        transaction.commit().unwrap();
        drop(database);

        let refused = open(&path, Options::default()).unwrap_err();
        assert!(matches!(refused, OpenError::Newer { found: 3, newest: 2, .. }), "{refused}");
        assert!(refused.to_string().contains("store.redb"), "{refused}");
        let database = Database::open(&path).unwrap();
        assert_eq!(format_of(&database).unwrap(), Some(NEWEST + 1));
    }

    #[test]
    fn a_store_whose_making_was_cut_off_does_not_stand_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        fs::write(directory.path().join(format!("store.redb.new-{}", std::process::id())), "half a store")
            .unwrap();
        drop(open(&path, Options::default()).unwrap());
        let names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "the store and its mark, and nothing else: {names:?}");
    }

    #[test]
    fn an_older_format_is_brought_up_to_date_step_by_step() {
        let database =
            Database::builder().create_with_backend(redb::backends::InMemoryBackend::new()).unwrap();
        create(&database).unwrap();
        let steps: &[Step] = &[
            |transaction| Ok(transaction.open_table(META)?.insert("second", 2).map(drop)?),
            |transaction| {
                let mut meta = transaction.open_table(META)?;
                let second = meta.get("second")?.expect("steps run in order").value();
                Ok(meta.insert("third", second + 1).map(drop)?)
            },
        ];
        migrate(&database, 1, steps).unwrap();
        let meta = database.begin_read().unwrap().open_table(META).unwrap();
        assert_eq!(meta.get(FORMAT).unwrap().unwrap().value(), 3);
        assert_eq!(meta.get("third").unwrap().unwrap().value(), 3);
        assert!(migrate(&database, 0, steps).is_err());
        migrate(&database, 3, steps).unwrap();
    }

    #[tokio::test]
    async fn history_of_the_first_format_is_counted_and_goes_like_any_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        let options = Options { keep_bytes: 2500, ..Options::default() };
        let store = open(&path, options.clone()).unwrap();
        let put = |key: &'static str, value: usize| Transaction {
            expect: vec![],
            writes: vec![Write::Put { key: key.into(), value: vec![b'x'; value].into() }],
        };
        for (key, size) in [("a", 999), ("b", 500), ("a", 999), ("a", 1)] {
            store.commit(put(key, size)).await.unwrap();
        }
        drop(store);
        let database = Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        {
            let mut log = transaction.open_table(LOG).unwrap();
            let rows: Vec<(u64, Vec<u8>)> = log
                .iter()
                .unwrap()
                .map(|row| row.map(|(at, logged)| (at.value(), logged.value()[8..].to_vec())).unwrap())
                .collect();
            for (revision, keys) in rows {
                log.insert(revision, keys.as_slice()).unwrap();
            }
            let mut meta = transaction.open_table(META).unwrap();
            meta.remove(HISTORY).unwrap();
            meta.insert(FORMAT, 1).unwrap();
        }
        transaction.commit().unwrap();
        drop(database);

        let store = open(&path, options).unwrap();
        let database = store.shared.database().unwrap();
        assert_eq!(format_of(&database).unwrap(), Some(2));
        assert_eq!(read(&database).unwrap().history, 2000, "two versions of `a` are history, `b` is not");
        let oldest = store.compacted().await.unwrap().0;
        store.commit(put("b", 1000)).await.unwrap();
        assert_eq!(read(&database).unwrap().history, 1501, "2501 would be too much: the oldest `a` went");
        assert!(store.compacted().await.unwrap().0 > oldest);
    }

    #[test]
    fn a_second_opener_is_refused_with_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        let first = open(&path, Options::default()).unwrap();
        let refused = open(&path, Options::default()).unwrap_err();
        assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
        assert!(refused.to_string().contains("store.redb"), "{refused}");
        drop(first);
        open(&path, Options::default()).unwrap();
    }
}
