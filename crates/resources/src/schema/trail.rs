//! Where a walk over an object is.
//!
//! A path is needed only for an error, and errors are rare; so the walk keeps a chain of
//! steps on the stack and writes it out when it must.

use crate::field_error::FieldPath;

/// The steps from the value that was handed in to the one at hand.
#[derive(Clone, Copy)]
pub(super) enum Trail<'a> {
    Root,
    Field(&'a Trail<'a>, &'a str),
    Element(&'a Trail<'a>, usize),
    /// An entry of a map, for checks that write it `labels[app]`.
    Entry(&'a Trail<'a>, &'a str),
}

impl Trail<'_> {
    /// The path as text, empty at the start.
    pub(super) fn name(&self) -> String {
        let mut name = String::new();
        self.write(&mut name);
        name
    }

    /// The path behind `base`.
    pub(super) fn path(&self, base: &FieldPath) -> FieldPath {
        base.child(&self.name())
    }

    fn write(&self, out: &mut String) {
        match self {
            Trail::Root => {}
            Trail::Field(parent, name) => {
                parent.write(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Trail::Element(parent, index) => {
                parent.write(out);
                out.push_str(&format!("[{index}]"));
            }
            Trail::Entry(parent, key) => {
                parent.write(out);
                out.push_str(&format!("[{key}]"));
            }
        }
    }
}
