//! Builds the path and query of a request, percent-encoded throughout.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::Kind;

/// Bytes of the longest path and query that is sent.
const PATH_BYTES_MAX: usize = 8 << 10;

/// What needs no encoding in a segment or a query value: RFC 3986, "unreserved".
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A path with its query.
#[derive(Clone, Debug)]
pub(super) struct Path {
    text: String,
    query: bool,
    flaw: Option<&'static str>,
}

impl Path {
    /// Makes a path of segments, each one encoded whole, slashes included.
    ///
    /// An empty segment and a dot segment would name another resource, since the
    /// engine's router tidies paths: such a path remembers its flaw and is not sent.
    pub(super) fn new(segments: &[&str]) -> Self {
        let mut path = Self {
            text: String::new(),
            query: false,
            flaw: None,
        };
        for segment in segments {
            if segment.is_empty() {
                path.flaw = Some("an empty text");
            }
            if segment.split('/').any(|part| matches!(part, "." | "..")) {
                path.flaw = Some("a text with a dot segment");
            }
            path.text.push('/');
            path.push_encoded(segment);
        }
        path
    }

    /// Adds a query parameter.
    pub(super) fn with(mut self, key: &'static str, value: &str) -> Self {
        self.text.push(if self.query { '&' } else { '?' });
        self.query = true;
        self.text.push_str(key);
        self.text.push('=');
        self.push_encoded(value);
        self
    }

    /// Returns the text to send, or what is wrong with it.
    pub(super) fn text(&self) -> Result<&str, Kind> {
        match self.flaw {
            Some(what) => Err(Kind::Unsendable { what }),
            None if PATH_BYTES_MAX < self.text.len() => Err(Kind::Unsendable {
                what: "a text of that length",
            }),
            None => Ok(&self.text),
        }
    }

    fn push_encoded(&mut self, text: &str) {
        write!(self.text, "{}", utf8_percent_encode(text, ENCODED))
            .expect("writing to a String does not fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_segment_and_value_is_encoded() {
        let path =
            Path::new(&["containers", "a b/c?d", "json"]).with("filters", r#"{"a":["b=c"]}"#);
        assert_eq!(
            path.with("all", "1").text().unwrap(),
            "/containers/a%20b%2Fc%3Fd/json\
             ?filters=%7B%22a%22%3A%5B%22b%3Dc%22%5D%7D&all=1"
        );
    }

    #[test]
    fn a_segment_that_would_name_another_resource_is_not_sent() {
        for bad in [
            "",
            ".",
            "..",
            "../images",
            "a/../../b",
            &"x".repeat(PATH_BYTES_MAX),
        ] {
            let refused = Path::new(&["containers", bad, "json"]);
            assert!(
                matches!(refused.text(), Err(Kind::Unsendable { .. })),
                "{bad}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_that_is_sent_makes_a_uri(text in ".{0,64}") {
            let path = Path::new(&["containers", &text]).with("q", &text);
            if let Ok(sent) = path.text() {
                let uri: hyper::Uri = sent.parse().unwrap();
                assert_eq!(uri.path().matches('/').count(), 2);
            }
        }
    }
}
