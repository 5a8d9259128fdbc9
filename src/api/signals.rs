//! Knows signals by their names.

use std::borrow::Cow;

use crate::api::json::Kind;
use crate::api::validate::{self, Fault, Given};

/// The highest number of a signal.
const SIGNAL_MAX: i32 = 64;

/// The names of the signals from 1 on, without `SIG`.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Reads a signal: its name, with or without `SIG`, or its number.
pub(super) fn signal(given: &Given<'_>) -> Result<i32, Fault> {
    let text = match given {
        Given::Json(json) => match json.kind() {
            Kind::Number(digits) => Cow::Borrowed(digits),
            Kind::Null | Kind::Bool(_) | Kind::Text | Kind::Array | Kind::Object => {
                Cow::Owned(validate::text(given)?)
            }
        },
        Given::Text(text) => text.clone(),
    };
    number(&text).ok_or_else(|| {
        Fault::value(format!(
            "a signal is a name such as TERM or SIGTERM, or a number from 1 to {SIGNAL_MAX}"
        ))
    })
}

fn number(text: &str) -> Option<i32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = text.parse().ok()?;
        return (1..=SIGNAL_MAX).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let index = NAMES.iter().position(|known| *known == name)?;
    i32::try_from(index + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json::Json;

    #[test]
    fn a_signal_is_told_by_name_or_number() {
        for (text, expected) in [
            ("\"TERM\"", Some(15)),
            ("\"SIGTERM\"", Some(15)),
            ("\"sigkill\"", Some(9)),
            ("\"15\"", Some(15)),
            ("15", Some(15)),
            ("\"HUP\"", Some(1)),
            ("\"SYS\"", Some(31)),
            ("\"WINCH\"", Some(28)),
            ("64", Some(64)),
            ("0", None),
            ("65", None),
            ("-9", None),
            ("1.5", None),
            ("\"\"", None),
            ("\"SIG\"", None),
            ("\"SIGSIGTERM\"", None),
            ("\"NOPE\"", None),
            ("\"99999999999999999999\"", None),
            ("null", None),
            ("true", None),
            ("[]", None),
        ] {
            let given = Given::Json(Json::check(text).unwrap());
            assert_eq!(signal(&given).ok(), expected, "{text}");
        }
    }
}
