//! The promises about the original, checked: each is held to both of Sheaf's stores.

use sheaf_tests::bench::report::{Report, micros};

use crate::{
    found::Found,
    subject::{SUBJECTS, Subject},
    table::{Rounds, cpu, fine, latency, median, megabytes},
};

pub fn tell(report: &mut Report, found: &Rounds) {
    let of = |subject: Subject| {
        let at = SUBJECTS.iter().position(|one| *one == subject).expect("everybody has a column");
        found[at].as_slice()
    };
    let original = of(Subject::Original);
    for subject in [Subject::Embedded, Subject::OnEtcd] {
        let sheaf = of(subject);
        for (at, row) in sheaf[0].rows.iter().enumerate() {
            if row.each == "create" {
                create_latency(report, subject, [sheaf, original], at);
            } else {
                let [ours, theirs] = [sheaf, original].map(|found| cpu(found, at));
                report.bar(
                    &format!("{}: CPU per {} at most a third, {}", subject.name(), row.each, row.what),
                    ours * 3 <= theirs,
                    format!("{} beside {}", fine(ours), fine(theirs)),
                );
            }
        }
        memory(report, subject, sheaf, original, "API server alone", |found| found.full.server);
        if subject == Subject::Embedded {
            // Its process is its store too.
            let whole = |found: &Found| found.full.server + found.full.store.unwrap_or_default();
            memory(report, subject, sheaf, original, "the original with its etcd", whole);
        }
    }
}

fn memory(
    report: &mut Report,
    subject: Subject,
    sheaf: &[Found],
    original: &[Found],
    counted: &str,
    of: impl Fn(&Found) -> f64,
) {
    let [ours, theirs] = [sheaf, original].map(|found| median(found, &of));
    report.bar(
        &format!("{}: memory with all objects at most a fifth, {counted}", subject.name()),
        ours * 5.0 <= theirs,
        format!("{} beside {}", megabytes(ours), megabytes(theirs)),
    );
}

/// No worse on the same store, and twice as good on our own.
fn create_latency(report: &mut Report, subject: Subject, found: [&[Found]; 2], at: usize) {
    let (factor, words) = match subject {
        Subject::Embedded => (2, "at least twice as good"),
        Subject::OnEtcd | Subject::Original => (1, "no worse"),
    };
    let what = &found[0][0].rows[at].what;
    for percent in [50.0, 99.0] {
        let [ours, theirs] = found.map(|found| latency(found, at, percent));
        report.bar(
            &format!("{}: P{percent:.0} {words}, {what}", subject.name()),
            ours * factor <= theirs,
            format!("{} beside {}", micros(ours), micros(theirs)),
        );
    }
}
