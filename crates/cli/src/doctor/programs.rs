//! Programs of the distribution that Sheaf starts. None is needed for one node's API.

use std::{os::unix::fs::PermissionsExt, path::PathBuf};

use super::{Finding, ok, warn};

const QEMU: &str = if cfg!(target_arch = "aarch64") { "qemu-system-aarch64" } else { "qemu-system-x86_64" };

pub(super) fn examine(path: &[PathBuf]) -> Vec<Finding> {
    let qemu = if cfg!(target_arch = "aarch64") { "qemu-system-arm" } else { "qemu-system-x86" };
    vec![
        program(path, "etcd", "three or more management nodes", "etcd-server"),
        program(path, QEMU, "virtual machines", &format!("{qemu} qemu-utils ovmf swtpm")),
        program(path, "qemu-img", "disks and images", "qemu-utils"),
    ]
}

fn program(path: &[PathBuf], name: &str, needed_for: &str, packages: &str) -> Finding {
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    match path.iter().map(|dir| dir.join(name)).find(is_program) {
        Some(file) => ok(name, file.display().to_string()),
        None => warn(name, format!("not found; needed for {needed_for}"), format!("apt install {packages}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_program_is_found_on_the_path_only_if_it_can_be_run() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = (dir.path().join("etcd"), [PathBuf::from("/nonexistent"), dir.path().to_owned()]);
        let look = || program(&path, "etcd", "much", "etcd-server");
        assert_eq!(look().advice.as_deref(), Some("apt install etcd-server"));
        fs::write(&file, "").unwrap();
        assert_eq!(look().verdict, Verdict::Warn);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(look(), ok("etcd", file.display().to_string()));
    }
}
