//! Checks fields of bodies and queries and words what is wrong with them.
//!
//! Kinds, messages and accepted spellings are those of pydantic's lax mode, which
//! clients of the contract match on. A form gathers the faults of all its fields.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::api::error::Failure;
use crate::api::json::{Json, Kind, echo_text};
use crate::api::room::capacity;
use crate::id::{NAME_PATTERN, SessionId, Tenant};
use crate::wire::error::FieldError;

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

    fn pattern(pattern: &str) -> Self {
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
    pub(super) fn required<T: Default>(
        &mut self,
        field: &Field<'a>,
        read: impl FnOnce(&Given<'a>) -> Result<T, Fault>,
    ) -> T {
        if let Some(given) = &field.given {
            return self.noted(field.name, given, read).unwrap_or_default();
        }
        let whole = self.body.map_or(Value::Null, Json::echo);
        self.note(field.name, Fault::plain("missing", "Field required"), whole);
        T::default()
    }

    /// Reads a field that may be left out or `null`.
    pub(super) fn optional<T>(
        &mut self,
        field: &Field<'a>,
        read: impl FnOnce(&Given<'a>) -> Result<T, Fault>,
    ) -> Option<T> {
        let given = field.given.as_ref().filter(|given| !given.is_null())?;
        self.noted(field.name, given, read)
    }

    /// Reads a field that may be left out but not `null`.
    pub(super) fn or_default<T: Default>(
        &mut self,
        field: &Field<'a>,
        read: impl FnOnce(&Given<'a>) -> Result<T, Fault>,
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

    fn noted<T>(
        &mut self,
        name: &'static str,
        given: &Given<'a>,
        read: impl FnOnce(&Given<'a>) -> Result<T, Fault>,
    ) -> Option<T> {
        read(given)
            .map_err(|fault| self.note(name, fault, given.echo()))
            .ok()
    }

    fn note(&mut self, name: &'static str, fault: Fault, input: Value) {
        self.faults
            .push(fault.at(vec![json!(self.place), json!(name)], input));
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

/// Reads a whole number that is at least `least`; one that is too large is the largest.
pub(super) fn at_least(given: &Given<'_>, least: u64) -> Result<u64, Fault> {
    match integer(given)? {
        Integer::Natural(n) if least <= n => Ok(n),
        Integer::Natural(_) | Integer::Negative => Err(Fault::bound(Bound::AtLeast(least))),
    }
}

/// Reads a whole number above zero; one that is too large is the largest.
pub(super) fn positive(given: &Given<'_>) -> Result<u64, Fault> {
    match integer(given)? {
        Integer::Natural(n) if 0 < n => Ok(n),
        Integer::Natural(_) | Integer::Negative => Err(Fault::bound(Bound::Above(0))),
    }
}

/// Reads a page size: at least one, and at most `most`.
pub(super) fn page(given: &Given<'_>, most: u64) -> Result<usize, Fault> {
    let over = || Fault::bound(Bound::AtMost(most));
    let n = at_least(given, 1)?;
    if n <= most {
        usize::try_from(n).map_err(|_| over())
    } else {
        Err(over())
    }
}

/// A whole number as far as our fields need one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Integer {
    Natural(u64),
    Negative,
}

fn integer(given: &Given<'_>) -> Result<Integer, Fault> {
    let json = match given {
        Given::Text(text) => return spelled_integer(text),
        Given::Json(json) => json,
    };
    match json.kind() {
        Kind::Bool(flag) => Ok(Integer::Natural(u64::from(flag))),
        Kind::Text => match json.text() {
            Some(Ok(digits)) => spelled_integer(&digits),
            Some(Err(_)) | None => Err(unparsed()),
        },
        Kind::Number(digits) => match whole(digits) {
            Some(n) => Ok(n),
            None => fractional(digits),
        },
        Kind::Null | Kind::Array | Kind::Object => {
            Err(Fault::plain("int_type", "Input should be a valid integer"))
        }
    }
}

/// Reads digits with a sign or none; saturates.
fn whole(digits: &str) -> Option<Integer> {
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let n = digits.parse().unwrap_or(u64::MAX);
    Some(if negative && n != 0 {
        Integer::Negative
    } else {
        Integer::Natural(n)
    })
}

/// Reads a number with a point or an exponent, which has to be whole all the same.
fn fractional(digits: &str) -> Result<Integer, Fault> {
    let number: f64 = digits.parse().unwrap_or(f64::NAN);
    if !number.is_finite() {
        return Err(Fault::plain(
            "finite_number",
            "Input should be a finite number",
        ));
    }
    if number.fract() != 0.0 {
        return Err(Fault::plain(
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        ));
    }
    // Without a fraction the shortest decimal text is plain digits.
    whole(&format!("{number}")).ok_or_else(unparsed)
}

/// Reads a whole number from text: space around it, a sign, `_` and `.0` are allowed.
fn spelled_integer(text: &str) -> Result<Integer, Fault> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix('+').unwrap_or(trimmed);
    let digits = match digits.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|byte| byte == b'0') && !zeros.is_empty() => {
            whole
        }
        Some(_) => return Err(unparsed()),
        None => digits,
    };
    let odd = |part: &str| part.starts_with('_') || part.ends_with('_') || part.contains("__");
    if odd(digits.trim_start_matches('-')) {
        return Err(unparsed());
    }
    whole(&digits.replace('_', "")).ok_or_else(unparsed)
}

fn unparsed() -> Fault {
    Fault::plain(
        "int_parsing",
        "Input should be a valid integer, unable to parse string as an integer",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(text: &str) -> Given<'_> {
        Given::Json(Json::check(text).unwrap())
    }

    fn query(text: &str) -> Given<'_> {
        Given::Text(Cow::Borrowed(text))
    }

    fn kind<T: std::fmt::Debug>(read: Result<T, Fault>) -> &'static str {
        read.unwrap_err().kind
    }

    #[test]
    fn a_flag_is_spelled_in_many_ways_and_no_others() {
        for yes in [
            "true", "1", "1.0", "\"1\"", "\"T\"", "\"y\"", "\"YES\"", "\"on\"",
        ] {
            assert_eq!(flag(&body(yes)), Ok(true), "{yes}");
        }
        for no in [
            "false", "0", "0.0", "\"0\"", "\"f\"", "\"N\"", "\"no\"", "\"Off\"",
        ] {
            assert_eq!(flag(&body(no)), Ok(false), "{no}");
        }
        for unclear in ["2", "\"2\"", "\"\"", "NaN", "\"\\ud800\""] {
            assert_eq!(kind(flag(&body(unclear))), "bool_parsing", "{unclear}");
        }
        for other in ["null", "[]", "{}"] {
            assert_eq!(kind(flag(&body(other))), "bool_type", "{other}");
        }
        assert_eq!(kind(flag(&query(""))), "bool_parsing");
        assert_eq!(flag(&query("Yes")), Ok(true));
    }

    #[test]
    fn a_whole_number_may_be_written_as_text_or_with_a_zero_fraction() {
        for two in ["2", "2.0", "2e0", "\"2\"", "\" +2 \"", "\"2.0\"", "\"0_2\""] {
            assert_eq!(at_least(&body(two), 0), Ok(2), "{two}");
        }
        assert_eq!(at_least(&body("1e300"), 0), Ok(u64::MAX));
        assert_eq!(at_least(&body("-0"), 0), Ok(0));
        assert_eq!(kind(at_least(&body("1.5"), 0)), "int_from_float");
        assert_eq!(kind(at_least(&body("NaN"), 0)), "finite_number");
        assert_eq!(kind(at_least(&body("[]"), 0)), "int_type");
        for odd in ["", "x", "1.5", "_1", "1__0", "--1", "1e3"] {
            assert_eq!(kind(at_least(&query(odd), 0)), "int_parsing", "{odd}");
        }
    }

    #[test]
    fn a_bound_is_named_in_kind_message_and_context() {
        let fault = at_least(&query("-1"), 0).unwrap_err();
        assert_eq!(fault.msg, "Input should be greater than or equal to 0");
        assert_eq!(fault.ctx, Some(json!({"ge": 0})));
        let fault = positive(&body("0")).unwrap_err();
        assert_eq!(
            (fault.kind, &*fault.msg),
            ("greater_than", "Input should be greater than 0")
        );
        assert_eq!(fault.ctx, Some(json!({"gt": 0})));
        let fault = page(&query("1001"), 1000).unwrap_err();
        assert_eq!(
            (fault.kind, &*fault.msg),
            (
                "less_than_equal",
                "Input should be less than or equal to 1000"
            )
        );
        assert_eq!(kind(page(&query("0"), 1000)), "greater_than_equal");
    }

    #[test]
    fn a_form_tells_all_its_faults_at_once() {
        let json = Json::check(r#"{"tenant":"-","reuse":2,"other":1}"#).unwrap();
        let mut form = Form::body(json).unwrap();
        let [command, by, reuse] = form.fields(["command", "tenant", "reuse"]);
        let _placeholders = (
            form.required(&command, text),
            form.optional(&by, tenant),
            form.or_default(&reuse, flag),
        );
        let Err(Failure::Invalid(faults)) = form.finish() else {
            panic!("three fields are at fault");
        };
        assert_eq!(
            serde_json::to_value(faults).unwrap(),
            json!([
                {"type": "missing", "loc": ["body", "command"], "msg": "Field required",
                 "input": {"tenant": "-", "reuse": 2, "other": 1}},
                {"type": "string_pattern_mismatch", "loc": ["body", "tenant"],
                 "msg": format!("String should match pattern '{NAME_PATTERN}'"),
                 "input": "-", "ctx": {"pattern": NAME_PATTERN}},
                {"type": "bool_parsing", "loc": ["body", "reuse"],
                 "msg": "Input should be a valid boolean, unable to interpret input", "input": 2},
            ])
        );
    }

    #[test]
    fn null_stands_for_a_field_left_out_only_where_it_may_be_left_out() {
        let json = Json::check(r#"{"a":null}"#).unwrap();
        let mut form = Form::body(json).unwrap();
        let [a] = form.fields(["a"]);
        assert_eq!(form.optional(&a, text), None);
        assert!(form.faults.is_empty());
        assert!(!form.or_default(&a, flag));
        assert_eq!(form.faults.len(), 1);
    }

    proptest! {
        #[test]
        fn no_json_makes_a_reader_panic(number in r"-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,5})?", word in ".{0,40}") {
            let word = serde_json::to_string(&word).unwrap();
            for json in [number.as_str(), word.as_str()] {
                let given = body(json);
                let _read = (
                    flag(&given), positive(&given), page(&given, 9), text(&given),
                    session_id(&given), tenant(&given), one_of(&given, &["a"]),
                );
            }
        }

        #[test]
        fn no_query_makes_a_reader_panic(word in ".{0,40}") {
            let given = query(&word);
            let _read = (flag(&given), positive(&given), page(&given, 9), session_id(&given));
        }
    }
}
