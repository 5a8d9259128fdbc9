//! Writes an error together with what caused it.

use std::error::Error;

/// Writes an error with its causes, each after a colon, as a log or a caller has it.
///
/// An error's own text never prints its source, so nothing is said twice.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("open the door")]
    struct Door(#[source] std::io::Error);

    #[test]
    fn an_error_is_followed_by_its_causes() {
        let door = Door(std::io::Error::other("it is locked"));
        assert_eq!(chain(&door), "open the door: it is locked");
    }
}
