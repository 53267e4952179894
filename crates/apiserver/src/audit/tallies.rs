//! How many lines there were, under the original's names.

use std::fmt::Write;

use super::Audit;

impl Audit {
    /// Writes its numbers in Prometheus' text form.
    pub(crate) fn write_metrics(&self, text: &mut String) {
        let Some(log) = self.log() else { return };
        let tally = log.tally();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "# HELP apiserver_audit_event_total Audit events that were logged\n\
             # TYPE apiserver_audit_event_total counter\n\
             apiserver_audit_event_total {}\n\
             # HELP apiserver_audit_error_total Audit events that were lost: for want of room, or by the disk\n\
             # TYPE apiserver_audit_error_total counter\n\
             apiserver_audit_error_total{{plugin=\"buffered\"}} {}\n\
             apiserver_audit_error_total{{plugin=\"log\"}} {}\n",
            tally.taken, tally.dropped, tally.failed
        );
    }
}
