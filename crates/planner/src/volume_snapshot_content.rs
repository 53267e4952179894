//! Decides what the node that has a volume does about one snapshot of it.
//!
//! ```text
//!                 Take                      Report
//!   wanted ------------------> on the disk --------> ready to use
//!     ^  |                          |
//!     +--+ Wait: others that are    |  deleted, and nobody holds it
//!          to be of the same        v
//!          instant are missing    Remove, Release
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - Snapshots that belong together are taken by one call, all at one instant: whoever is asked for one of them takes
//!   those that are missing.
//! - One that is ready stays so; it is never taken a second time, whatever is missing.

/// A content, and what there is of its snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub being_deleted: bool,
    /// A VolumeSnapshot still has it.
    pub bound: bool,
    /// It still has the finalizer that waits for its bytes to go.
    pub keeps_data: bool,
    /// Its status says that it is ready to use.
    pub ready: bool,
    /// It is of a snapshot that somebody else took: there is no volume to take it of.
    pub pre_provisioned: bool,
    /// Its bytes are here.
    pub on_disk: bool,
    /// How many are to be taken at its instant, itself included, and how many of those are there.
    pub together: Option<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Rest,
    /// Others are to be of the same instant, and are not there yet.
    WaitForOthers,
    Take,
    /// Write its status: it is ready to use.
    Report,
    /// Write its status: it was ready or said to be there, and its bytes are not.
    ReportLost,
    /// Remove the bytes, then take the finalizer off.
    Remove,
}

pub fn next_step(seen: &Seen) -> Step {
    if seen.being_deleted {
        return match seen.keeps_data && !seen.bound {
            true => Step::Remove,
            false => Step::Rest,
        };
    }
    match (seen.on_disk, seen.ready, seen.together) {
        (true, true, _) => Step::Rest,
        (true, false, _) => Step::Report,
        (false, true, _) => Step::ReportLost,
        (false, false, _) if seen.pre_provisioned => Step::ReportLost,
        (false, false, Some((wanted, there))) if there < wanted => Step::WaitForOthers,
        (false, false, _) => Step::Take,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_taken_reported_and_then_at_rest() {
        let mut seen = Seen { keeps_data: true, bound: true, ..Seen::default() };
        assert_eq!(next_step(&seen), Step::Take);
        seen.on_disk = true;
        assert_eq!(next_step(&seen), Step::Report);
        seen.ready = true;
        assert_eq!(next_step(&seen), Step::Rest);
    }

    #[test]
    fn those_of_one_instant_wait_for_the_last_of_them() {
        let alone = Seen { together: Some((3, 2)), ..Seen::default() };
        assert_eq!(next_step(&alone), Step::WaitForOthers);
        assert_eq!(next_step(&Seen { together: Some((3, 3)), ..alone }), Step::Take);
        // One that was taken before its process died is not held up by those that went meanwhile.
        assert_eq!(next_step(&Seen { on_disk: true, ..alone }), Step::Report);
    }

    #[test]
    fn one_that_is_gone_from_the_disk_is_said_to_be_lost_and_never_taken_anew() {
        assert_eq!(next_step(&Seen { ready: true, ..Seen::default() }), Step::ReportLost);
        assert_eq!(next_step(&Seen { pre_provisioned: true, ..Seen::default() }), Step::ReportLost);
        let found = Seen { pre_provisioned: true, on_disk: true, ..Seen::default() };
        assert_eq!(next_step(&found), Step::Report);
    }

    #[test]
    fn bytes_go_when_the_content_does_and_nobody_has_it() {
        let going =
            Seen { being_deleted: true, keeps_data: true, on_disk: true, ready: true, ..Seen::default() };
        assert_eq!(next_step(&going), Step::Remove);
        assert_eq!(next_step(&Seen { bound: true, ..going }), Step::Rest);
        assert_eq!(next_step(&Seen { keeps_data: false, ..going }), Step::Rest);
        assert_eq!(
            next_step(&Seen { on_disk: false, ready: false, ..going }),
            Step::Remove,
            "it may be begun"
        );
    }
}
