//! What of a collection is asked for: `filter`, `sort`, `page`, `pagesize`, `projectsornamespaces`. All pure.

pub mod field;
pub mod filter;
pub mod paging;
pub mod projects;
pub mod sort;
