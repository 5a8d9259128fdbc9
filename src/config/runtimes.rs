//! Parses the allowlist, `SANDBOXD_RUNTIMES`, in its compact form and as JSON.
//!
//! ```text
//! alias=source[;field=value]…,…     source: an image, or @name of a built-in
//! {"alias": "source" | {field: value, …}, …}
//! ```
//!
//! Both forms become the same entries, and one function makes runtimes of those.

mod json;

use std::collections::BTreeMap;

use serde_json::Value;

use super::syntax::{decimal, quoted, whole};
use crate::id::Alias;
use crate::policy::builtins;
use crate::policy::valid::{CPU_SHARES_MAX, CPU_SHARES_MIN, PIDS_MAX};
use crate::policy::{Ceilings, KeepAwake, Runtime, Source, Users};
use crate::quantity::{ByteSize, Cpus};

/// The most runtimes of an allowlist.
pub const RUNTIMES_MAX: usize = 1_000;

/// What several errors end in.
const EXAMPLE: &str =
    "Example: SANDBOXD_RUNTIMES=python=python:3.12-slim,data=@python-datascience;mem_limit=4g";

/// The fields of an entry.
const FIELDS: [&str; 13] = [
    "image",
    "runtime",
    "description",
    "mem_limit",
    "memswap_limit",
    "cpus",
    "cpu_shares",
    "pids_limit",
    "network_mode",
    "oci_runtime",
    "workspace_size",
    "keep_awake",
    "users",
];

/// Runtimes as written; never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowlist {
    /// By alias.
    pub runtimes: BTreeMap<Alias, Runtime>,
    /// The one that was written first.
    pub first: Alias,
}

/// Says what is wrong with an allowlist, as the rest of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A compact entry has no `=`, or nothing before it.
    #[error("entry {} is not 'alias=image'. {EXAMPLE}", quoted(.0))]
    NotEntry(String),
    /// A compact entry has nothing behind its `=`.
    #[error("entry {} names no image or runtime. {EXAMPLE}", quoted(.0))]
    NoSource(String),
    /// A modifier has no `=`.
    #[error(
        "modifier {} on {} is not 'field=value'. {EXAMPLE}",
        quoted(modifier),
        quoted(alias)
    )]
    NotModifier {
        /// The modifier.
        modifier: String,
        /// The entry.
        alias: String,
    },
    /// A field does not exist.
    #[error(
        "entry {} sets something SandboxRuntime does not have: {}; its fields are {}",
        quoted(alias),
        quoted(field),
        FIELDS.join(", ")
    )]
    UnknownField {
        /// The entry.
        alias: String,
        /// The field.
        field: String,
    },
    /// A value is not one for its field.
    #[error("{alias}.{field}={} is not valid: {why}", quoted(text))]
    BadValue {
        /// The entry.
        alias: String,
        /// The field.
        field: String,
        /// The value.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// An entry has no source, or two.
    #[error(
        "entry {} is invalid: A SandboxRuntime needs exactly one of image or runtime",
        quoted(.0)
    )]
    NotOneSource(String),
    /// The text holds no entry.
    #[error("is set but names no runtime. Unset it to take the shipped allowlist. {EXAMPLE}")]
    Empty,
    /// There are too many entries.
    #[error("names more than {RUNTIMES_MAX} runtimes")]
    TooMany,
    /// The text starts like JSON and is not.
    #[error("is not valid JSON: {0}")]
    BadJson(String),
    /// The JSON is not an object.
    #[error("as JSON must be an object of aliases")]
    NotObject,
    /// The JSON object is empty.
    #[error("as JSON names no runtime")]
    EmptyJson,
    /// A JSON entry is neither text nor object.
    #[error("entry {} must be an image string or an object", quoted(.0))]
    BadEntry(String),
    /// A nested configuration is not one; its values are not shown.
    #[error("entry {} has an invalid runtime: {why}", quoted(alias))]
    BadRuntime {
        /// The entry.
        alias: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such built-in.
    #[error(
        "entry {} names the built-in runtime {}, which does not exist; there are {}",
        quoted(alias),
        quoted(name),
        builtin_names()
    )]
    UnknownBuiltIn {
        /// The entry.
        alias: String,
        /// The name.
        name: String,
    },
}

