//! Checks fields of bodies and queries and words what is wrong with them.
//!
//! Kinds, messages and accepted spellings are those of pydantic's lax mode, which
//! clients of the contract match on. A form gathers the faults of all its fields.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::api::error::Failure;
use crate::api::json::{Json, Kind, echo_text};
use crate::api::room::capacity;
use crate::id::{NAME_PATTERN, RunId, SessionId, Tenant};
use crate::wire::error::FieldError;

mod lists;
mod numbers;
#[cfg(test)]
mod tests;

pub(super) use lists::{Faults, Length, text_map, texts};
pub(super) use numbers::{at_least, moment, page, positive, seconds};

/// The pattern of a run's id, as error replies show it.
pub(super) const RUN_ID_PATTERN: &str = "^[0-9a-f]{32}$";

/// Why a value is not what its field wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    kind: &'static str,
    msg: Cow<'static, str>,
    ctx: Option<Value>,
}

/// What a number should have been.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(u64),
    Above(u64),
    AtMost(u64),
}

impl Fault {
    fn plain(kind: &'static str, msg: &'static str) -> Self {
        Self {
            kind,
            msg: Cow::Borrowed(msg),
            ctx: None,
        }
    }

    fn bound(bound: Bound) -> Self {
        let (kind, key, words, n) = match bound {
            Bound::AtLeast(n) => ("greater_than_equal", "ge", "greater than or equal to", n),
            Bound::Above(n) => ("greater_than", "gt", "greater than", n),
            Bound::AtMost(n) => ("less_than_equal", "le", "less than or equal to", n),
        };
        Self {
            kind,
            msg: Cow::Owned(format!("Input should be {words} {n}")),
            ctx: Some(json!({ key: n })),
        }
    }

    /// Refuses a value for a reason of our own, in a sentence.
    pub(super) fn value(sentence: impl std::fmt::Display) -> Self {
        Self {
            kind: "value_error",
            msg: Cow::Owned(format!("Value error, {sentence}")),
            ctx: Some(json!({ "error": {} })),
        }
    }

    /// Refuses a text that is not of this pattern.
    pub(super) fn pattern(pattern: &str) -> Self {
        Self {
            kind: "string_pattern_mismatch",
            msg: Cow::Owned(format!("String should match pattern '{pattern}'")),
            ctx: Some(json!({ "pattern": pattern })),
        }
    }

    /// Makes the item of the reply.
    fn at(self, loc: Vec<Value>, input: Value) -> FieldError {
        FieldError {
            kind: self.kind.to_owned(),
            loc,
            msg: self.msg.into_owned(),
            input,
            ctx: self.ctx,
        }
    }
}

/// A value as it was given: in a body, or as text in a query or a path.
#[derive(Clone, Debug)]
pub(super) enum Given<'a> {
    /// Of a body.
    Json(Json<'a>),
    /// Of a query or a path, decoded.
    Text(Cow<'a, str>),
}

impl Given<'_> {
    fn is_null(&self) -> bool {
        matches!(self, Self::Json(json) if json.kind() == Kind::Null)
    }

    /// Returns the yes or no that a body holds, where it is one as such.
    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Self::Json(json) => match json.kind() {
                Kind::Bool(truth) => Some(truth),
                Kind::Null | Kind::Number(_) | Kind::Text | Kind::Array | Kind::Object => None,
            },
            Self::Text(_) => None,
        }
    }

    fn echo(&self) -> Value {
        match self {
            Self::Json(json) => json.echo(),
            Self::Text(text) => echo_text(text),
        }
    }
}

/// A field by name, with what was given for it.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    name: &'static str,
    given: Option<Given<'a>>,
}

impl<'a> Field<'a> {
    /// Tells whether something but `null` was given.
    pub(super) fn is_given(&self) -> bool {
        self.given.as_ref().is_some_and(|given| !given.is_null())
    }

    /// Pairs a name with what was given for it.
    pub(super) fn new(name: &'static str, given: Option<Given<'a>>) -> Self {
        Self { name, given }
    }
}

/// A body or a query whose fields are being read.
///
/// Where a field is at fault, reading gives a placeholder and notes the fault;
/// nothing may be done with the values before [`Form::finish`] accepts them all.
#[derive(Debug)]
pub(super) struct Form<'a> {
    place: &'static str,
    body: Option<Json<'a>>,
    faults: Vec<FieldError>,
}

