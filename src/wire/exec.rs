//! Running a command and waiting for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Asks for `sh -c COMMAND` in the session's work directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The text for the shell; may be empty.
    pub command: String,
    /// Seconds after which it is killed; at most the service's ceiling.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Variables over those of the sandbox.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it begins; relative to the work directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its user, where the runtime lets callers choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it reads; nothing where `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

/// What a command printed and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecResponse {
    /// Both streams in order of arrival, the first 100,000 bytes.
    pub output: String,
    /// The exit code; `null` where the ending is not known.
    pub exit_code: Option<i64>,
    /// Whether more was printed than is shown.
    pub truncated: bool,
    /// Why the ending is what it is, where the code does not say it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Told once after the sandbox was reset: which life of it this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// Told once after the sandbox was reset: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_reason: Option<String>,
}
