//! Of the names there are, the one that somebody who typed another probably meant.

/// So many letters may be wrong, of as many as this for each.
const LETTERS_PER_SLIP: usize = 3;

pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = typed.chars().count().div_ceil(LETTERS_PER_SLIP);
    let slips = names.into_iter().map(|name| (slips(typed, name), name));
    // Of two that are as near, the first by name: the same is said every time.
    slips.filter(|(slips, _)| *slips <= most).min().map(|(_, name)| name)
}

/// How many letters to add, leave out or replace to get from one to the other.
fn slips(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, letter) in one.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], n + 1);
        for (m, theirs) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *theirs);
            diagonal = row[m + 1];
            row[m + 1] = replaced.min(row[m] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_a_stranger_is_not() {
        let names = ["anna", "bert", "user-x7k2p"];
        for (typed, meant) in [
            ("ana", Some("anna")),
            ("Anna", Some("anna")),
            ("brt", Some("bert")),
            ("user-x7k2", Some("user-x7k2p")),
            ("zoe", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
    }

    #[test]
    fn it_is_as_far_there_as_back() {
        for (one, other, far) in [("", "abc", 3), ("kitten", "sitting", 3), ("anna", "anna", 0)] {
            assert_eq!((slips(one, other), slips(other, one)), (far, far), "{one} {other}");
        }
    }
}
