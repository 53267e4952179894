//! Tables for people: columns that fit the terminal, states in colours where there are any.
//!
//! What stands in a cell came from a cluster, where others write: characters that would move the cursor or colour the
//! rest of the screen are shown as `?`.

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Format, out::Out};

/// What a state means to whoever looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Busy,
    Bad,
    Quiet,
}

impl Tone {
    fn code(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Good => Some("32"),
            Tone::Busy => Some("33"),
            Tone::Bad => Some("31"),
            Tone::Quiet => Some("90"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: plain(&text.into()), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

/// One column of a table of `R`.
pub struct Column<R = Value> {
    pub title: &'static str,
    /// Only with `-o wide`.
    pub is_wide: bool,
    pub cell: fn(&R, &Moment) -> Cell,
}

/// What cells may want to know beside their row.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since the epoch.
    pub now: i64,
}

pub const fn column<R>(title: &'static str, cell: fn(&R, &Moment) -> Cell) -> Column<R> {
    Column { title, is_wide: false, cell }
}

pub const fn wide<R>(title: &'static str, cell: fn(&R, &Moment) -> Cell) -> Column<R> {
    Column { title, is_wide: true, cell }
}

/// A table with its head.
pub fn of<R>(columns: &[Column<R>], rows: &[R], moment: &Moment, format: Format, out: Out) -> String {
    laid_out(
        titles(columns, format),
        rows.iter().map(|row| cells(columns, format, row, moment)).collect(),
        out,
    )
}

pub fn titles<R>(columns: &[Column<R>], format: Format) -> Vec<String> {
    shown(columns, format).map(|column| column.title.to_owned()).collect()
}

pub fn cells<R>(columns: &[Column<R>], format: Format, row: &R, moment: &Moment) -> Vec<Cell> {
    shown(columns, format).map(|column| (column.cell)(row, moment)).collect()
}

fn shown<R>(columns: &[Column<R>], format: Format) -> impl Iterator<Item = &Column<R>> {
    columns.iter().filter(move |column| !column.is_wide || format == Format::Wide)
}

const GAP: &str = "   ";
/// A column is not made narrower than that: less says nothing.
const LEAST: usize = 8;
const KEPT: [&str; 2] = ["NAME", "NAMESPACE"];

/// What is longer says it better elsewhere.
const LONGEST: usize = 60;

/// Columns of cells below their titles. Names are never shortened: they are what is typed next.
pub fn laid_out(titles: Vec<String>, rows: Vec<Vec<Cell>>, out: Out) -> String {
    Lines::new(titles, out).add(rows)
}

/// A table that lines are added to: its columns are at least as wide as they were, as far as the terminal has room.
pub struct Lines {
    titles: Vec<String>,
    widths: Vec<usize>,
    has_head: bool,
    out: Out,
}

impl Lines {
    pub fn new(titles: Vec<String>, out: Out) -> Lines {
        let widths = titles.iter().map(|title| title.width()).collect();
        Lines { titles, widths, has_head: false, out }
    }

    /// The text of these rows, below the head if that was not there yet.
    pub fn add(&mut self, rows: Vec<Vec<Cell>>) -> String {
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        if let Some(room) = self.out.width {
            let kept = |(at, title): (usize, &String)| at == 0 || KEPT.contains(&title.as_str());
            let kept: Vec<bool> = self.titles.iter().enumerate().map(kept).collect();
            let gaps = GAP.len() * self.titles.len().saturating_sub(1);
            narrow(&mut self.widths, &kept, room.saturating_sub(gaps));
        }
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_head, true) {
            let head: Vec<Cell> = self.titles.iter().map(|title| Cell::from(title.as_str())).collect();
            line(&mut text, &head, &self.widths, self.out.colours);
        }
        for row in rows {
            line(&mut text, &row, &self.widths, self.out.colours);
        }
        text
    }
}

/// Takes from the widest columns until all fit, or none can be narrower.
fn narrow(widths: &mut [usize], kept: &[bool], room: usize) {
    let mut total: usize = widths.iter().sum();
    while total > room {
        let widest = widths.iter().enumerate().filter(|(at, width)| !kept[*at] && **width > LEAST);
        let Some((at, _)) = widest.max_by_key(|(_, width)| **width) else { return };
        widths[at] -= 1;
        total -= 1;
    }
}

fn line(text: &mut String, row: &[Cell], widths: &[usize], colours: bool) {
    let last = row.len().saturating_sub(1);
    let mut written = String::new();
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        let shown = shortened(&cell.text, *width);
        let padding = width.saturating_sub(shown.width());
        match cell.tone.code().filter(|_| colours && !shown.is_empty()) {
            Some(code) => written += &format!("\x1b[{code}m{shown}\x1b[0m"),
            None => written += &shown,
        }
        if at < last {
            written += &" ".repeat(padding);
            written += GAP;
        }
    }
    text.push_str(written.trim_end());
    text.push('\n');
}

fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(letter);
    }
    kept + "…"
}

/// The beginning of a text that may be long, where all of it would make a table too wide to read.
pub fn clipped(text: &str) -> String {
    shortened(&plain(text), LONGEST)
}

/// Text of others in more than one line.
pub fn printable(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Text of others, as it may stand on a terminal: nothing in it moves the cursor or turns the direction of letters.
pub fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| match c {
        '\n' | '\t' => ' ',
        c if c.is_control() || turns(c) => '?',
        c => c,
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        vec![
            vec!["web".into(), Cell::toned("Running", Tone::Good), "a rather long description of it".into()],
            vec!["database".into(), Cell::toned("Stopped", Tone::Quiet), "".into()],
        ]
    }

    fn titles() -> Vec<String> {
        ["NAME", "STATUS", "DESCRIPTION"].map(str::to_owned).to_vec()
    }

    #[test]
    fn columns_stand_below_their_titles_and_lines_end_where_their_text_does() {
        let text = laid_out(titles(), rows(), Out::default());
        assert_eq!(
            text,
            "NAME       STATUS    DESCRIPTION\n\
             web        Running   a rather long description of it\n\
             database   Stopped\n"
        );
    }

    #[test]
    fn a_narrow_terminal_shortens_what_is_longest_and_never_the_name() {
        let text = laid_out(titles(), rows(), Out { width: Some(40), colours: false });
        assert!(text.lines().all(|line| line.width() <= 40), "{text}");
        assert!(text.contains("web        Running   a rather long desc…"), "{text}");
        let text = laid_out(titles(), rows(), Out { width: Some(5), colours: false });
        assert!(text.contains("database"), "{text}");
    }

    #[test]
    fn lines_that_come_later_stand_below_the_same_head() {
        let mut lines = Lines::new(titles(), Out::default());
        let head = lines.add(Vec::new());
        assert_eq!(head, "NAME   STATUS   DESCRIPTION\n");
        let [web, database] = rows().try_into().unwrap();
        assert_eq!(lines.add(vec![database]), "database   Stopped\n");
        assert_eq!(lines.add(vec![web]), "web        Running   a rather long description of it\n");
    }

    #[test]
    fn colours_take_no_room() {
        let text = laid_out(titles(), rows(), Out { width: None, colours: true });
        assert!(text.contains("web        \x1b[32mRunning\x1b[0m   a rather"), "{text:?}");
    }

    #[test]
    fn wide_letters_count_twice() {
        let rows = vec![vec![Cell::from("日本"), "x".into()], vec!["abcd".into(), "y".into()]];
        let text = laid_out(vec!["NAME".into(), "B".into()], rows, Out::default());
        assert_eq!(text, "NAME   B\n日本   x\nabcd   y\n");
    }

    #[test]
    fn nobody_else_moves_the_cursor() {
        let rows = vec![vec![Cell::from("a\x1b[2Jb\nc\r")]];
        assert_eq!(laid_out(vec!["X".into()], rows, Out::default()), "X\na?[2Jb c?\n");
    }
}
