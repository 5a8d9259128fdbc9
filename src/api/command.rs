//! Reads what a caller wants to have run and how: the fields that commands, runs and
//! terminals share, and their bounds.

use std::collections::BTreeMap;

use crate::agent::protocol::frame::FRAME_BYTES_MAX;
use crate::api::error::Failure;
use crate::api::validate::{self, Fault, Faults, Field, Form, Given, Length};
use crate::control::request::{COMMAND_BYTES_MAX, Input, Options};

/// Arguments of one program.
const ARGUMENTS_MAX: usize = 65_536;
/// Bytes of one argument, and of a variable with its name: what the kernel takes.
const ARGUMENT_BYTES_MAX: usize = COMMAND_BYTES_MAX;
/// Variables of one command.
const VARIABLES_MAX: usize = 1_000;
/// Bytes of a directory's name: what the kernel takes.
const DIRECTORY_BYTES_MAX: usize = 4_095;
/// Bytes of program, variables and input together.
pub(super) const COMMAND_WHOLE_BYTES_MAX: usize = 512 << 10;
/// Bytes of the same as JSON, which travels to the sandbox in one frame.
const COMMAND_JSON_BYTES_MAX: usize = FRAME_BYTES_MAX - (64 << 10);

const USER_PATTERN: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$";

/// The fields that say how a command is run, as far as they were read.
#[derive(Debug)]
pub(super) struct HowFields<'a> {
    env: Field<'a>,
    cwd: Field<'a>,
    user: Field<'a>,
}

/// Finds the fields that say how a command is run.
pub(super) fn how_fields<'a>(form: &Form<'a>) -> HowFields<'a> {
    let [env, cwd, user] = form.fields(["env", "cwd", "user"]);
    HowFields { env, cwd, user }
}

/// Reads how a command is run, but for its input.
pub(super) fn options<'a>(form: &mut Form<'a>, fields: &HowFields<'a>, stdin: Input) -> Options {
    Options {
        env: form.or_default(&fields.env, variables),
        cwd: form.optional(&fields.cwd, directory),
        user: form.optional(&fields.user, user),
        stdin,
    }
}

/// Reads a program and its arguments; at least the program.
pub(super) fn argv(given: &Given<'_>) -> Result<Vec<String>, Faults> {
    let length = Length {
        least: 1,
        most: ARGUMENTS_MAX,
    };
    validate::texts(given, length, |argument| {
        plain(argument)?;
        fits("an argument", argument.len())
    })
}

/// Reads a text for the shell, which reaches it as one argument.
pub(super) fn shell(given: &Given<'_>) -> Result<String, Fault> {
    let text = validate::text(given)?;
    plain(&text)?;
    fits("an argument", text.len())?;
    Ok(text)
}

fn variables(given: &Given<'_>) -> Result<BTreeMap<String, String>, Faults> {
    validate::text_map(given, VARIABLES_MAX, |name, value| {
        if name.is_empty() || name.contains('=') {
            return Err(Fault::value(
                "the name of a variable is not empty and has no '='",
            ));
        }
        plain(name)?;
        plain(value)?;
        // With the sign between them.
        fits("a variable with its name", name.len() + 1 + value.len())
    })
}

