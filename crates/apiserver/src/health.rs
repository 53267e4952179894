//! Whether this server is well: `/livez`, `/readyz`, `/healthz`, with `?verbose` and `?exclude=`.

use crate::{
    ApiServer,
    request::Query,
    respond::{self, ApiResponse},
    status::success,
};

impl ApiServer {
    /// Answers `path` if it is one of health's.
    pub(crate) async fn health(&self, path: &str, query: &Query) -> Option<ApiResponse> {
        let (endpoint, only) = match path.trim_start_matches('/').split_once('/') {
            Some((endpoint, check)) => (endpoint, Some(check)),
            None => (path.trim_start_matches('/'), None),
        };
        if !matches!(endpoint, "livez" | "readyz" | "healthz") {
            return None;
        }
        let mut checks: Vec<(&str, Result<(), String>)> =
            vec![("ping", Ok(())), ("cache", self.cache.failure().map_or(Ok(()), Err))];
        if endpoint != "livez" {
            checks.push(("store", self.store.revision().await.map(drop).map_err(|why| why.to_string())));
        }
        if endpoint == "readyz" {
            let stopping = *self.stopping.borrow();
            checks.push(("shutdown", if stopping { Err("the server is stopping".into()) } else { Ok(()) }));
        }
        if let Some(only) = only {
            checks.retain(|(name, _)| *name == only);
            if checks.is_empty() {
                return None;
            }
        }
        let excluded: Vec<&str> = query.all("exclude").collect();
        let mut lines = String::new();
        let mut well = true;
        for (name, outcome) in &checks {
            match outcome {
                _ if excluded.contains(name) => lines += &format!("[+]{name} excluded: ok\n"),
                Ok(()) => lines += &format!("[+]{name} ok\n"),
                Err(why) => {
                    well = false;
                    tracing::warn!(check = name, %why, "a health check failed");
                    lines += &format!("[-]{name} failed: reason withheld\n");
                }
            }
        }
        Some(match well {
            true if query.flag("verbose") => {
                respond::text(success::OK, format!("{lines}{endpoint} check passed\n"))
            }
            true => respond::text(success::OK, "ok"),
            false => respond::text(success::UNHEALTHY, format!("{lines}{endpoint} check failed\n")),
        })
    }
}