/// One entry of either form, before its fields are checked.
struct Entry {
    alias: String,
    fields: BTreeMap<String, Value>,
}

/// Parses an allowlist, or says everything that is wrong with it.
pub fn parse(text: &str) -> Result<Allowlist, Vec<Fault>> {
    let (entries, mut faults) = if text.trim_start().starts_with(['{', '[']) {
        json::entries(text)
    } else {
        compact_entries(text)
    };
    if RUNTIMES_MAX < entries.len() {
        return Err(vec![Fault::TooMany]);
    }
    let mut runtimes = BTreeMap::new();
    let mut first = None;
    for entry in entries {
        match runtime(&entry) {
            Ok((alias, runtime)) => {
                first.get_or_insert_with(|| alias.clone());
                // A repeated alias takes the place of the one before.
                runtimes.insert(alias, runtime);
            }
            Err(more) => faults.extend(more),
        }
    }
    match first {
        Some(first) if faults.is_empty() => Ok(Allowlist { runtimes, first }),
        Some(_) => Err(faults),
        None if faults.is_empty() => Err(vec![Fault::Empty]),
        None => Err(faults),
    }
}

fn builtin_names() -> String {
    let names: Vec<&str> = builtins::names().collect();
    names.join(", ")
}

fn compact_entries(text: &str) -> (Vec<Entry>, Vec<Fault>) {
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match compact_entry(part) {
            Ok(entry) => entries.push(entry),
            Err(fault) => faults.push(fault),
        }
    }
    (entries, faults)
}

fn compact_entry(text: &str) -> Result<Entry, Fault> {
    let mut parts = text.split(';').map(str::trim);
    let head = parts.next().unwrap_or_default();
    let (alias, source) = head
        .split_once('=')
        .map(|(alias, source)| (alias.trim(), source.trim()))
        .filter(|(alias, _)| !alias.is_empty())
        .ok_or_else(|| Fault::NotEntry(text.to_owned()))?;
    let mut fields = source_fields(source);
    if fields.is_empty() {
        return Err(Fault::NoSource(text.to_owned()));
    }
    for modifier in parts.filter(|part| !part.is_empty()) {
        let (field, value) = modifier.split_once('=').ok_or_else(|| Fault::NotModifier {
            modifier: modifier.to_owned(),
            alias: alias.to_owned(),
        })?;
        fields.insert(field.trim().to_owned(), Value::from(value.trim()));
    }
    Ok(Entry {
        alias: alias.to_owned(),
        fields,
    })
}

/// Makes the field that a source stands for; none of an empty one.
fn source_fields(source: &str) -> BTreeMap<String, Value> {
    let (field, value) = match source.strip_prefix('@') {
        Some(name) => ("runtime", name.trim()),
        None => ("image", source),
    };
    if value.is_empty() {
        return BTreeMap::new();
    }
    BTreeMap::from([(field.to_owned(), Value::from(value))])
}

