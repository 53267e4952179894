//! Reads a file with a password, as `--admin-password-file` names one.
//!
//! Refused: what other users of this host can read (it is a secret no longer) or what
//! others than its owner can write. Group-readable is let through, since that is how
//! several secret stores mount their files.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{BadSetting, Secret};

const SHORTEST: usize = 12;
const LONGEST: usize = 256;
const FITS: &str = "a file of mode 0600 with one line: the password, 12 to 256 characters";

/// The password in `path`, without the line end that editors leave.
pub fn read(path: &Path) -> Result<Secret, BadSetting> {
    read_for("--admin-password-file", path)
}

/// The same for another setting that names such a file.
pub fn read_for(setting: &'static str, path: &Path) -> Result<Secret, BadSetting> {
    let bad = |problem: String| BadSetting::new(setting, path.display(), problem, FITS);
    let about = fs::metadata(path).map_err(|why| bad(format!("it cannot be read: {why}")))?;
    if !about.is_file() {
        return Err(bad("it is not a file".into()));
    }
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o004 != 0 {
        return Err(bad(format!("everyone on this host can read it (mode {mode:04o}): chmod 600 it")));
    }
    if mode & 0o022 != 0 {
        return Err(bad(format!("others than its owner can write it (mode {mode:04o}): chmod 600 it")));
    }
    let bytes = fs::read(path).map_err(|why| bad(format!("it cannot be read: {why}")))?;
    let text = String::from_utf8(bytes).map_err(|_| bad("it is not text (UTF-8)".into()))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    // What is wrong is told by counts alone: the message may end up in a log.
    match password.chars().count() {
        0 => Err(bad("it is empty".into())),
        _ if password.chars().any(char::is_control) => {
            Err(bad("it has more than one line, or control characters".into()))
        }
        count if count < SHORTEST => Err(bad(format!("the password has only {count} characters"))),
        count if count > LONGEST => Err(bad(format!("the password has {count} characters"))),
        _ => Ok(Secret::new(password)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(content: &[u8], mode: u32) -> Result<Secret, BadSetting> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        read(&path)
    }

    #[test]
    fn the_password_is_the_line_without_its_end() {
        for content in ["correct horse", "correct horse\n", "correct horse\r\n"] {
            assert_eq!(read_from(content.as_bytes(), 0o600).unwrap().reveal(), "correct horse");
        }
        assert_eq!(read_from(b"  spaces count  \n", 0o640).unwrap().reveal(), "  spaces count  ");
    }

    #[test]
    fn a_password_that_is_none_or_no_secret_is_refused_without_showing_it() {
        let cases: &[(&[u8], u32, &str)] = &[
            (b"", 0o600, "empty"),
            (b"\n", 0o600, "empty"),
            (b"short-pass\n", 0o600, "only 10 characters"),
            (&[b'x'; 257], 0o600, "257 characters"),
            (b"first line here\nsecond\n", 0o600, "more than one line"),
            (b"\xff\xfe long enough", 0o600, "not text"),
            (b"correct horse", 0o644, "mode 0644"),
            (b"correct horse", 0o660, "mode 0660"),
        ];
        for (content, mode, problem) in cases {
            let why = read_from(content, *mode).unwrap_err();
            assert!(why.problem.contains(problem), "{why}");
            let told = why.to_string();
            assert!(!told.contains("horse") && !told.contains("short-pass"), "{told}");
        }
    }

    #[test]
    fn a_missing_file_and_a_directory_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap_err().problem.contains("not a file"));
        let why = read(&dir.path().join("missing")).unwrap_err();
        assert!(why.problem.contains("No such file"), "{why}");
    }
}
