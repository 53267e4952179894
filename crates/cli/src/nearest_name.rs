//! Of the names there are, the one that somebody who typed another probably meant.

/// So many letters may be wrong, of as many as this for each.
const LETTERS_PER_SLIP: usize = 3;

pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = typed.chars().count().div_ceil(LETTERS_PER_SLIP);
    let slips = names.into_iter().map(|name| (slips(typed, name), name));
    // Of two that are as near, the first by name: the same is said every time.
    slips.filter(|(slips, _)| *slips <= most).min().map(|(_, name)| name)
}

/// How many letters to add, leave out, replace or swap with the next one to get from one to the other.
fn slips(one: &str, other: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let (one, other) = (letters(one), letters(other));
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for n in 1..=one.len() {
        let mut row = vec![n];
        for m in 1..=other.len() {
            let replaced = rows[n - 1][m - 1] + usize::from(one[n - 1] != other[m - 1]);
            let mut fewest = replaced.min(rows[n - 1][m] + 1).min(row[m - 1] + 1);
            let is_swapped = n > 1 && m > 1 && one[n - 1] == other[m - 2] && one[n - 2] == other[m - 1];
            if is_swapped {
                fewest = fewest.min(rows[n - 2][m - 2] + 1);
            }
            row.push(fewest);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
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
            ("ebrt", Some("bert")),
            ("user-x7k2", Some("user-x7k2p")),
            ("zoe", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
    }

    #[test]
    fn it_is_as_far_there_as_back() {
        for (one, other, far) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("anna", "anna", 0), ("wbe", "web", 1)]
        {
            assert_eq!((slips(one, other), slips(other, one)), (far, far), "{one} {other}");
        }
    }
}
