//! The bodies of refusals.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The body of every error reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// One sentence, or a list with an item for each invalid field.
    pub detail: Detail,
    /// A stable name in `snake_case`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// The id under which the request is logged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// The ceiling that refused, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Ceiling>,
    /// Who can free that ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed_by: Option<String>,
    /// Why a run was lost, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What went wrong, in one of the contract's two shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Detail {
    /// A sentence.
    Text(String),
    /// One item for each invalid field.
    Fields(Vec<FieldError>),
    /// An error about a file.
    Named(NamedError),
}

/// An error about a file, under the name that programs know it by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedError {
    /// The name, such as `FileNotFoundError`.
    pub error: String,
    /// What is wrong.
    pub message: String,
}

/// One invalid field of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldError {
    /// The kind, such as `missing` or `string_pattern_mismatch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `body`, `query` or `path`, then names and indexes.
    pub loc: Vec<Value>,
    /// What was expected.
    pub msg: String,
    /// The value that was found.
    pub input: Value,
    /// The values that the message speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctx: Option<Value>,
}

/// A ceiling that refused a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// The configuration key, such as `max_sessions`.
    pub name: String,
    /// Its value.
    pub limit: u64,
    /// How much of it is in use.
    pub used: u64,
    /// What it covers: `service`, `tenant:<name>` or `session:<id>`.
    pub scope: String,
}
