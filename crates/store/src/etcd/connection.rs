//! One client's connection to etcd, and the checks every answer goes through.
//!
//! etcd's data may be replaced while we are connected: somebody restores a snapshot. From
//! then on every raw revision we know means something else. So each transaction, reads
//! included, carries the condition that the epoch record is the one we opened with, and
//! no answer may show an older revision, or another cluster, than an earlier one did.
//! When either fails, the store stops; opening it again begins a new epoch.
//!
//! Reads are transactions whose only operation is a linearizable get. An empty list of
//! operations would count as serializable in etcd, and so might answer from the past.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, KvClient, ResponseHeader, Txn, TxnOp,
    WatchClient, proto::PbTxnOpResponse,
};
use parking_lot::Mutex;

use super::{error, record::EPOCH};
use crate::{Entry, Revision, StoreError, epoch::mark::Mark};

/// The largest answer we take. Pages and fragments are meant to stay far below it.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A connection before anything is known about the data behind it.
#[derive(Clone)]
pub(crate) struct Line {
    pub kv: KvClient,
    pub watch: WatchClient,
    pub timeout: Duration,
}

/// A connection to data whose epoch is known.
pub(super) struct Connection {
    line: Line,
    cluster: u64,
    /// What to add to a raw revision.
    pub base: u64,
    /// The raw revision of the epoch record we opened with.
    epoch_revision: i64,
    /// The newest raw revision any answer showed.
    seen: AtomicU64,
    mark: Mutex<Option<Mark>>,
    failed: OnceLock<String>,
    /// Tells watches that `failed` is set.
    failing: tokio::sync::watch::Sender<()>,
}

/// One key as etcd has it.
pub(crate) struct Found {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub created: u64,
    pub modified: u64,
}

/// The answers of the gets in a transaction, in order, and the raw revision they show.
pub(crate) struct Answer {
    pub succeeded: bool,
    pub gets: Vec<Vec<Found>>,
    /// Whether the last get has more than it answered.
    pub more: bool,
    pub revision: u64,
}

impl Line {
    pub async fn connect(
        endpoints: &[String],
        tls: Option<etcd_client::TlsOptions>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(3))
            // A member that is cut off from its leader ends its watches rather than keep them silent.
            .with_require_leader(true)
            // Not below five seconds: etcd takes more frequent pings for an attack and hangs up.
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            .with_keep_alive_while_idle(true);
        if let Some(tls) = tls {
            options = options.with_tls(tls);
        }
        let client = Client::connect(endpoints, Some(options)).await?;
        Ok(Line {
            kv: client.kv_client().max_decoding_message_size(MAX_MESSAGE_BYTES),
            watch: client.watch_client().max_decoding_message_size(MAX_MESSAGE_BYTES),
            timeout,
        })
    }

    /// Carries out one transaction. The error is etcd's own or the timeout's.
    pub async fn transact(&self, txn: Txn) -> Result<(Answer, ResponseHeader), Error> {
        let mut kv = self.kv.clone();
        let mut response = within(self.timeout, kv.txn(txn)).await?;
        let header =
            response.take_header().ok_or_else(|| Error::Internal("an answer has no header".to_owned()))?;
        let mut answer = Answer {
            succeeded: response.succeeded(),
            gets: vec![],
            more: false,
            revision: raw(header.revision()),
        };
        for operation in response.0.responses {
            if let Some(PbTxnOpResponse::ResponseRange(range)) = operation.response {
                answer.more = range.more;
                answer.gets.push(range.kvs.into_iter().map(Found::from).collect());
            }
        }
        Ok((answer, header))
    }
}

/// Bounds a call. What took too long may still be carried out.
pub(super) async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(timeout, call).await {
        Ok(result) => result,
        Err(_) => Err(Error::Internal(format!("etcd did not answer within {} s", timeout.as_secs()))),
    }
}

