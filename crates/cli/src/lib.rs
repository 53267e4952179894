//! What a person types, and what the answer looks like.
//!
//! Arguments are parsed once, with what the host tells about itself filled in, into one
//! tree ([`Config`]); nothing behind it looks at arguments again. What cannot be used is a
//! [`BadSetting`]: which setting, what was read, what would fit. The commands that only
//! look ([`doctor`], [`version`], [`kubeconfig`]) live here too, and those that ask a cluster as any client would
//! ([`demo`], [`console`], [`image`], [`support_bundle`], [`user`]).
//!
//! Deliberately absent: anything that runs a node. That is wired in the binary.

pub mod admin_password_file;
mod args;
mod bad_setting;
mod client_config;
pub mod cluster;
mod config;
pub mod console;
pub mod demo;
pub mod doctor;
mod host;
pub mod image;
pub mod image_download;
pub mod install;
pub mod kubeconfig;
mod nearest_name;
mod node_name;
mod progress;
mod secret;
pub mod support_bundle;
mod terminal;
pub mod user;
pub mod version;

pub use args::{Args, AuditLevel, LogFormat, OutputFormat};
pub use bad_setting::BadSetting;
pub use clap_complete::Shell;
pub use client_config::{
    ConsoleConfig, DemoConfig, DemoImage, DownloadConfig, Grant, SupportBundleConfig, UploadConfig,
    UserConfig, UserWish,
};
pub use config::{Config, DoctorConfig, DownConfig, InstallConfig, KubeconfigConfig, Listen, UpConfig};
pub use host::Host;
pub use secret::Secret;

/// What the product calls itself towards people. The one place to change for a white label.
pub const PRODUCT: &str = "Sheaf";
