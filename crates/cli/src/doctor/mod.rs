//! Checks a host for what a node needs, and says how to get what is missing.
//!
//! Looks and tells; changes nothing and needs no rights of its own. A check that cannot
//! be made for want of rights says so rather than guess. `fail`: a node will not run
//! here. `warn`: it will, with less than it could have.

mod host;
mod node;
mod programs;

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use crate::Listen;

/// What came out of one check. The field names are a promise to scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: String,
    pub verdict: Verdict,
    pub found: String,
    /// What to do about it, when there is something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// What to check the host for.
#[derive(Debug)]
pub struct Patient<'a> {
    /// `/`, but in tests.
    pub root: &'a Path,
    /// Where programs are looked for.
    pub path: Vec<PathBuf>,
    pub data_dir: &'a Path,
    pub listen: &'a [Listen],
    /// The node that already runs on the data directory.
    pub running: Option<u32>,
    pub certificates: &'a [Certificate],
    /// Since the Unix epoch.
    pub now: Duration,
}

/// When one of the node's certificates expires.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub name: String,
    /// Seconds since the Unix epoch.
    pub expires: i64,
    /// The authority is not renewed by itself.
    pub is_authority: bool,
}

/// Makes every check.
pub fn examine(patient: &Patient<'_>) -> Vec<Finding> {
    let mut findings = host::examine(patient.root, patient.now);
    findings.extend(programs::examine(&patient.path));
    findings.extend(node::examine(patient));
    findings
}

pub fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
}

/// A table for people; advice stands under what it is about.
pub fn as_table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut table = String::new();
    for Finding { check, verdict, found, advice } in findings {
        let verdict = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
        };
        // Writing to a String cannot fail.
        _ = writeln!(table, "{verdict:<4}  {check:<width$}  {found}");
        if let Some(advice) = advice {
            _ = writeln!(table, "{:<4}  {:<width$}  -> {advice}", "", "");
        }
    }
    table
}

pub fn as_json(findings: &[Finding]) -> String {
    format!("{:#}", serde_json::json!({ "verdict": worst(findings), "findings": findings }))
}

fn ok(check: &str, found: impl Into<String>) -> Finding {
    Finding { check: check.into(), verdict: Verdict::Ok, found: found.into(), advice: None }
}

fn warn(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Warn, advice: Some(advice.into()), ..ok(check, found) }
}

fn fail(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Fail, advice: Some(advice.into()), ..ok(check, found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_puts_advice_under_what_it_is_about() {
        let findings = [ok("memory", "8 GiB"), fail("port 6443", "in use", "stop what uses it")];
        let table = as_table(&findings);
        assert_eq!(
            table,
            "ok    memory     8 GiB\nFAIL  port 6443  in use\n                 -> stop what uses it\n"
        );
        assert_eq!(worst(&findings), Verdict::Fail);
    }

    #[test]
    fn scripts_get_the_same_findings() {
        let json: serde_json::Value = serde_json::from_str(&as_json(&[warn("kvm", "none", "buy")])).unwrap();
        let finding = serde_json::json!(
            { "check": "kvm", "verdict": "warn", "found": "none", "advice": "buy" }
        );
        assert_eq!(json, serde_json::json!({ "verdict": "warn", "findings": [finding] }));
    }
}
