//! Rules in CEL (`x-kubernetes-validations`).

mod declaration;
mod host;
#[cfg(test)]
mod tests;
