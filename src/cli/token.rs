//! Finds the token: in a file, on standard input, or in the environment.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

use super::failure::Failure;
use crate::secret::Secret;

/// Bytes of the longest token.
pub(super) const TOKEN_BYTES_MAX: u64 = 4_096;

/// Reads the token from `file`, where `-` is standard input.
pub(super) fn read(file: &Path, stdin: &mut dyn Read) -> Result<Secret, Failure> {
    if file == Path::new("-") {
        let text = bounded(stdin);
        return checked("standard input", text);
    }
    let text = File::open(file).and_then(bounded);
    checked(&file.display().to_string(), text)
}

fn bounded(from: impl Read) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    from.take(TOKEN_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn checked(from: &str, text: io::Result<Zeroizing<String>>) -> Result<Secret, Failure> {
    let refused = |why| Failure::TokenText {
        from: from.to_owned(),
        why,
    };
    let text = text.map_err(|source| Failure::TokenFile {
        from: from.to_owned(),
        source,
    })?;
    if u64::try_from(text.len()).is_ok_and(|length| TOKEN_BYTES_MAX < length) {
        return Err(refused("it is longer than any token"));
    }
    let token = text.trim();
    if token.is_empty() {
        return Err(refused("it is empty"));
    }
    Ok(Secret::new(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_without_the_line_break_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "hunter2\n").unwrap();
        let from_file = read(&path, &mut io::empty()).unwrap();
        let from_stdin = read(Path::new("-"), &mut &b"hunter2\r\n"[..]).unwrap();
        assert_eq!(
            (from_file.expose(), from_stdin.expose()),
            ("hunter2", "hunter2")
        );
    }

    #[test]
    fn a_file_without_a_token_is_named_and_its_text_is_not_shown() {
        let long = "hunter2".repeat(1_000);
        for text in [" \n", "", &long] {
            let error = read(Path::new("-"), &mut text.as_bytes()).unwrap_err();
            assert!(matches!(&error, Failure::TokenText { from, .. } if from == "standard input"));
            assert!(!format!("{error} {error:?}").contains("hunter"));
        }
        let error = read(Path::new("/nonexistent/token"), &mut io::empty()).unwrap_err();
        assert!(error.sentence().unwrap().contains("/nonexistent/token"));
    }
}
