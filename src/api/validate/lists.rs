//! Reads lists and objects of texts, each item with a fault of its own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Fault, Given, text};
use crate::api::json::{Json, Kind};
use crate::wire::error::FieldError;

/// Faults that are told of one list; a caller that made more has enough to do.
pub(super) const FAULTS_MAX: usize = 32;

/// How many items a list has.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct Length {
    /// At least so many.
    pub(in crate::api) least: usize,
    /// At most so many.
    pub(in crate::api) most: usize,
}

/// What is wrong with a value, or with parts of it.
#[derive(Debug)]
pub(in crate::api) struct Faults(Vec<Part>);

/// A fault, and where in the value it is if not in the whole of it.
#[derive(Debug)]
struct Part {
    within: Option<(Value, Value)>,
    fault: Fault,
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        let within = None;
        Self(vec![Part { within, fault }])
    }
}

impl Faults {
    /// Begins without any.
    fn none() -> Self {
        Self(Vec::new())
    }

    /// Notes the fault of an item, by its index or its key.
    fn note(&mut self, place: Value, item: Json<'_>, fault: Fault) {
        if self.0.len() < FAULTS_MAX {
            let within = Some((place, item.echo()));
            self.0.push(Part { within, fault });
        }
    }

    fn accept<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// Makes the items of the reply for the value that stands at `loc`.
    pub(super) fn at(self, loc: &[Value], whole: &Given<'_>) -> Vec<FieldError> {
        let item = |part: Part| match part.within {
            None => part.fault.at(loc.to_vec(), whole.echo()),
            Some((place, echo)) => {
                let loc = loc.iter().cloned().chain([place]).collect();
                part.fault.at(loc, echo)
            }
        };
        self.0.into_iter().map(item).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Reads a list of texts, each of which `check` accepts.
pub(in crate::api) fn texts(
    given: &Given<'_>,
    length: Length,
    check: impl Fn(&str) -> Result<(), Fault>,
) -> Result<Vec<String>, Faults> {
    let list = match given {
        Given::Json(json) if json.kind() == Kind::Array => *json,
        Given::Json(_) | Given::Text(_) => {
            return Err(Fault::plain("list_type", "Input should be a valid list").into());
        }
    };
    let n = list.items().count();
    fits("List", n, length)?;
    let (mut read, mut faults) = (Vec::with_capacity(n), Faults::none());
    for (index, item) in list.items().enumerate() {
        match checked(item, &check) {
            Ok(text) => read.push(text),
            Err(fault) => faults.note(json!(index), item, fault),
        }
    }
    faults.accept(read)
}

/// Reads an object of texts, each of which `check` accepts with its key.
pub(in crate::api) fn text_map(
    given: &Given<'_>,
    most: usize,
    check: impl Fn(&str, &str) -> Result<(), Fault>,
) -> Result<BTreeMap<String, String>, Faults> {
    let object = match given {
        Given::Json(json) if json.kind() == Kind::Object => *json,
        Given::Json(_) | Given::Text(_) => {
            return Err(Fault::plain("dict_type", "Input should be a valid dictionary").into());
        }
    };
    fits(
        "Dictionary",
        object.entries().count(),
        Length { least: 0, most },
    )?;
    let (mut read, mut faults) = (BTreeMap::new(), Faults::none());
    for (key, item) in object.entries() {
        match checked(item, |text| check(&key, text)) {
            Ok(text) => {
                read.insert(key.into_owned(), text);
            }
            Err(fault) => faults.note(json!(key), item, fault),
        }
    }
    faults.accept(read)
}

fn checked(item: Json<'_>, check: impl Fn(&str) -> Result<(), Fault>) -> Result<String, Fault> {
    let text = text(&Given::Json(item))?;
    check(&text)?;
    Ok(text)
}

/// Checks a length, in pydantic's words for a type of this name.
fn fits(field_type: &str, n: usize, length: Length) -> Result<(), Fault> {
    let (kind, words, key, bound) = if n < length.least {
        ("too_short", "at least", "min_length", length.least)
    } else if length.most < n {
        ("too_long", "at most", "max_length", length.most)
    } else {
        return Ok(());
    };
    let s = if bound == 1 { "" } else { "s" };
    Err(Fault {
        kind,
        msg: Cow::Owned(format!(
            "{field_type} should have {words} {bound} item{s} after validation, not {n}"
        )),
        ctx: Some(json!({ "field_type": field_type, key: bound, "actual_length": n })),
    })
}
