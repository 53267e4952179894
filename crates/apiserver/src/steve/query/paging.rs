//! `pagesize=` and `page=`: which part of what was found is shown. Pages are counted from one.

use std::ops::Range;

use crate::{request::Query, status::ApiError};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paging {
    /// 0 is all on one page.
    size: usize,
    page: usize,
}

impl Paging {
    pub fn read(query: &Query) -> Result<Self, ApiError> {
        let number = |key: &str, default: usize| match query.get(key) {
            None => Ok(default),
            Some(text) => text
                .parse::<i64>()
                .map(|number| usize::try_from(number).unwrap_or(default))
                .map_err(|_| ApiError::bad_request(format!("{key}: {text:?} is not a whole number"))),
        };
        Ok(Paging { size: number("pagesize", 0)?, page: number("page", 1)?.max(1) })
    }

    /// Which of `count` are on the page, and how many pages there are; none if there is no paging.
    pub fn of(self, count: usize) -> (Range<usize>, Option<usize>) {
        if self.size == 0 {
            return (0..count, None);
        }
        let from = self.size.saturating_mul(self.page - 1).min(count);
        (from..from.saturating_add(self.size).min(count), Some(count.div_ceil(self.size)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str, count: usize) -> (Range<usize>, Option<usize>) {
        Paging::read(&Query::parse(Some(query))).unwrap().of(count)
    }

    #[test]
    fn pages_begin_at_one_and_one_beyond_the_last_is_empty() {
        assert_eq!(page("", 7), (0..7, None));
        assert_eq!(page("pagesize=3", 7), (0..3, Some(3)));
        assert_eq!(page("pagesize=3&page=3", 7), (6..7, Some(3)));
        assert_eq!(page("pagesize=3&page=4", 7), (7..7, Some(3)));
        assert_eq!(page("pagesize=3&page=0", 7), (0..3, Some(3)));
        assert_eq!(page("pagesize=-1", 7), (0..7, None));
        assert!(Paging::read(&Query::parse(Some("pagesize=many"))).is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_object_is_on_exactly_one_page(size in 1_usize..20, count in 0_usize..200) {
            let mut seen = 0;
            for page in 1..=count.div_ceil(size) + 2 {
                let (range, pages) = Paging { size, page }.of(count);
                proptest::prop_assert_eq!(pages, Some(count.div_ceil(size)));
                proptest::prop_assert!(range.start == seen || range.is_empty());
                seen += range.len();
            }
            proptest::prop_assert_eq!(seen, count);
        }
    }
}
