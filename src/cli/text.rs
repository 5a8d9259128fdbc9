//! Writes values for people: without control characters, in round units, quoted.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use crate::wire::visible::is_hidden;

/// Escapes whatever could move a terminal's cursor or hide what a line says.
///
/// Those are the C0 and C1 controls with line breaks, tabs and ESC among them,
/// marks that turn the direction of writing, and characters without width.
/// Printing the result leaves one line on the screen, read as it is written.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let code = u32::from(c);
        let written = if !is_hidden(c) {
            shown.push(c);
            Ok(())
        } else if code <= 0xff {
            write!(shown, "\\x{code:02x}")
        } else {
            write!(shown, "\\u{{{code:x}}}")
        };
        written.expect("a String takes everything");
    }
    Cow::Owned(shown)
}

/// Writes a span in its largest whole unit, as `45s`, `3m`, `2h` or `5d`.
pub(super) fn span(secs: f64) -> String {
    let secs = Duration::try_from_secs_f64(secs).map_or(0, |span| span.as_secs());
    match secs {
        0..=59 => format!("{secs}s"),
        60..=3_599 => format!("{}m", secs / 60),
        3_600..=172_799 => format!("{}h", secs / 3_600),
        _ => format!("{}d", secs / 86_400),
    }
}

/// Writes bytes in powers of 1,024 with one decimal, as `12.3MiB`.
/// Reads a span of time as people write it: a whole number and `s`, `m`, `h` or `d`.
pub(super) fn read_span(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no span of time such as 90s, 10m, 2h or 1d");
    let unit = text.chars().last().ok_or_else(bad)?;
    let secs = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(bad()),
    };
    let count = text.strip_suffix(unit).and_then(|count| count.parse().ok());
    let count: u64 = count.ok_or_else(bad)?;
    count
        .checked_mul(secs)
        .map(Duration::from_secs)
        .ok_or_else(bad)
}

pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if 1 << shift <= bytes {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes}B")
}

/// Writes an instant in UTC to the millisecond, or the bare number where it is
/// beyond all calendars.
pub(super) fn instant(epoch_secs: f64) -> String {
    Duration::try_from_secs_f64(epoch_secs)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
        .map_or_else(|| epoch_secs.to_string(), |at| format!("{at:.3}"))
}

/// Makes the text for the shell that runs `arguments`.
///
/// One argument is taken as such a text already. Several are a program with its
/// arguments, quoted so that the shell passes them on as they are.
pub(super) fn shell(arguments: &[String]) -> String {
    match arguments {
        [text] => text.clone(),
        arguments => arguments
            .iter()
            .map(|argument| quoted(argument))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

fn quoted(argument: &str) -> Cow<'_, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./,:@%+".contains(&b);
    if !argument.is_empty() && argument.bytes().all(plain) {
        Cow::Borrowed(argument)
    } else {
        Cow::Owned(format!("'{}'", argument.replace('\'', r"'\''")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_sequences_and_direction_marks_are_shown_not_obeyed() {
        for (text, shown) in [
            ("plain – é 漢", "plain – é 漢"),
            ("\x1b[2Jgone", "\\x1b[2Jgone"),
            ("a\nb\tc\r", "a\\x0ab\\x09c\\x0d"),
            ("\u{9b}31m\x7f", "\\x9b31m\\x7f"),
            ("abc\u{202e}txt.exe\u{2066}", "abc\\u{202e}txt.exe\\u{2066}"),
            ("line\u{2028}break\u{200b}", "line\\u{2028}break\\u{200b}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn spans_bytes_and_instants_are_short() {
        let spans = [
            -1.0,
            f64::NAN,
            0.9,
            59.9,
            60.0,
            7_199.0,
            172_799.0,
            172_800.0,
            1e300,
        ];
        assert_eq!(
            spans.map(span),
            ["0s", "0s", "0s", "59s", "1m", "1h", "47h", "2d", "0s"]
        );
        let sizes = [0, 1_023, 1_024, 1_536, 12_897_484, 1 << 40, u64::MAX];
        assert_eq!(
            sizes.map(bytes),
            [
                "0B",
                "1023B",
                "1.0KiB",
                "1.5KiB",
                "12.2MiB",
                "1.0TiB",
                "16777215.9TiB"
            ]
        );
        assert_eq!(instant(1_600_000_000.25), "2020-09-13T12:26:40.250Z");
        assert_eq!(instant(1e17), "100000000000000000");
    }

    #[test]
    fn one_argument_is_shell_text_and_several_are_a_program() {
        let text_of = |arguments: &[&str]| {
            shell(
                &arguments
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(text_of(&["echo $HOME | wc"]), "echo $HOME | wc");
        assert_eq!(text_of(&["ls", "-l", "a/b.txt"]), "ls -l a/b.txt");
        assert_eq!(
            text_of(&["echo", "it's", "$HOME", ""]),
            r"echo 'it'\''s' '$HOME' ''"
        );
        assert_eq!(text_of(&["A=1", "~"]), "'A=1' '~'");
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left_and_nothing_visible_is_changed(text in any::<String>()) {
            let shown = visible(&text);
            prop_assert!(!shown.chars().any(is_hidden));
            prop_assert!(!shown.chars().any(char::is_control));
            prop_assert_eq!(visible(&shown), shown.clone());
            let kept: String = text.chars().filter(|c| !is_hidden(*c)).collect();
            if kept == text {
                prop_assert_eq!(shown, kept);
            }
        }

        #[test]
        fn every_control_character_is_escaped(
            head in any::<String>(),
            code in prop_oneof![0u32..0x20, 0x7fu32..0xa0, 0x202au32..0x202f, 0x2066u32..0x206a],
        ) {
            let hidden = char::from_u32(code).unwrap();
            let shown = visible(&format!("{head}{hidden}")).into_owned();
            prop_assert!(!shown.contains(hidden));
            let low = format!("\\x{code:02x}");
            let high = format!("\\u{{{code:x}}}");
            prop_assert!(shown.ends_with(&low) || shown.ends_with(&high));
        }

        // The shell itself is the judge of what its quoting means.
        #[test]
        fn the_shell_gives_a_program_its_arguments_back(
            arguments in prop::collection::vec("[^\0]{0,12}", 2..5),
        ) {
            let mut all = vec!["printf".to_owned(), "%s\u{1}".to_owned()];
            all.extend(arguments.clone());
            let out = std::process::Command::new("sh")
                .args(["-c", &shell(&all)])
                .output()
                .unwrap();
            let expected = arguments.join("\u{1}") + "\u{1}";
            prop_assert_eq!(String::from_utf8(out.stdout).unwrap(), expected);
        }
    }
}
