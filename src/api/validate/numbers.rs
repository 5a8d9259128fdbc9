//! Reads numbers as pydantic's lax mode does.

use std::time::Duration;

use serde_json::json;

use super::{Bound, Fault, Given};
use crate::api::json::Kind;
use crate::clock::Timestamp;

/// The longest time that is told apart from longer ones: ten years.
const SPAN_MAX: Duration = Duration::from_hours(10 * 365 * 24);

/// Reads a whole number that is at least `least`; one that is too large is the largest.
pub(in crate::api) fn at_least(given: &Given<'_>, least: u64) -> Result<u64, Fault> {
    match integer(given)? {
        Integer::Natural(n) if least <= n => Ok(n),
        Integer::Natural(_) | Integer::Negative => Err(Fault::bound(Bound::AtLeast(least))),
    }
}

/// Reads a whole number above zero; one that is too large is the largest.
pub(in crate::api) fn positive(given: &Given<'_>) -> Result<u64, Fault> {
    match integer(given)? {
        Integer::Natural(n) if 0 < n => Ok(n),
        Integer::Natural(_) | Integer::Negative => Err(Fault::bound(Bound::Above(0))),
    }
}

/// Reads a page size: at least one, and at most `most`.
pub(in crate::api) fn page(given: &Given<'_>, most: u64) -> Result<usize, Fault> {
    let over = || Fault::bound(Bound::AtMost(most));
    let n = at_least(given, 1)?;
    if n <= most {
        usize::try_from(n).map_err(|_| over())
    } else {
        Err(over())
    }
}

/// Reads a moment in epoch seconds.
pub(in crate::api) fn moment(given: &Given<'_>) -> Result<Timestamp, Fault> {
    let secs = float(given)?;
    let micros = Duration::try_from_secs_f64(secs)
        .ok()
        .and_then(|since| u64::try_from(since.as_micros()).ok());
    micros.map(Timestamp::from_micros).ok_or_else(|| {
        let what = "a moment is a number of seconds since 1970-01-01 UTC";
        Fault::value(what)
    })
}

/// Reads a number of seconds above zero; more than ten years are ten years.
pub(in crate::api) fn seconds(given: &Given<'_>) -> Result<Duration, Fault> {
    let secs = float(given)?;
    if secs.is_nan() || secs <= 0.0 {
        return Err(Fault {
            kind: "greater_than",
            msg: "Input should be greater than 0".into(),
            ctx: Some(json!({ "gt": 0.0 })),
        });
    }
    Ok(Duration::try_from_secs_f64(secs).map_or(SPAN_MAX, |span| span.min(SPAN_MAX)))
}

fn float(given: &Given<'_>) -> Result<f64, Fault> {
    let json = match given {
        Given::Text(text) => return spelled_float(text),
        Given::Json(json) => json,
    };
    match json.kind() {
        Kind::Bool(flag) => Ok(f64::from(u8::from(flag))),
        Kind::Text => match json.text() {
            Some(Ok(digits)) => spelled_float(&digits),
            Some(Err(_)) | None => Err(unparsed_float()),
        },
        Kind::Number(digits) => digits.parse().map_err(|_| unparsed_float()),
        Kind::Null | Kind::Array | Kind::Object => {
            Err(Fault::plain("float_type", "Input should be a valid number"))
        }
    }
}

/// Reads a number from text: space around it and a sign are allowed, as is `_` between digits.
fn spelled_float(text: &str) -> Result<f64, Fault> {
    let trimmed = text.trim();
    let odd = trimmed.starts_with('_') || trimmed.ends_with('_') || trimmed.contains("__");
    if odd {
        return Err(unparsed_float());
    }
    trimmed
        .replace('_', "")
        .parse()
        .map_err(|_| unparsed_float())
}

fn unparsed_float() -> Fault {
    Fault::plain(
        "float_parsing",
        "Input should be a valid number, unable to parse string as a number",
    )
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
