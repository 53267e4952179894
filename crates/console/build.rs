//! Writes a table of the files that `scripts/build-web` made, for the library to include.
//!
//! Without them the table is empty, so that everything else builds on a machine that has no Node.js.

use std::{
    env,
    error::Error,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    println!("cargo::rerun-if-env-changed=SHEAF_WEB_DIST");
    let dist = env::var_os("SHEAF_WEB_DIST").map_or(manifest.join("../../web/dist"), PathBuf::from);
    // A directory that is not there yet is looked for again by way of the one it would be in.
    let watched = if dist.exists() { dist.as_path() } else { dist.parent().unwrap_or(&dist) };
    println!("cargo::rerun-if-changed={}", watched.display());
    let mut files = vec![];
    if dist.exists() {
        collect(&dist.canonicalize()?, "", &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for (path, file) in files.iter().filter(|(path, _)| !is_packed(path)) {
        let packed = |suffix: &str| match files.iter().find(|(other, _)| *other == format!("{path}.{suffix}"))
        {
            Some((_, file)) => format!("Some(include_bytes!({:?}))", file.display().to_string()),
            None => "None".to_owned(),
        };
        writeln!(
            table,
            "    File {{ path: {path:?}, plain: include_bytes!({:?}), brotli: {}, gzip: {} }},",
            file.display().to_string(),
            packed("br"),
            packed("gz"),
        )?;
    }
    table.push(']');
    fs::write(Path::new(&env::var("OUT_DIR")?).join("files.rs"), table)?;
    Ok(())
}

fn is_packed(path: &str) -> bool {
    path.ends_with(".br") || path.ends_with(".gz")
}

fn collect(directory: &Path, prefix: &str, into: &mut Vec<(String, PathBuf)>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name =
            entry.file_name().into_string().map_err(|name| format!("{name:?} is not a name for a page"))?;
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), into)?;
        } else {
            into.push((path, entry.path()));
        }
    }
    Ok(())
}
