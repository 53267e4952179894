//! Opens the log of who did what, if there is to be one.

use sheaf_apiserver::audit::{Level, Limits, Log, Recording};
use sheaf_cli::AuditLevel;
use sheaf_pki::durable;
use tracing::info;

use crate::{failure::Failure, node::Node};

/// A log that cannot be written is told before anything is served: who wants one does not want to miss its beginning.
pub fn open(node: &Node) -> Result<Option<Recording>, Failure> {
    let level = match node.config.audit_level {
        AuditLevel::None => return Ok(None),
        AuditLevel::Metadata => Level::Metadata,
        AuditLevel::Request => Level::Request,
        AuditLevel::RequestResponse => Level::RequestResponse,
    };
    let Some(path) = &node.config.audit_log else { return Ok(None) };
    let failed = |source| Failure::AuditLog { path: path.clone(), source };
    // A directory that was named must be there: one that is mistyped should not be made.
    if let Some(directory) = path.parent()
        && directory.starts_with(&node.config.data_dir)
    {
        durable::ensure_private_directory(directory).map_err(failed)?;
    }
    let log = Log::open(path, Limits::default(), node.world.clock.clone()).map_err(failed)?;
    info!(path = %path.display(), level = level.as_str(), "who does what is logged");
    Ok(Some(Recording { level, log }))
}