/// etcd's revisions are signed for the sake of its wire format and never negative.
pub(super) fn raw(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

impl Connection {
    pub fn new(
        line: Line,
        header: &ResponseHeader,
        base: u64,
        epoch_revision: i64,
        mark: Option<Mark>,
    ) -> Arc<Self> {
        Arc::new(Connection {
            line,
            cluster: header.cluster_id(),
            base,
            epoch_revision,
            seen: AtomicU64::new(raw(header.revision())),
            mark: Mutex::new(mark),
            failed: OnceLock::new(),
            failing: tokio::sync::watch::Sender::new(()),
        })
    }

    pub fn check(&self) -> Result<(), StoreError> {
        match self.failed.get() {
            None => Ok(()),
            Some(reason) => Err(StoreError::Failed { reason: reason.clone() }),
        }
    }

    /// From now on everything fails; the first reason is kept.
    pub fn fail(&self, reason: impl Into<String>) -> StoreError {
        let reason = reason.into();
        tracing::error!(reason, "the store stopped; it must be opened again");
        let reason = self.failed.get_or_init(|| reason).clone();
        self.failing.send_replace(());
        StoreError::Failed { reason }
    }

    /// Resolves when the store fails, for those who wait for something else.
    pub fn failure(&self) -> tokio::sync::watch::Receiver<()> {
        self.failing.subscribe()
    }

    /// Ends watches, and the mark in good order.
    pub fn close(&self) {
        let clean = self.failed.set("the store was closed".to_owned()).is_ok();
        self.failing.send_replace(());
        if let (true, Some(mark)) = (clean, self.mark.lock().take()) {
            mark.close();
        }
    }

    pub fn line(&self) -> &Line {
        &self.line
    }

    pub fn is_epoch_revision(&self, raw: u64) -> bool {
        i64::try_from(raw) == Ok(self.epoch_revision)
    }

    pub fn same_epoch(&self) -> Compare {
        Compare::mod_revision(EPOCH, CompareOp::Equal, self.epoch_revision)
    }

    /// The linearizable answers of `gets`, all of one revision.
    pub async fn read(&self, gets: Vec<TxnOp>) -> Result<Answer, StoreError> {
        self.check()?;
        let floor = self.seen.load(Ordering::Acquire);
        let txn = Txn::new().when([self.same_epoch()]).and_then(gets);
        let (answer, header) = self.line.transact(txn).await.map_err(|error| error::of_read(&error))?;
        self.accept(&header, floor)?;
        if !answer.succeeded { Err(self.epoch_changed()) } else { Ok(answer) }
    }

    /// The newest raw revision, linearizable.
    pub async fn head(&self) -> Result<u64, StoreError> {
        let anything = TxnOp::get(EPOCH, Some(GetOptions::new().with_keys_only()));
        self.read(vec![anything]).await.map(|answer| answer.revision)
    }

    /// What `seen` was before a request was sent; an answer may show no less.
    pub fn floor(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Takes note of an answer; fails the store when it cannot follow on earlier ones.
    pub fn accept(&self, header: &ResponseHeader, floor: u64) -> Result<(), StoreError> {
        if header.cluster_id() != self.cluster {
            return Err(self.fail("another etcd cluster answers at this address"));
        }
        let revision = raw(header.revision());
        if revision < floor {
            return Err(self.fail(format!(
                "etcd went back from revision {floor} to {revision}; was a snapshot restored?"
            )));
        }
        self.hand_out(revision)
    }

    pub fn epoch_changed(&self) -> StoreError {
        self.fail("another server began a new epoch; was a snapshot restored?")
    }

    /// Must return before anyone is shown the raw `revision`.
    pub fn hand_out(&self, revision: u64) -> Result<(), StoreError> {
        if self.seen.load(Ordering::Acquire) >= revision {
            return Ok(());
        }
        let outside = self.base + revision;
        let reserved = match self.mark.lock().as_mut() {
            None => Ok(()),
            // A sync, once in a thousand revisions: too short and too rare for a thread of its own.
            Some(mark) => mark.reserve(outside).map(|()| mark.note(outside)),
        };
        reserved.map_err(|error| self.fail(format!("cannot write the revision mark: {error}")))?;
        self.seen.fetch_max(revision, Ordering::AcqRel);
        Ok(())
    }

    pub fn outside(&self, raw: u64) -> Revision {
        Revision(self.base + raw)
    }

    pub fn entry(&self, found: Found) -> Entry {
        Entry {
            key: found.key.into(),
            value: found.value.into(),
            created: self.outside(found.created),
            modified: self.outside(found.modified),
        }
    }
}

impl From<etcd_client::proto::PbKeyValue> for Found {
    fn from(found: etcd_client::proto::PbKeyValue) -> Self {
        let (created, modified) = (raw(found.create_revision), raw(found.mod_revision));
        Found { key: found.key, value: found.value, created, modified }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = format!("{:x}", self.cluster);
        f.debug_struct("Connection")
            .field("cluster", &cluster)
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}
