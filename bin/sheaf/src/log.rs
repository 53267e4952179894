//! Log lines, on standard error. Standard output belongs to what was asked for.

use std::{
    env,
    io::{self, IsTerminal},
};

use sheaf_cli::{BadSetting, LogFormat};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

const VARIABLE: &str = "SHEAF_LOG";

/// Starts logging at the level and for the parts that `SHEAF_LOG` names; `info` without it.
pub fn start(format: LogFormat) -> Result<(), BadSetting> {
    let wanted = env::var(VARIABLE).unwrap_or_default();
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(&wanted)
        .map_err(|why| {
            let fits = "a level (error, warn, info, debug, trace), or levels by part: info,sheaf_store=debug";
            BadSetting::new(VARIABLE, &wanted, why.to_string(), fits)
        })?;
    // Colours are for eyes: not for files, and not for those who set NO_COLOR.
    let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(io::stderr);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(())
}
