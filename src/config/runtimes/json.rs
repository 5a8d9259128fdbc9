//! Reads the JSON form of the allowlist, in the order in which it was written.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{Entry, Fault, source_fields};
use crate::policy::RuntimeConfig;

/// The fields of a nested configuration.
const CONFIG_FIELDS: [&str; 11] = [
    "name",
    "description",
    "image",
    "base_image",
    "packages",
    "package_manager",
    "setup_commands",
    "env_vars",
    "work_dir",
    "cache_image",
    "run_as_uid",
];

/// Reads the entries of a JSON object of aliases.
pub(super) fn entries(text: &str) -> (Vec<Entry>, Vec<Fault>) {
    let pairs = match read_pairs(text) {
        Ok(pairs) => pairs,
        Err(fault) => return (Vec::new(), vec![fault]),
    };
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for (alias, value) in pairs {
        match entry(alias, value) {
            Ok(entry) => entries.push(entry),
            Err(fault) => faults.push(fault),
        }
    }
    (entries, faults)
}

fn read_pairs(text: &str) -> Result<Vec<(String, Value)>, Fault> {
    let bad = |error: serde_json::Error| Fault::BadJson(error.to_string());
    // Read twice: a plain value tells wrong syntax from a wrong shape.
    if !serde_json::from_str::<Value>(text)
        .map_err(bad)?
        .is_object()
    {
        return Err(Fault::NotObject);
    }
    let Pairs(pairs) = serde_json::from_str(text).map_err(bad)?;
    if pairs.is_empty() {
        return Err(Fault::EmptyJson);
    }
    Ok(pairs)
}

fn entry(alias: String, value: Value) -> Result<Entry, Fault> {
    let fields = match value {
        Value::String(source) => {
            let fields = source_fields(source.trim());
            if fields.is_empty() {
                return Err(Fault::NoSource(alias));
            }
            fields
        }
        Value::Object(object) => object.into_iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(Fault::BadEntry(alias));
        }
    };
    Ok(Entry { alias, fields })
}

/// Reads a nested configuration; says what is wrong without showing values.
pub(super) fn runtime_config(value: &Value) -> Result<RuntimeConfig, String> {
    let object = value
        .as_object()
        .ok_or("it is neither the name of a built-in nor an object")?;
    if let Some(field) = object
        .keys()
        .find(|key| !CONFIG_FIELDS.contains(&key.as_str()))
    {
        return Err(format!(
            "RuntimeConfig has no field {field:?}; its fields are {}",
            CONFIG_FIELDS.join(", ")
        ));
    }
    // Said here, since the general message would show the value, and what stands
    // in a variable may be a secret.
    if let Some(variables) = object.get("env_vars") {
        let texts = variables
            .as_object()
            .is_some_and(|variables| variables.values().all(Value::is_string));
        if !texts {
            return Err("env_vars is not an object of texts".to_owned());
        }
    }
    RuntimeConfig::deserialize(value).map_err(|error| error.to_string())
}

/// The members of an object in their order; the last of a repeated name counts.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of aliases")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs: Vec<(String, Value)> = Vec::new();
                let mut places = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    let place = *places.entry(name.clone()).or_insert(pairs.len());
                    match pairs.get_mut(place) {
                        Some(pair) => pair.1 = value,
                        None => pairs.push((name, value)),
                    }
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Members)
    }
}
