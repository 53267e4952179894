//! The web console, built into the binary: its files, what they are, and where in the address of a page they are found.
//!
//! `web/` is where it is written; `scripts/build-web` makes the files. A binary that was built without them says so where the
//! console would be.

/// One file of the console, as it is and packed.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Below `/dashboard/`.
    pub path: &'static str,
    pub plain: &'static [u8],
    pub brotli: Option<&'static [u8]>,
    pub gzip: Option<&'static [u8]>,
}

/// Where every page that is not a file begins.
const PAGE: &str = "index.html";
/// What is in here has a digest of itself in its name, and never changes.
const ASSETS: &str = "assets/";

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Whether this binary was built with the console in it.
pub fn is_there() -> bool {
    !FILES.is_empty()
}

/// What is shown at a path below `/dashboard/`: the file of that name, or the page that finds its own way from there. A part of
/// a page that is not there (any more) is `None`: a page in its place would be taken for a script.
pub fn find(path: &str) -> Option<&'static File> {
    find_in(FILES, path)
}

fn find_in(files: &'static [File], path: &str) -> Option<&'static File> {
    let named = |name: &str| files.iter().find(|file| file.path == name);
    named(path).or_else(|| if path.starts_with(ASSETS) { None } else { named(PAGE) })
}

impl File {
    pub fn never_changes(&self) -> bool {
        self.path.starts_with(ASSETS)
    }

    pub fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map_or("", |(_, suffix)| suffix) {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "json" => "application/json",
            "png" => "image/png",
            "woff2" => "font/woff2",
            _ => "application/octet-stream",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn file(path: &'static str) -> File {
        File { path, plain: b"", brotli: None, gzip: None }
    }

    static SOME: &[File] = &[file("assets/index-1.js"), file("icon.svg"), file(PAGE)];

    #[test]
    fn a_path_leads_to_its_file_and_every_other_to_the_page() {
        let found = |path: &str| find_in(SOME, path).map(|file| file.path);
        assert_eq!(found("icon.svg"), Some("icon.svg"));
        assert_eq!(found(""), Some(PAGE));
        assert_eq!(found("vms/default/web"), Some(PAGE));
        assert_eq!(
            found("../etc/passwd"),
            Some(PAGE),
            "a name of ours or the page, and never a path of the host"
        );
        assert_eq!(found("assets/index-1.js"), Some("assets/index-1.js"));
        assert_eq!(found("assets/index-0.js"), None, "of a version that is gone");
        assert!(find_in(&[], "").is_none());
    }

    #[test]
    fn files_say_what_they_are() {
        assert_eq!(file("assets/a.js").content_type(), "text/javascript; charset=utf-8");
        assert!(file("assets/a.js").never_changes() && !file(PAGE).never_changes());
        assert_eq!(file("odd").content_type(), "application/octet-stream");
    }
}
