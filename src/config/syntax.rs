//! Parses numbers, truth values and addresses as operators write them.
//!
//! Numbers are spelt as in Python, which the service before this one was written
//! in: white space around them, a sign, and single underscores between digits.

/// Characters of the longest value that an error shows.
const SHOWN_CHARS_MAX: usize = 80;
/// Bytes of the longest path of a unix socket.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Writes a value for an error: quoted, on one line, cut where it is long.
pub fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("'{}{more}'", printable(&shown))
}

/// Escapes what would end a line or move a cursor.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Parses a whole number within a range; says why it is not one.
pub fn whole(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if !is_digits(digits) {
        return Err("it is not a whole number".to_owned());
    }
    let number = trimmed.replace('_', "").parse::<i128>().ok();
    let number = number.and_then(|number| u64::try_from(number).ok());
    number
        .filter(|number| min <= *number && *number <= max)
        .ok_or_else(|| format!("it is not from {min} to {max}"))
}

/// Parses a number that may have a fraction; says why it is not one.
pub fn decimal(text: &str) -> Result<f64, String> {
    let not = || "it is not a number".to_owned();
    let trimmed = text.trim();
    // An underscore stands between two digits and nowhere else.
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let stray = trimmed.match_indices('_').any(|(at, _)| {
        let (before, rest) = trimmed.split_at(at);
        !digit(before.chars().next_back()) || !digit(rest.chars().nth(1))
    });
    if stray {
        return Err(not());
    }
    trimmed.replace('_', "").parse().map_err(|_| not())
}

/// Parses a truth value: `1 true yes on` or `0 false no off`, in either case.
pub fn flag(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Checks the address of a unix socket; says why it is not one.
pub fn socket(text: &str) -> Result<String, String> {
    let Some(path) = text.strip_prefix("unix://") else {
        return Err(if text.starts_with('/') {
            format!("write it as unix://{text}")
        } else {
            "only unix sockets are accepted: workspaces and the engine share one file system"
                .to_owned()
        });
    };
    if !path.starts_with('/') || path.ends_with('/') {
        return Err("the path of the socket is not absolute".to_owned());
    }
    if path.contains('\0') || SOCKET_PATH_BYTES_MAX < path.len() {
        return Err(format!(
            "the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes"
        ));
    }
    Ok(text.to_owned())
}

/// Reads what the engine takes for the id or the name of a container.
pub fn container(text: &str) -> Result<String, String> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if begins && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("it is neither auto nor none, and no id or name of a container".to_owned())
    }
}

/// Says whether a text is digits with single underscores between them.
fn is_digits(text: &str) -> bool {
    text.split('_')
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_spelt_as_in_python() {
        for (text, number) in [
            ("1_000", 1000),
            (" 7 ", 7),
            ("+5", 5),
            ("007", 7),
            ("0", 0),
            ("-0", 0),
            ("1_0_0", 100),
        ] {
            assert_eq!(whole(text, 0, 1000), Ok(number), "{text}");
        }
        for text in [
            "", " ", "1__0", "_1", "1_", "1.5", "2.0", "0x10", "1e3", "- 1", "++1", "١",
        ] {
            let why = whole(text, 0, 1000).unwrap_err();
            assert_eq!(why, "it is not a whole number", "{text}");
        }
        for text in ["-3", "1001", "99999999999999999999999999999999999999999999"] {
            let why = whole(text, 0, 1000).unwrap_err();
            assert_eq!(why, "it is not from 0 to 1000", "{text}");
        }
    }

    #[test]
    fn decimal_numbers_are_spelt_as_in_python() {
        for (text, number) in [
            ("2.0", 2.0),
            (" .5 ", 0.5),
            ("5.", 5.0),
            ("1_000.5", 1000.5),
            ("1e-1", 0.1),
            ("+2", 2.0),
            ("1_0e1_0", 1e11),
        ] {
            assert_eq!(decimal(text), Ok(number), "{text}");
        }
        for text in ["", "a", "1__0", "_1", "1_", "1_.5", "1._5", "1,5", "0x1"] {
            assert!(decimal(text).is_err(), "{text}");
        }
        assert!(
            decimal("nan").unwrap().is_nan(),
            "a number, refused by its range"
        );
    }

    #[test]
    fn truth_has_eight_spellings_in_either_case() {
        for text in ["1", "true", "YES", " On "] {
            assert_eq!(flag(text), Some(true), "{text}");
        }
        for text in ["0", "False", "no", "off"] {
            assert_eq!(flag(text), Some(false), "{text}");
        }
        for text in ["", "2", "t", "y", "enabled"] {
            assert_eq!(flag(text), None, "{text}");
        }
    }

    #[test]
    fn only_unix_sockets_are_engines() {
        assert!(socket("unix:///run/docker.sock").is_ok());
        for (text, said) in [
            ("tcp://10.0.0.1:2375", "only unix sockets"),
            ("ssh://host", "only unix sockets"),
            ("/run/docker.sock", "write it as unix:///run/docker.sock"),
            ("unix://docker.sock", "not absolute"),
            ("unix://", "not absolute"),
            (&format!("unix:///{}", "x".repeat(107)), "at most 107"),
        ] {
            assert!(socket(text).unwrap_err().contains(said), "{text}");
        }
    }

    #[test]
    fn a_shown_value_is_one_short_line() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("a\n\u{1b}[2J"), "'a\\n\\u{1b}[2J'");
        assert_eq!(quoted("würfel"), "'würfel'");
        assert_eq!(quoted(&"x".repeat(500)).chars().count(), 83);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_a_parser(text in ".{0,24}") {
            drop(whole(&text, 0, 9));
            drop(decimal(&text));
            drop(socket(&text));
            drop(quoted(&text));
        }
    }
}