/// Makes the runtime of an entry, or says everything that is wrong with it.
fn runtime(entry: &Entry) -> Result<(Alias, Runtime), Vec<Fault>> {
    let alias = entry.alias.as_str();
    let mut fields = Fields {
        entry,
        faults: Vec::new(),
    };
    for field in entry
        .fields
        .keys()
        .filter(|name| !FIELDS.contains(&name.as_str()))
    {
        fields.faults.push(Fault::UnknownField {
            alias: alias.to_owned(),
            field: field.clone(),
        });
    }
    let source = fields.source();
    let description = fields.text("description").unwrap_or_default();
    let ceilings = Ceilings {
        mem_limit: fields.size("mem_limit"),
        memswap_limit: fields.size("memswap_limit"),
        cpus: fields.cpus(),
        cpu_shares: fields.whole("cpu_shares", CPU_SHARES_MIN, CPU_SHARES_MAX),
        pids_limit: fields.whole("pids_limit", 1, PIDS_MAX),
        network_mode: fields.text("network_mode"),
        oci_runtime: fields.text("oci_runtime"),
        workspace_size: fields.size("workspace_size"),
    };
    let keep_awake = fields.word(
        "keep_awake",
        &[("false", KeepAwake::No), ("true", KeepAwake::Yes)],
    );
    let users = fields.word("users", &[("own", Users::Own), ("any", Users::Any)]);
    let mut faults = fields.faults;
    match (Alias::parse(alias), source) {
        (Ok(alias), Some(source)) if faults.is_empty() => Ok((
            alias,
            Runtime {
                source,
                description,
                ceilings,
                keep_awake,
                users,
            },
        )),
        (Ok(_), _) => Err(faults),
        (Err(_), _) => {
            faults.push(Fault::NotEntry(alias.to_owned()));
            Err(faults)
        }
    }
}

/// The fields of one entry while they are read, with what was wrong so far.
struct Fields<'a> {
    entry: &'a Entry,
    faults: Vec<Fault>,
}

impl Fields<'_> {
    fn get(&self, field: &str) -> Option<&Value> {
        self.entry
            .fields
            .get(field)
            .filter(|value| !value.is_null())
    }

    fn source(&mut self) -> Option<Source> {
        let alias = &self.entry.alias;
        let source = match (self.get("image"), self.get("runtime")) {
            (Some(_), None) => return self.text("image").map(Source::Image),
            (None, Some(Value::String(name))) => match builtins::get(name) {
                Some(config) => Ok(Source::Config(Box::new(config))),
                None => Err(Fault::UnknownBuiltIn {
                    alias: alias.clone(),
                    name: name.clone(),
                }),
            },
            (None, Some(nested)) => match json::runtime_config(nested) {
                Ok(config) => Ok(Source::Config(Box::new(config))),
                Err(why) => Err(Fault::BadRuntime {
                    alias: alias.clone(),
                    why,
                }),
            },
            (Some(_), Some(_)) | (None, None) => Err(Fault::NotOneSource(alias.clone())),
        };
        source.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn text(&mut self, field: &str) -> Option<String> {
        self.read(field, |value| match value {
            Value::String(text) => Ok(text.clone()),
            _ => Err("it is not a text".to_owned()),
        })
    }

    fn size(&mut self, field: &str) -> Option<ByteSize> {
        self.read(field, |value| {
            ByteSize::parse(&plain(value))
                .map_err(|_| "write a number and one of b, k, m, g, t, as in 512m".to_owned())
        })
    }

    fn cpus(&mut self) -> Option<Cpus> {
        self.read("cpus", |value| {
            let number = decimal(&plain(value))?;
            Cpus::new(number).map_err(|_| "write a positive number, as in 0.5".to_owned())
        })
    }

    fn whole(&mut self, field: &str, min: u64, max: u64) -> Option<u64> {
        self.read(field, |value| whole(&plain(value), min, max))
    }

    /// Reads one of a few words; the default where there is none.
    fn word<T: Copy + Default>(&mut self, field: &str, words: &[(&str, T)]) -> T {
        self.read(field, |value| {
            let text = plain(value).to_lowercase();
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                format!("it is one of: {}", words.join(", "))
            })
        })
        .unwrap_or_default()
    }

    fn read<T>(
        &mut self,
        field: &str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.get(field)?;
        match parse(value) {
            Ok(parsed) => Some(parsed),
            Err(why) => {
                let fault = Fault::BadValue {
                    alias: self.entry.alias.clone(),
                    field: field.to_owned(),
                    text: plain(value),
                    why,
                };
                self.faults.push(fault);
                None
            }
        }
    }
}

/// Writes a value as the compact form would.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

#[cfg(test)]
mod tests;
