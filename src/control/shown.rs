//! Shows what was run, as an event has it.

/// Characters of an event's target; what is longer is cut and ends in `…`.
const TARGET_CHARS_MAX: usize = 200;

/// Joins a program and its arguments as one would type them, as Python's `shlex.join` does.
pub(super) fn joined(argv: &[String]) -> String {
    let quoted: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    quoted.join(" ")
}

/// Cuts a target to what an event shows.
pub(super) fn shortened(target: &str) -> String {
    match target.char_indices().nth(TARGET_CHARS_MAX) {
        None => target.to_owned(),
        Some((end, _)) => {
            let mut cut = target.get(..end).unwrap_or(target).to_owned();
            cut.push('…');
            cut
        }
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if word.is_empty() {
        "''".to_owned()
    } else if word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r#"'"'"'"#))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_python_quotes_them() {
        // What `shlex.join` gave for each list.
        let cases: [(&[&str], &str); 8] = [
            (&["sh", "-c", "exit 3"], "sh -c 'exit 3'"),
            (&["ls", "a_B9@%+=:,./-"], "ls a_B9@%+=:,./-"),
            (&[""], "''"),
            (&["it's"], r#"'it'"'"'s'"#),
            (&["'"], r#"''"'"''"#),
            (&["a\nb", "c\td"], "'a\nb' 'c\td'"),
            (&["é", "~", "*"], "'é' '~' '*'"),
            (&["a\"b", "$x", "back\\slash"], "'a\"b' '$x' 'back\\slash'"),
        ];
        for (argv, expected) in cases {
            let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(joined(&argv), expected);
        }
        assert_eq!(joined(&[]), "");
    }

    #[test]
    fn a_long_target_is_cut_at_200_characters_whatever_their_bytes() {
        assert_eq!(shortened(&"x".repeat(200)).chars().count(), 200);
        let cut = shortened(&"é".repeat(500));
        assert_eq!(cut.chars().count(), 201);
        assert!(cut.ends_with('…'));
    }
}
