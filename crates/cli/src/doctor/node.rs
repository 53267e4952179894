//! The place the node lives in: its directory, its ports, its certificates.

use std::{
    fs, io,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use super::{Certificate, Finding, Patient, fail, ok, warn};
use crate::Listen;

const DISK_NEEDED_MIB: u64 = 1024;
const DISK_WANTED_MIB: u64 = 10 * 1024;
const DAY_SECS: i64 = 86_400;
/// An authority is changed by hand, on every node and in every kubeconfig: that takes planning.
const AUTHORITY_NOTICE_DAYS: i64 = 365;

pub(super) fn examine(patient: &Patient<'_>) -> Vec<Finding> {
    let mut findings = vec![directory(patient), disk(patient.data_dir)];
    findings.extend(patient.listen.iter().map(|listen| port(listen, patient.running)));
    findings.extend(patient.certificates.iter().map(|about| certificate(about, patient.now)));
    findings
}

fn directory(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "data directory";
    let path = patient.data_dir.display();
    let about = match fs::metadata(patient.data_dir) {
        Ok(about) => about,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return ok(CHECK, format!("{path} (will be made)"));
        }
        Err(why) => return fail(CHECK, format!("{path}: {why}"), "run as the user the node runs as"),
    };
    if !about.is_dir() {
        return fail(CHECK, format!("{path} is not a directory"), "choose another one with --data-dir");
    }
    let (uid, mode) = (rustix::process::geteuid().as_raw(), about.permissions().mode() & 0o777);
    if about.uid() != uid && uid != 0 {
        let found = format!("{path} belongs to user id {}", about.uid());
        return fail(CHECK, found, "run as that user, or choose another directory with --data-dir");
    }
    if mode & 0o077 != 0 {
        return warn(
            CHECK,
            format!("{path} is open to others (mode {mode:04o})"),
            format!("chmod 700 {path}"),
        );
    }
    match patient.running {
        Some(pid) => ok(CHECK, format!("{path}, in use by process {pid}")),
        None => ok(CHECK, path.to_string()),
    }
}

fn disk(data_dir: &Path) -> Finding {
    const CHECK: &str = "disk space";
    // The directory may not be there yet; its space will be that of what it is made in.
    let Some((place, about)) =
        data_dir.ancestors().find_map(|place| rustix::fs::statvfs(place).ok().map(|about| (place, about)))
    else {
        return warn(CHECK, "not known", "make the data directory and look again");
    };
    let free_mib = about.f_bavail * about.f_frsize / (1024 * 1024);
    let found = format!("{free_mib} MiB free at {}", place.display());
    if free_mib < DISK_NEEDED_MIB {
        return fail(CHECK, found, format!("make room: at least {DISK_NEEDED_MIB} MiB"));
    }
    if free_mib < DISK_WANTED_MIB {
        return warn(CHECK, found, "enough for the API, with little left for images and disks");
    }
    ok(CHECK, found)
}

fn port(listen: &Listen, running: Option<u32>) -> Finding {
    let (check, address) = (format!("port {}", listen.address.port()), listen.address);
    match TcpListener::bind(address) {
        Ok(_) => ok(&check, format!("{address} is free")),
        Err(why) if why.kind() == io::ErrorKind::AddrInUse && running.is_some() => {
            ok(&check, format!("{address} is in use, and a node runs here already"))
        }
        Err(why) if why.kind() == io::ErrorKind::AddrInUse => fail(
            &check,
            format!("{address} is in use"),
            format!("see what it is (ss -ltnp 'sport = :{}'), or choose with --listen", address.port()),
        ),
        Err(_) if listen.optional => ok(&check, format!("{address} is not there and will be left out")),
        Err(why) => fail(&check, format!("{address}: {why}"), "choose another address with --listen"),
    }
}

fn certificate(about: &Certificate, now: Duration) -> Finding {
    let check = format!("certificate {}", about.name);
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let days = about.expires.saturating_sub(now).div_euclid(DAY_SECS);
    let expired = about.expires <= now;
    let found = if expired { "expired".to_owned() } else { format!("good for {days} days") };
    match (about.is_authority, expired) {
        (true, true) => fail(
            &check,
            found,
            "clients refuse it: move pki/ca.crt and pki/ca.key away, restart, hand out the new kubeconfig",
        ),
        (true, false) if days < AUTHORITY_NOTICE_DAYS => warn(
            &check,
            found,
            "plan its change: put a new ca.crt and ca.key in pki/, with the old certificate after the new one in ca.crt",
        ),
        (false, true) => warn(&check, found, "start the node (sheaf up): it makes a new one by itself"),
        _ => ok(&check, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn patient<'a>(data_dir: &'a Path, running: Option<u32>) -> Patient<'a> {
        let (root, now) = (Path::new("/"), Duration::ZERO);
        Patient { root, path: Vec::new(), data_dir, listen: &[], running, certificates: &[], now }
    }

    #[test]
    fn a_directory_is_judged_by_what_it_is_and_who_may_enter() {
        let dir = tempfile::tempdir().unwrap();
        let judge = |path: &Path| directory(&patient(path, None)).verdict;
        assert_eq!(judge(&dir.path().join("not-yet")), Verdict::Ok);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(judge(dir.path()), Verdict::Ok);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(judge(dir.path()), Verdict::Warn);
        fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(judge(&dir.path().join("file")), Verdict::Fail);
    }

    #[test]
    fn disk_space_is_that_of_the_nearest_directory_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let found = disk(&dir.path().join("a/b/c")).found;
        assert!(found.ends_with(&format!("free at {}", dir.path().display())), "{found}");
    }

    #[test]
    fn a_port_that_another_program_has_is_refused_and_our_own_is_not() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = Listen { address: taken.local_addr().unwrap(), optional: false };
        assert_eq!(port(&listen, None).verdict, Verdict::Fail);
        assert_eq!(port(&listen, Some(7)).verdict, Verdict::Ok);
        drop(taken);
        assert_eq!(port(&listen, None).verdict, Verdict::Ok);
    }

    #[test]
    fn only_the_authority_needs_a_hand_before_it_expires() {
        let judge = |days_left: i64, is_authority: bool| {
            let about = Certificate { name: "x".into(), expires: days_left * DAY_SECS, is_authority };
            certificate(&about, Duration::ZERO).verdict
        };
        assert_eq!(judge(1, false), Verdict::Ok);
        assert_eq!(judge(-1, false), Verdict::Warn);
        assert_eq!(judge(400, true), Verdict::Ok);
        assert_eq!(judge(300, true), Verdict::Warn);
        assert_eq!(judge(-1, true), Verdict::Fail);
    }
}
