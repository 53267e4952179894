//! The first administrator's password: given, or drawn and left in a private file.
//!
//! It counts only until user `admin` exists. After that the store knows the password (as
//! a hash) and what stands in files or settings changes nothing: an administrator who
//! chose another password is not reset by a restart. A start that died after drawing the
//! password and before creating the user is repeated with the same password.

use std::{fs, io, path::Path};

use sheaf_cli::Secret;
use sheaf_pki::durable;
use sheaf_world::Chance;
use tracing::warn;

/// Four groups of six letters, 114 bits: beyond guessing, within typing.
const GROUPS: usize = 4;
const GROUP_LETTERS: usize = 6;

/// The password to create user `admin` with.
#[derive(Debug, PartialEq, Eq)]
pub enum AdminPassword {
    /// Drawn at random; the administrator finds it in the data directory.
    Generated(Secret),
    /// From `--admin-password-file`; written nowhere.
    Given(Secret),
    /// There is a user `admin` already.
    AlreadySet,
}

/// Decides on the password; draws one and writes it to `file` where there is none.
pub fn settle(
    file: &Path,
    given: Option<&Secret>,
    admin_exists: bool,
    chance: &Chance,
) -> io::Result<AdminPassword> {
    if admin_exists {
        return Ok(AdminPassword::AlreadySet);
    }
    if let Some(given) = given {
        // One drawn by an earlier start that came no further would be a lie from now on.
        return match fs::remove_file(file) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
            _ => Ok(AdminPassword::Given(given.clone())),
        };
    }
    match fs::read_to_string(file) {
        Ok(text) if !text.trim().is_empty() => {
            if let Some(mode) = durable::make_private(file)? {
                warn!(path = %file.display(), "others could read or write this password (mode {mode:03o})");
            }
            Ok(AdminPassword::Generated(Secret::new(text.trim())))
        }
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => {
            let groups: Vec<_> = (0..GROUPS).map(|_| chance.letters(GROUP_LETTERS)).collect();
            let password = groups.join("-");
            durable::replace(file, durable::PRIVATE, format!("{password}\n").as_bytes())?;
            Ok(AdminPassword::Generated(Secret::new(password)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("admin-password");
        (dir, file)
    }

    #[test]
    fn a_start_that_died_before_creating_the_user_is_repeated_with_the_same_password() {
        let (_dir, file) = file();
        let first = settle(&file, None, false, &Chance::system()).unwrap();
        assert_eq!(settle(&file, None, false, &Chance::system()).unwrap(), first);
        let AdminPassword::Generated(password) = first else { panic!("{first:?}") };
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), password.reveal());
        assert_eq!(password.reveal().len(), 27);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn once_there_is_an_administrator_nothing_is_drawn_or_written() {
        let (_dir, file) = file();
        let given = Secret::new("correct horse");
        assert_eq!(settle(&file, Some(&given), true, &Chance::system()).unwrap(), AdminPassword::AlreadySet);
        assert_eq!(settle(&file, None, true, &Chance::system()).unwrap(), AdminPassword::AlreadySet);
        assert!(!file.exists());
    }

    #[test]
    fn a_given_password_is_written_nowhere_and_ends_a_drawn_one() {
        let (_dir, file) = file();
        settle(&file, None, false, &Chance::system()).unwrap();
        let given = Secret::new("correct horse");
        let settled = settle(&file, Some(&given), false, &Chance::system()).unwrap();
        assert_eq!(settled, AdminPassword::Given(given));
        assert!(!file.exists());
    }

    #[test]
    fn an_emptied_file_gets_a_new_password() {
        let (_dir, file) = file();
        fs::write(&file, "\n").unwrap();
        let settled = settle(&file, None, false, &Chance::system()).unwrap();
        assert!(matches!(settled, AdminPassword::Generated(password) if password.reveal().len() == 27));
    }
}
