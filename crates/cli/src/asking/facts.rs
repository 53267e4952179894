//! One thing in words: facts below each other, lists indented below their titles.

use serde_json::Value;

use super::{
    out::Out,
    table::{Cell, laid_out, plain},
};

/// What `show` prints.
#[derive(Default)]
pub struct Facts {
    lines: Vec<(String, String)>,
    sections: Vec<(String, String)>,
}

impl Facts {
    /// A fact that is nothing is left out.
    pub fn say(&mut self, title: &str, fact: impl Into<String>) -> &mut Facts {
        let fact: String = fact.into();
        if !fact.is_empty() {
            self.lines.push((title.to_owned(), plain(&fact)));
        }
        self
    }

    pub fn list(&mut self, title: &str, titles: &[&str], rows: Vec<Vec<Cell>>, out: Out) -> &mut Facts {
        if !rows.is_empty() {
            let inside = Out { width: out.width.map(|width| width.saturating_sub(2)), ..out };
            let titles = titles.iter().map(|title| (*title).to_owned()).collect();
            self.sections.push((title.to_owned(), laid_out(titles, rows, inside)));
        }
        self
    }

    pub fn text(&mut self, title: &str, text: &str) -> &mut Facts {
        if !text.is_empty() {
            let lines: String = text.lines().map(|line| plain(line) + "\n").collect();
            self.sections.push((title.to_owned(), lines));
        }
        self
    }

    pub fn as_text(&self) -> String {
        let width = self.lines.iter().map(|(title, _)| title.chars().count()).max().unwrap_or_default() + 1;
        let mut text = String::new();
        for (title, fact) in &self.lines {
            let padding = " ".repeat(width - title.chars().count());
            text += &format!("{title}:{padding}{fact}\n");
        }
        for (title, section) in &self.sections {
            text += &format!("\n{title}:\n");
            for line in section.lines() {
                text += format!("  {line}").trim_end();
                text.push('\n');
            }
        }
        text
    }
}

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Bytes as people say them: `512 MiB`, `1.5 GiB`.
pub fn bytes(count: i64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut amount, mut unit) = (count as f64 / 1024.0, 0);
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let text = format!("{amount:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

/// A quantity as Kubernetes writes it, as people say it.
pub fn amount(text: &str) -> String {
    sheaf_resources::quantity::value(text).map_or_else(|| text.to_owned(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_stand_below_each_other_and_nothing_is_not_said() {
        let mut facts = Facts::default();
        facts.say("Name", "web").say("Description", "").say("Status", "Running");
        facts.list("Disks", &["NAME", "SIZE"], vec![vec!["root".into(), "10Gi".into()]], Out::default());
        facts.list("Interfaces", &["NAME"], Vec::new(), Out::default());
        assert_eq!(facts.as_text(), "Name:   web\nStatus: Running\n\nDisks:\n  NAME   SIZE\n  root   10Gi\n");
    }

    #[test]
    fn bytes_are_told_in_the_largest_unit_that_fits() {
        for (count, text) in [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB")] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(amount("2Gi"), "2 GiB");
        assert_eq!(amount("odd"), "odd");
    }
}
