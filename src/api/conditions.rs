//! Judges what the headers of a request expect of a file: its tag, and a range of it.
//!
//! Conditions are by entity tags. What is no list of tags is never met, so a header that
//! cannot be read keeps a file from being replaced, and not the other way round.

use std::ops::Range;

use axum::http::HeaderMap;
use axum::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE};

use crate::control::files::FileFacts;
use crate::control::files::refusal::FileRefusal;
use crate::workspace::Expected;

/// Tags that one header may name.
const TAGS_MAX: usize = 64;

/// What is sent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All of it.
    Whole,
    /// These bytes, which are in it.
    Part(Range<u64>),
    /// Nothing: the caller has it.
    NotModified,
    /// Nothing: it is not the one that the caller expects.
    Failed,
    /// Nothing: no byte of the range is in it.
    OutOfRange,
}

/// The tags of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    /// Those of every file.
    Any,
    /// These, each with whether it is a weak one.
    These(Vec<(bool, String)>),
    /// The header cannot be read.
    Broken,
}

impl Tags {
    fn of(headers: &HeaderMap, name: &HeaderName) -> Option<Self> {
        let mut these = Vec::new();
        for value in headers.get_all(name) {
            let Ok(text) = value.to_str() else {
                return Some(Self::Broken);
            };
            if text.trim() == "*" {
                return Some(Self::Any);
            }
            for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
                let weak = tag.strip_prefix("W/");
                let opaque = weak.unwrap_or(tag);
                let quoted = opaque
                    .strip_prefix('"')
                    .and_then(|tag| tag.strip_suffix('"'));
                match quoted {
                    Some(opaque) if these.len() < TAGS_MAX && !opaque.contains('"') => {
                        these.push((weak.is_some(), opaque.to_owned()));
                    }
                    Some(_) | None => return Some(Self::Broken),
                }
            }
        }
        headers.contains_key(name).then_some(Self::These(these))
    }

    /// Whether one of them is the tag, where only strong ones are told apart.
    fn match_strongly(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|(weak, tag)| !weak && tag == etag),
            Self::Broken => false,
        }
    }

    /// Whether one of them is the tag, weak or not.
    fn match_weakly(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|(_, tag)| tag == etag),
            Self::Broken => false,
        }
    }
}

/// Says what a reader gets of a file.
pub(super) fn judge(headers: &HeaderMap, file: &FileFacts) -> Verdict {
    if Tags::of(headers, &IF_MATCH).is_some_and(|tags| !tags.match_strongly(&file.etag)) {
        return Verdict::Failed;
    }
    if Tags::of(headers, &IF_NONE_MATCH).is_some_and(|tags| tags.match_weakly(&file.etag)) {
        return Verdict::NotModified;
    }
    // A date would tell seconds apart, which is not enough to put two halves together.
    if Tags::of(headers, &IF_RANGE).is_some_and(|tags| !tags.match_strongly(&file.etag)) {
        return Verdict::Whole;
    }
    range(headers, file.bytes)
}

/// Says what a writer expects of a file.
///
/// # Errors
/// No file could meet it.
pub(super) fn expected(headers: &HeaderMap, path: &str) -> Result<Expected, FileRefusal> {
    let never = || FileRefusal::Condition(path.to_owned());
    // A weak tag says nothing of the bytes, and those are what is replaced.
    let strong = |tags: Vec<(bool, String)>| {
        let strong = tags.into_iter().filter(|(weak, _)| !weak);
        strong.map(|(_, tag)| tag).collect::<Vec<String>>()
    };
    match (
        Tags::of(headers, &IF_MATCH),
        Tags::of(headers, &IF_NONE_MATCH),
    ) {
        (None, None) => Ok(Expected::Anything),
        (Some(Tags::Any), None) => Ok(Expected::Something),
        (Some(Tags::These(tags)), None) => Ok(Expected::OneOf(strong(tags))),
        (None, Some(Tags::Any)) => Ok(Expected::Nothing),
        (None, Some(Tags::These(tags))) => {
            let tags = tags.into_iter().map(|(_, tag)| tag).collect();
            Ok(Expected::NoneOf(tags))
        }
        (Some(Tags::These(tags)), Some(Tags::These(others))) => {
            let mut tags = strong(tags);
            tags.retain(|tag| others.iter().all(|(_, other)| other != tag));
            Ok(Expected::OneOf(tags))
        }
        (Some(Tags::Any), Some(Tags::These(_)))
        | (Some(_), Some(Tags::Any | Tags::Broken))
        | (Some(Tags::Broken), _)
        | (None, Some(Tags::Broken)) => Err(never()),
    }
}

/// Reads which bytes are wanted; of several ranges, or of none that is one, all are.
fn range(headers: &HeaderMap, bytes: u64) -> Verdict {
    let mut values = headers.get_all(RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Verdict::Whole;
    };
    let spec = value.to_str().ok().and_then(|text| text.split_once('='));
    let Some((first, last)) = spec
        .filter(|(unit, _)| unit.trim().eq_ignore_ascii_case("bytes"))
        .and_then(|(_, spec)| spec.trim().split_once('-'))
    else {
        return Verdict::Whole;
    };
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(bytes),
        (Some(first), None) if last.is_empty() => first..bytes,
        (None, Some(wanted)) if first.is_empty() => bytes.saturating_sub(wanted)..bytes,
        (Some(_) | None, Some(_) | None) => return Verdict::Whole,
    };
    if range.is_empty() {
        Verdict::OutOfRange
    } else {
        Verdict::Part(range)
    }
}

