//! Choosing objects: by label, by field.
//!
//! Both are parsed once per request and asked once per object, so asking allocates
//! nothing. What cannot be parsed is refused in the words of the original.

mod field;
mod label;
mod label_parser;

pub use field::{FieldOperator, FieldSelector, FieldSelectorError, FieldTerm, escaped};
pub use label::{LabelOperator, LabelSelector, LabelSelectorError, Labels, Requirement};
