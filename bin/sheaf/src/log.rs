//! Log lines, on standard error. Standard output belongs to what was asked for.
//!
//! How much is said comes from `SHEAF_LOG` at the start, and from the setting `log-level` while the node runs. Who set the
//! variable knows why: it goes before the setting.

use std::{
    env,
    io::{self, IsTerminal},
    sync::{Mutex, OnceLock, PoisonError},
};

use sheaf_cli::{BadSetting, LogFormat};
use tracing::info;
use tracing_subscriber::{EnvFilter, filter::LevelFilter, reload};

const VARIABLE: &str = "SHEAF_LOG";

type Reload = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

/// What changes the filter while the process runs; there once logging started.
static RELOAD: OnceLock<Reload> = OnceLock::new();

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
    let reload: Reload = match format {
        LogFormat::Text => {
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            lines.init();
            Box::new(move |filter| handle.reload(filter))
        }
        LogFormat::Json => {
            let lines = lines.json().with_filter_reloading();
            let handle = lines.reload_handle();
            lines.init();
            Box::new(move |filter| handle.reload(filter))
        }
    };
    _ = RELOAD.set(reload);
    Ok(())
}

/// Says from now on as much as a level of the setting `log-level` asks for, or says why not.
pub fn set_level(level: &str) -> Result<(), String> {
    if env::var_os(VARIABLE).is_some_and(|set| !set.is_empty()) {
        return Err(format!("{VARIABLE} is set where sheaf was started, and goes before this setting"));
    }
    let Some(reload) = RELOAD.get() else { return Ok(()) };
    let wanted = directives(level).ok_or_else(|| format!("{level:?} is no level"))?;
    let filter = EnvFilter::try_new(wanted).map_err(|why| why.to_string())?;
    static IN_FORCE: Mutex<&str> = Mutex::new("info");
    let mut in_force = IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner);
    if *in_force == wanted {
        return Ok(());
    }
    reload(filter).map_err(|why| why.to_string())?;
    *in_force = wanted;
    info!(level, "the log says as much as the setting log-level asks for");
    Ok(())
}

/// What says more than usual is about Sheaf alone: libraries would say what went over connections.
fn directives(level: &str) -> Option<&'static str> {
    match level {
        "panic" | "fatal" | "error" => Some("error"),
        "warn" | "warning" => Some("warn"),
        "info" => Some("info"),
        "debug" => Some("info,sheaf=debug"),
        "trace" => Some("info,sheaf=trace"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sheaf_resources::kinds::setting;

    use super::*;

    #[test]
    fn every_level_that_can_be_set_is_one_of_the_logs() {
        for level in ["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"] {
            assert!(EnvFilter::try_new(directives(level).unwrap()).is_ok(), "{level}");
        }
        assert_eq!(directives(setting::find(setting::LOG_LEVEL).unwrap().default), Some("info"));
        assert_eq!(directives("loud"), None);
    }
}