/// Reads digits; a number that is too large is the largest.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(given: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(name.clone(), value.parse().unwrap());
        }
        headers
    }

    fn told(given: &[(HeaderName, &str)]) -> Verdict {
        let file = FileFacts {
            bytes: 10,
            etag: "a-1".to_owned(),
            modified_secs: None,
        };
        judge(&headers(given), &file)
    }

    #[test]
    fn one_range_is_sent_as_far_as_it_is_in_the_file() {
        let part = |range| Verdict::Part(range);
        for (asked, expected) in [
            ("bytes=0-3", part(0..4)),
            ("bytes=9-9", part(9..10)),
            ("Bytes= 2-", part(2..10)),
            ("bytes=5-99999999999999999999999", part(5..10)),
            ("bytes=-3", part(7..10)),
            ("bytes=-11", part(0..10)),
            ("bytes=10-", Verdict::OutOfRange),
            ("bytes=99999999999999999999999-", Verdict::OutOfRange),
            ("bytes=-0", Verdict::OutOfRange),
            ("bytes=3-1", Verdict::Whole),
            ("bytes=0-1,4-5", Verdict::Whole),
            ("bytes=-", Verdict::Whole),
            ("bytes=+1-2", Verdict::Whole),
            ("lines=0-1", Verdict::Whole),
            ("bytes", Verdict::Whole),
        ] {
            assert_eq!(told(&[(RANGE, asked)]), expected, "{asked}");
        }
        assert_eq!(
            told(&[(RANGE, "bytes=0-1"), (RANGE, "bytes=2-3")]),
            Verdict::Whole
        );
    }

    #[test]
    fn conditions_are_judged_in_the_order_of_the_protocol() {
        let part = Verdict::Part(0..2);
        for (given, expected) in [
            (&[(IF_MATCH, r#""a-1""#)][..], Verdict::Whole),
            (&[(IF_MATCH, r#""x", "a-1""#)], Verdict::Whole),
            (&[(IF_MATCH, "*")], Verdict::Whole),
            (&[(IF_MATCH, r#"W/"a-1""#)], Verdict::Failed),
            (&[(IF_MATCH, "a-1")], Verdict::Failed),
            (
                &[(IF_MATCH, r#""x""#), (IF_NONE_MATCH, r#""a-1""#)],
                Verdict::Failed,
            ),
            (&[(IF_NONE_MATCH, r#"W/"a-1""#)], Verdict::NotModified),
            (
                &[(IF_NONE_MATCH, "*"), (RANGE, "bytes=0-1")],
                Verdict::NotModified,
            ),
            (
                &[(IF_NONE_MATCH, r#""x""#), (RANGE, "bytes=0-1")],
                part.clone(),
            ),
            (
                &[(IF_RANGE, r#""a-1""#), (RANGE, "bytes=0-1")],
                part.clone(),
            ),
            (
                &[(IF_RANGE, r#""x""#), (RANGE, "bytes=99-")],
                Verdict::Whole,
            ),
            (
                &[
                    (IF_RANGE, "Thu, 01 Jan 1970 00:00:01 GMT"),
                    (RANGE, "bytes=0-1"),
                ],
                Verdict::Whole,
            ),
        ] {
            assert_eq!(told(given), expected, "{given:?}");
        }
    }

    #[test]
    fn a_writer_that_cannot_be_understood_replaces_nothing() {
        let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
        for (given, expected) in [
            (&[][..], Some(Expected::Anything)),
            (&[(IF_MATCH, "*")], Some(Expected::Something)),
            (&[(IF_NONE_MATCH, "*")], Some(Expected::Nothing)),
            (
                &[(IF_MATCH, r#""a", W/"b""#)],
                Some(Expected::OneOf(tags(&["a"]))),
            ),
            (
                &[(IF_NONE_MATCH, r#"W/"b""#)],
                Some(Expected::NoneOf(tags(&["b"]))),
            ),
            (
                &[(IF_MATCH, r#""a","b""#), (IF_NONE_MATCH, r#""b""#)],
                Some(Expected::OneOf(tags(&["a"]))),
            ),
            (&[(IF_MATCH, "*"), (IF_NONE_MATCH, "*")], None),
            (&[(IF_MATCH, "a")], None),
            (&[(IF_NONE_MATCH, r#""a"#)], None),
        ] {
            assert_eq!(
                super::expected(&headers(given), "f").ok(),
                expected,
                "{given:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_range_leads_out_of_the_file(text in "(bytes=)?[0-9,-]{0,12}", bytes in 0_u64..30) {
            match range(&headers(&[(RANGE, &text)]), bytes) {
                Verdict::Part(range) => prop_assert!(range.start < range.end && range.end <= bytes),
                Verdict::Whole | Verdict::OutOfRange => {}
                Verdict::NotModified | Verdict::Failed => prop_assert!(false),
            }
        }
    }
}