impl<'a> Form<'a> {
    /// Starts to read a body, which must be an object.
    pub(super) fn body(body: Json<'a>) -> Result<Self, Failure> {
        if body.kind() == Kind::Object {
            return Ok(Self {
                place: "body",
                body: Some(body),
                faults: Vec::new(),
            });
        }
        Err(not_an_object(body.echo()))
    }

    /// Starts to read a query.
    pub(super) fn query() -> Self {
        Self {
            place: "query",
            body: None,
            faults: Vec::new(),
        }
    }

    /// Looks up the fields of a body; unknown ones are left alone.
    pub(super) fn fields<const N: usize>(&self, names: [&'static str; N]) -> [Field<'a>; N] {
        let mut given = self
            .body
            .map_or([None; N], |body| body.members(names))
            .into_iter();
        names.map(|name| Field::new(name, given.next().flatten().map(Given::Json)))
    }

    /// Reads a field that must be given.
    pub(super) fn required<T: Default, F: Into<Faults>>(
        &mut self,
        field: &Field<'a>,
        read: impl FnOnce(&Given<'a>) -> Result<T, F>,
    ) -> T {
        if let Some(given) = &field.given {
            return self.noted(field.name, given, read).unwrap_or_default();
        }
        self.miss(field);
        T::default()
    }

    /// Notes that a field is missing.
    pub(super) fn miss(&mut self, field: &Field<'a>) {
        let whole = self.body.map_or(Value::Null, Json::echo);
        let fault = Fault::plain("missing", "Field required");
        let loc = self.loc(field.name);
        self.faults.push(fault.at(loc, whole));
    }

    /// Notes what is wrong with a field beside others.
    pub(super) fn refuse(&mut self, field: &Field<'a>, fault: Fault) {
        let input = field.given.as_ref().map_or(Value::Null, Given::echo);
        let loc = self.loc(field.name);
        self.faults.push(fault.at(loc, input));
    }

    /// Reads a field that may be left out or `null`.
    pub(super) fn optional<T, F: Into<Faults>>(
        &mut self,
        field: &Field<'a>,
        read: impl FnOnce(&Given<'a>) -> Result<T, F>,
    ) -> Option<T> {
        let given = field.given.as_ref().filter(|given| !given.is_null())?;
        self.noted(field.name, given, read)
    }

    /// Reads a field that may be left out but not `null`.
    pub(super) fn or_default<T: Default, F: Into<Faults>>(
        &mut self,
        field: &Field<'a>,
        read: impl FnOnce(&Given<'a>) -> Result<T, F>,
    ) -> T {
        field
            .given
            .as_ref()
            .and_then(|given| self.noted(field.name, given, read))
            .unwrap_or_default()
    }

    /// Accepts the form, or refuses it with the faults of all fields.
    pub(super) fn finish(self) -> Result<(), Failure> {
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(Failure::Invalid(self.faults))
        }
    }

    fn noted<T, F: Into<Faults>>(
        &mut self,
        name: &'static str,
        given: &Given<'a>,
        read: impl FnOnce(&Given<'a>) -> Result<T, F>,
    ) -> Option<T> {
        match read(given) {
            Ok(value) => Some(value),
            Err(faults) => {
                let loc = self.loc(name);
                self.faults.extend(faults.into().at(&loc, given));
                None
            }
        }
    }

    fn loc(&self, name: &'static str) -> Vec<Value> {
        vec![json!(self.place), json!(name)]
    }
}

/// Refuses a request for its whole body.
fn whole_body(fault: Fault, input: Value) -> Failure {
    Failure::Invalid(vec![fault.at(vec![json!("body")], input)])
}

/// Refuses a body that is not there.
pub(super) fn no_body() -> Failure {
    whole_body(Fault::plain("missing", "Field required"), Value::Null)
}

/// Refuses a body that is no object.
pub(super) fn not_an_object(input: Value) -> Failure {
    whole_body(
        Fault::plain(
            "model_attributes_type",
            "Input should be a valid dictionary or object to extract fields from",
        ),
        input,
    )
}

/// Refuses a body that is not JSON.
pub(super) fn not_json(at_chars: usize, error: &str) -> Failure {
    let mut fault = Fault::plain("json_invalid", "JSON decode error");
    fault.ctx = Some(json!({ "error": error }));
    Failure::Invalid(vec![
        fault.at(vec![json!("body"), json!(at_chars)], json!({})),
    ])
}

/// Checks the session id of a path.
pub(super) fn path_session_id(text: &str) -> Result<SessionId, Failure> {
    let given = Given::Text(Cow::Borrowed(text));
    session_id(&given).map_err(|fault| {
        Failure::Invalid(vec![
            fault.at(vec![json!("path"), json!("session_id")], given.echo()),
        ])
    })
}

/// Checks the run id of a path.
pub(super) fn path_run_id(text: &str) -> Result<RunId, Failure> {
    let given = Given::Text(Cow::Borrowed(text));
    run_id(&given).map_err(|fault| {
        Failure::Invalid(vec![
            fault.at(vec![json!("path"), json!("run_id")], given.echo()),
        ])
    })
}

/// Reads a string.
pub(super) fn text(given: &Given<'_>) -> Result<String, Fault> {
    match given {
        Given::Text(text) => Ok(text.clone().into_owned()),
        Given::Json(json) => match json.text() {
            Some(Ok(Cow::Owned(text))) => Ok(text),
            Some(Ok(Cow::Borrowed(text))) => {
                let mut owned = String::with_capacity(capacity(text.len()));
                owned.push_str(text);
                Ok(owned)
            }
            Some(Err(_)) => Err(Fault::plain(
                "string_unicode",
                "Input should be a valid string, unable to parse raw data as a unicode string",
            )),
            None => Err(Fault::plain(
                "string_type",
                "Input should be a valid string",
            )),
        },
    }
}

/// Reads a session id.
pub(super) fn session_id(given: &Given<'_>) -> Result<SessionId, Fault> {
    SessionId::parse(&text(given)?).map_err(|_| Fault::pattern(NAME_PATTERN))
}

/// Reads a tenant.
pub(super) fn tenant(given: &Given<'_>) -> Result<Tenant, Fault> {
    Tenant::parse(&text(given)?).map_err(|_| Fault::pattern(NAME_PATTERN))
}

/// Reads the id of a run.
pub(super) fn run_id(given: &Given<'_>) -> Result<RunId, Fault> {
    RunId::parse(&text(given)?).map_err(|_| Fault::pattern(RUN_ID_PATTERN))
}

/// Reads one of a few words.
pub(super) fn one_of(given: &Given<'_>, words: &[&str]) -> Result<String, Fault> {
    let word = text(given)?;
    if words.contains(&word.as_str()) {
        return Ok(word);
    }
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let expected = quoted.join(" or ");
    Err(Fault {
        kind: "literal_error",
        msg: Cow::Owned(format!("Input should be {expected}")),
        ctx: Some(json!({ "expected": expected })),
    })
}

/// Reads a yes or a no.
pub(super) fn flag(given: &Given<'_>) -> Result<bool, Fault> {
    const UNCLEAR: Fault = Fault {
        kind: "bool_parsing",
        msg: Cow::Borrowed("Input should be a valid boolean, unable to interpret input"),
        ctx: None,
    };
    let spelled = |word: &str| match word.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" | "y" | "yes" | "on" => Ok(true),
        "0" | "f" | "false" | "n" | "no" | "off" => Ok(false),
        _ => Err(UNCLEAR),
    };
    let json = match given {
        Given::Text(text) => return spelled(text),
        Given::Json(json) => json,
    };
    match json.kind() {
        Kind::Bool(flag) => Ok(flag),
        Kind::Text => match json.text() {
            Some(Ok(word)) => spelled(&word),
            Some(Err(_)) | None => Err(UNCLEAR),
        },
        Kind::Number(digits) => match digits.parse::<f64>() {
            Ok(0.0) => Ok(false),
            Ok(1.0) => Ok(true),
            Ok(_) | Err(_) => Err(UNCLEAR),
        },
        Kind::Null | Kind::Array | Kind::Object => {
            Err(Fault::plain("bool_type", "Input should be a valid boolean"))
        }
    }
}
