//! What was printed before, to be compared with what is printed now.

use std::{env, fs, path::Path};

/// Compares `text` with the file of this name.
#[track_caller]
pub fn is_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden").join(format!("{name}.txt"));
    let text = settled(text);
    if env::var_os("SHEAF_UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
        return;
    }
    let before = fs::read_to_string(&path)
        .unwrap_or_else(|why| panic!("{}: {why}; SHEAF_UPDATE_GOLDEN=1 writes it", path.display()));
    assert!(before == text, "{} says\n{before}\nand now it is\n{text}", path.display());
}

/// Without what differs from run to run.
fn settled(text: &str) -> String {
    let mut settled = String::new();
    for line in text.lines() {
        // How far columns are apart depends on what stands in them.
        let indent = line.len() - line.trim_start().len();
        let words: Vec<String> = line.split(' ').map(word).collect();
        let mut text = words.join(" ").trim().to_owned();
        while text.contains("   ") {
            text = text.replace("   ", "  ");
        }
        settled += format!("{}{text}", " ".repeat(indent)).trim_end();
        settled.push('\n');
    }
    settled
}

fn word(word: &str) -> String {
    let is_age = |word: &str| {
        word.len() > 1
            && word.ends_with(['s', 'm', 'h'])
            && word[..word.len() - 1].bytes().all(|b| b.is_ascii_digit() || b == b'm')
    };
    let is_address =
        |word: &str| word.split('.').count() == 4 && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_mac = |word: &str| word.len() == 17 && word.split(':').count() == 6;
    let is_uuid = |word: &str| {
        word.len() >= 36 && word.split('-').count() >= 5 && word.bytes().any(|b| b.is_ascii_digit())
    };
    match word {
        word if is_age(word) => "AGE".to_owned(),
        word if is_address(word) => "ADDRESS".to_owned(),
        word if is_mac(word) => "MAC".to_owned(),
        word if is_uuid(word) => "UUID".to_owned(),
        word => word.to_owned(),
    }
}

#[test]
fn what_differs_from_run_to_run_is_replaced_and_nothing_else() {
    assert_eq!(settled("  web      12s  10.52.0.9 2e:a2:ce:5f:18:87\n"), "  web  AGE  ADDRESS MAC\n");
    assert_eq!(settled("pvc-5ba72d6e-7df1-40c8-8bba-95a62ca907a9 is disks\n"), "UUID is disks\n");
}
