//! What a person types, and what the answer looks like.
//!
//! Arguments are parsed once, with what the host tells about itself filled in, into one
//! tree ([`Config`]); nothing behind it looks at arguments again. What cannot be used is a
//! [`BadSetting`]: which setting, what was read, what would fit. The commands that only
//! look ([`doctor`], [`version`], [`kubeconfig`]) live here too, and those that ask a cluster as any client would:
//!
//! - [`nouns`]: verbs on nouns (`sheaf vm start web`), one module per noun;
//! - [`anything`]: what holds for any kind (`sheaf get`, `sheaf apply`);
//! - [`login`]: clusters somewhere else, and which one is meant;
//! - [`asking`]: what all of these share: requests, refusals, tables, waiting.
//!
//! Deliberately absent: anything that runs a node. That is wired in the binary.

pub mod admin_password_file;
pub mod anything;
mod args;
pub mod asking;
mod bad_setting;
mod client_config;
pub mod cluster;
pub mod completing;
mod config;
pub mod demo;
pub mod doctor;
mod host;
pub mod install;
pub mod kubeconfig;
pub mod login;
mod nearest_name;
mod node_name;
pub mod nouns;
mod progress;
mod secret;
pub mod support_bundle;
mod terminal;
pub mod version;

pub use args::{Args, AuditLevel, LogFormat, OutputFormat};
pub use bad_setting::BadSetting;
pub use clap_complete::Shell;
pub use client_config::{DemoConfig, DemoImage, SupportBundleConfig};
pub use config::{Config, DoctorConfig, DownConfig, InstallConfig, KubeconfigConfig, Listen, UpConfig};
pub use host::Host;
pub use secret::Secret;

/// What the product calls itself towards people. The one place to change for a white label.
pub const PRODUCT: &str = "Sheaf";
