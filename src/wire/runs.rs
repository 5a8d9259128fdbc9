//! Runs: programs with streams of their own, waited for or in the background.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::error::ErrorBody;

/// Asks for a program to be run and waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The program and its arguments, passed literally.
    pub argv: Vec<String>,
    /// Variables over those of the sandbox.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Seconds after which it is ended; at most the service's ceiling.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// 32 hex digits, made by the caller; one id runs once.
    pub run_id: String,
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

/// What a program wrote and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResponse {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The exit code, 128 and the number of the signal that ended it; `null` where it
    /// was ended by the service or its end is not known.
    pub exit_code: Option<i64>,
    /// Whether its time was over.
    pub timed_out: bool,
    /// Whether it wrote more than it may.
    pub output_limited: bool,
    /// The bytes that it may write, where it wrote more.
    pub output_limit: Option<u64>,
    /// Why the ending is what it is, where the rest does not say it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Told once after the sandbox was reset: which life of it this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// Told once after the sandbox was reset: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_reason: Option<String>,
}

/// Asks for a run in the background.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StartRunRequest {
    /// The program and its arguments; or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The text for `sh -c`; or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Variables over those of the sandbox.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it begins; relative to the work directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its user, where the runtime lets callers choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// `true` to send input later, or a text that it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<RunInput>,
    /// Seconds after which it is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// 32 hex digits; made where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Bytes that it may write before it is ended; its ring bounds it where `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<u64>,
    /// Whether both streams become one.
    #[serde(default)]
    pub merge: bool,
    /// What happens when the ring is full: `drop` the oldest output, or `wait` for a follower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<String>,
}

/// What a run in the background reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunInput {
    /// What is sent later.
    Open,
    /// Nothing.
    Closed,
    /// This text.
    Text(String),
}

impl Serialize for RunInput {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Open => serializer.serialize_bool(true),
            Self::Closed => serializer.serialize_bool(false),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RunInput {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Bool(true) => Ok(Self::Open),
            serde_json::Value::Bool(false) => Ok(Self::Closed),
            serde_json::Value::String(text) => Ok(Self::Text(text)),
            serde_json::Value::Null
            | serde_json::Value::Number(_)
            | serde_json::Value::Array(_)
            | serde_json::Value::Object(_) => {
                Err(serde::de::Error::custom("stdin is a boolean or a text"))
            }
        }
    }
}

/// A run in the background.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub run_id: String,
    /// `running`, `exited`, `killed` or `lost`.
    pub state: String,
    /// The exit code; `null` while it runs, and where its end is not known.
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// Why it ended, such as `exited`, `timeout`, `output_limit`, `stopped`, `signal`,
    /// `oom`, `start_failed`, `container_lost` or `agent_lost`; `null` while it runs.
    pub reason: Option<String>,
    /// Epoch seconds.
    pub started_at: f64,
    /// Epoch seconds.
    pub ended_at: Option<f64>,
    /// What is run, cut to 200 characters and `…`.
    pub target: String,
    /// Bytes that it wrote to standard output.
    pub stdout_bytes: u64,
    /// Bytes that it wrote to standard error.
    pub stderr_bytes: u64,
    /// The first record that is kept.
    pub first_seq: u64,
    /// The record that comes next.
    pub next_seq: u64,
    /// Whether output was dropped.
    pub truncated: bool,
}

/// The runs of a session, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunList {
    /// The runs.
    pub runs: Vec<Run>,
}

/// A signal for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRequest {
    /// Its name, with or without `SIG`, or its number.
    pub signal: String,
}

/// A line of a run's output, or the data of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OutputLine {
    /// What was written.
    Output(Chunk),
    /// Records that are not kept any more.
    Gap {
        /// Which.
        gap: Gap,
    },
    /// How the run is; nothing follows.
    End {
        /// It.
        end: Run,
    },
    /// Why the rest cannot be told now; nothing follows.
    Error {
        /// As in the reply of a refused request.
        error: Box<ErrorBody>,
    },
}

/// A record of output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Counts the records of a run from 0.
    pub seq: u64,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// What was written, where it is UTF-8; a character is never split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// What was written in base64, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b64: Option<String>,
}

impl Chunk {
    /// Returns what was written; nothing where neither form of it can be read.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match (&self.data, &self.b64) {
            (Some(text), _) => Cow::Borrowed(text.as_bytes()),
            (None, Some(b64)) => Cow::Owned(STANDARD.decode(b64).unwrap_or_default()),
            (None, None) => Cow::Borrowed(&[]),
        }
    }
}

/// Records that are not kept any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first.
    pub from: u64,
    /// The first that is kept again.
    pub to: u64,
}
