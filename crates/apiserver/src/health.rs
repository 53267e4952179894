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
        let mut checks = self.checks(endpoint).await;
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

    /// What is not well, if anything: the name of the first check that fails.
    pub(crate) async fn problem(&self) -> Option<String> {
        let checks = self.checks("readyz").await;
        let failed = checks.into_iter().find(|(_, outcome)| outcome.is_err());
        failed.map(|(name, _)| format!("the API server is not ready: {name}"))
    }

    async fn checks(&self, endpoint: &str) -> Vec<(&'static str, Result<(), String>)> {
        let mut checks = vec![("ping", Ok(())), ("cache", self.cache.failure().map_or(Ok(()), Err))];
        if endpoint != "livez" {
            checks.push(("store", self.store.revision().await.map(drop).map_err(|why| why.to_string())));
        }
        if endpoint == "readyz" {
            let stopping = *self.stopping.borrow();
            checks.push(("shutdown", if stopping { Err("the server is stopping".into()) } else { Ok(()) }));
        }
        checks
    }
}
