//! What is wrong with an expression, shown the way the original shows it: place, message, line, pointer.

/// How many faults are told of one expression.
const MOST: usize = 100;

/// One fault at a place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// How many characters stand before it.
    pub place: usize,
    pub message: String,
}

/// Everything wrong with one expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issues(Vec<Issue>);

impl Issues {
    pub fn add(&mut self, place: usize, message: impl Into<String>) {
        self.0.push(Issue { place, message: message.into() });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of the text, each with the line it is about.
    pub fn show(&self, source: &str) -> String {
        let mut sorted: Vec<&Issue> = self.0.iter().collect();
        sorted.sort_by_key(|issue| issue.place);
        let mut shown: Vec<String> = sorted.iter().take(MOST).map(|issue| issue.show(source)).collect();
        if sorted.len() > MOST {
            shown.push(format!("{} more errors were truncated", sorted.len() - MOST));
        }
        shown.join("\n")
    }
}

impl Issue {
    fn show(&self, source: &str) -> String {
        let (line, column, text) = locate(source, self.place);
        let text = text.replace('\t', " ");
        let mut pointer: String =
            text.chars().take(column).map(|c| if c.len_utf8() > 1 { '．' } else { '.' }).collect();
        pointer.push(text.chars().nth(column).filter(|c| c.len_utf8() > 1).map_or('^', |_| '＾'));
        format!("ERROR: <input>:{line}:{}: {}\n | {text}\n | {pointer}", column + 1, self.message)
    }
}

/// Line (from one), column (from zero) and the text of the line.
fn locate(source: &str, place: usize) -> (usize, usize, &str) {
    let mut left = place;
    let mut number = 1;
    for line in source.split('\n') {
        let length = line.chars().count();
        if left <= length {
            return (number, left, line);
        }
        left -= length + 1;
        number += 1;
    }
    (number, 0, "")
}