fn directory(given: &Given<'_>) -> Result<String, Fault> {
    let text = validate::text(given)?;
    plain(&text)?;
    if text.is_empty() {
        return Err(Fault::value("the name of a directory is not empty"));
    }
    if DIRECTORY_BYTES_MAX < text.len() {
        return Err(Fault::value(format!(
            "the name of a directory has at most {DIRECTORY_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

/// Reads `name`, `uid`, `name:group` or `uid:gid`.
fn user(given: &Given<'_>) -> Result<String, Fault> {
    let text = validate::text(given)?;
    let is_name = |name: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        name.bytes().next().is_some_and(plain)
            && name.len() <= 64
            && name.bytes().all(|b| plain(b) || matches!(b, b'.' | b'-'))
    };
    let known = match text.split_once(':') {
        Some((user, group)) => is_name(user) && is_name(group),
        None => is_name(&text),
    };
    if known {
        Ok(text)
    } else {
        Err(Fault::pattern(USER_PATTERN))
    }
}

/// Refuses what ends in the middle where the kernel reads it.
fn plain(text: &str) -> Result<(), Fault> {
    if text.contains('\0') {
        Err(Fault::value(
            "a NUL byte cannot be handed to a program in arguments, variables or names",
        ))
    } else {
        Ok(())
    }
}

fn fits(what: &str, bytes: usize) -> Result<(), Fault> {
    if bytes <= ARGUMENT_BYTES_MAX {
        return Ok(());
    }
    Err(Fault::value(format!(
        "{what} has at most {ARGUMENT_BYTES_MAX} bytes, and this one has {bytes}; put it into a file or send it as input"
    )))
}

/// Checks that a program, its variables and its input fit into one request to a sandbox.
pub(super) fn check_size<'a>(
    program: impl IntoIterator<Item = &'a str>,
    options: &'a Options,
) -> Result<(), Failure> {
    let stdin = match &options.stdin {
        Input::Text(text) => Some(text.as_str()),
        Input::Closed | Input::Open => None,
    };
    let env = options.env.iter();
    let env = env.flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    let mut whole = Size::default();
    for text in program.into_iter().chain(env).chain(stdin) {
        whole.add(text);
    }
    if whole.bytes <= COMMAND_WHOLE_BYTES_MAX && whole.json_bytes <= COMMAND_JSON_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::CommandTooLarge {
        bytes: whole.bytes,
        json_bytes: whole.json_bytes,
        json_bytes_max: COMMAND_JSON_BYTES_MAX,
    })
}

/// What texts take, and what they take as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    bytes: usize,
    json_bytes: usize,
}

impl Size {
    fn add(&mut self, text: &str) {
        let escapes: usize = text.bytes().map(escape).sum();
        self.bytes += text.len();
        // Quotes, and what stands between two texts.
        self.json_bytes += text.len() + escapes + 3;
    }
}

/// Bytes that JSON adds to one byte of a text.
fn escape(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        0x20.. => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::json::Json;

    fn told<T: std::fmt::Debug, F: Into<Faults>>(
        text: &str,
        read: impl Fn(&Given<'_>) -> Result<T, F>,
    ) -> Option<String> {
        let body = format!(r#"{{"x":{text}}}"#);
        let mut form = Form::body(Json::check(&body).unwrap()).unwrap();
        let [x] = form.fields(["x"]);
        let _placeholder = form.optional(&x, read);
        match form.finish() {
            Ok(()) => None,
            Err(Failure::Invalid(faults)) => Some(faults[0].msg.clone()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn arguments_are_as_long_as_the_kernel_takes_and_hold_no_zero() {
        let long = |n| format!(r#"["x","{}"]"#, "y".repeat(n));
        assert_eq!(told(&long(ARGUMENT_BYTES_MAX), argv), None);
        let too_long = told(&long(ARGUMENT_BYTES_MAX + 1), argv).unwrap();
        assert!(
            too_long.contains("131071") && too_long.contains("131072"),
            "{too_long}"
        );
        assert!(told(r#"["a\u0000b"]"#, argv).unwrap().contains("NUL"));
        assert_eq!(
            told(r#"[""]"#, argv),
            None,
            "an empty name is not found, and no fault"
        );
        assert!(told(r#""a\u0000""#, shell).unwrap().contains("NUL"));
    }

    #[test]
    fn variables_have_names_and_values_that_a_program_can_be_given() {
        assert_eq!(told(r#"{"A":"","b.c":"x=y"}"#, variables), None);
        for bad in [
            r#"{"":"x"}"#,
            r#"{"A=B":"x"}"#,
            r#"{"A":"\u0000"}"#,
            r#"{"A\u0000":""}"#,
        ] {
            assert!(told(bad, variables).is_some(), "{bad}");
        }
        let many = (0..=VARIABLES_MAX).map(|n| format!(r#""v{n}":"""#));
        let many = format!("{{{}}}", many.collect::<Vec<_>>().join(","));
        assert!(
            told(&many, variables)
                .unwrap()
                .contains("at most 1000 items")
        );
        let long = format!(r#"{{"A":"{}"}}"#, "y".repeat(ARGUMENT_BYTES_MAX - 1));
        assert!(told(&long, variables).unwrap().contains("131071"));
    }

    #[test]
    fn a_directory_is_any_path_and_a_user_is_a_name_or_a_number() {
        for good in [r#""/a b""#, r#""src""#, r#""..""#] {
            assert_eq!(told(good, directory), None, "{good}");
        }
        for bad in ["\"\"", "\"a\\u0000\"", &format!("\"{}\"", "d".repeat(4096))] {
            assert!(told(bad, directory).is_some(), "{bad}");
        }
        for good in ["root", "1000", "www-data:www-data", "0:0", "_x.y"] {
            assert_eq!(told(&format!("\"{good}\""), user), None, "{good}");
        }
        for bad in ["", ":", "a:", ":0", "-1", "a:b:c", "a b", "a\\nb", "é"] {
            assert!(told(&format!("\"{bad}\""), user).is_some(), "{bad}");
        }
    }

    fn size_of(argv: &[&str], stdin: &str) -> Result<(), Failure> {
        let options = Options {
            stdin: Input::Text(stdin.to_owned()),
            ..Options::default()
        };
        check_size(argv.iter().copied(), &options)
    }

    #[test]
    fn a_command_with_its_input_fits_into_one_frame_and_else_is_told_the_remedy() {
        let half = COMMAND_WHOLE_BYTES_MAX;
        assert_eq!(size_of(&["cat"], &"x".repeat(half - 3)), Ok(()));
        let failure = size_of(&["cat"], &"x".repeat(half - 2)).unwrap_err();
        assert_eq!(failure.status(), 413);
        let text = failure.text();
        assert!(text.contains("524289") && text.contains("/stdin"), "{text}");
        // Few bytes, of which each is six as JSON.
        assert!(size_of(&["cat"], &"\u{1}".repeat(half / 2)).is_err());
        // The longest command alone always fits, whatever is in it.
        let longest = "\u{1}".repeat(COMMAND_BYTES_MAX);
        assert_eq!(check_size([longest.as_str()], &Options::default()), Ok(()));
    }

    proptest! {
        #[test]
        fn a_text_takes_as_many_bytes_as_it_is_written_in(text in any::<String>()) {
            let mut size = Size::default();
            size.add(&text);
            let written = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(size.json_bytes, written.len() + 1);
        }
    }
}
