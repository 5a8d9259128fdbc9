//! Reads JSON where it lies: checks the whole text once and copies only what is asked for.
//!
//! A body of 16 MiB costs no more memory than itself, whatever it holds. The
//! dialect is that of Python's `json`, which the contract's clients know from its
//! error texts: `NaN` and infinities are numbers, the last of equal keys wins.

use std::borrow::Cow;

use serde_json::Value;

use crate::api::room::capacity;

/// Arrays and objects within one another.
pub(super) const DEPTH_MAX: usize = 128;
/// Bytes of an offending value that an error reply shows whole.
pub(super) const ECHO_BYTES_MAX: usize = 4096;
/// Characters shown of a longer one.
const ECHO_CHARS_MAX: usize = 200;

/// A value whose syntax was checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<'a>(&'a str);

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Null,
    Bool(bool),
    /// The digits as written, or `NaN`, `Infinity`, `-Infinity`.
    Number(&'a str),
    Text,
    Array,
    Object,
}

/// Says where a text stops being JSON, in the words of Python's `json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// Characters before the fault.
    pub(super) at_chars: usize,
    /// What was expected there.
    pub(super) error: &'static str,
}

/// A text with half a surrogate pair, which no string of ours can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoneSurrogate;

impl<'a> Json<'a> {
    /// Checks that a text is one JSON value and nothing else.
    pub(super) fn check(text: &'a str) -> Result<Self, SyntaxError> {
        let mut scanner = Scanner::new(text);
        scanner.skip_space();
        let begin = scanner.at;
        let checked = scanner.skip_value().and_then(|()| {
            let end = scanner.at;
            scanner.skip_space();
            match scanner.peek() {
                None => Ok(Self(text.get(begin..end).unwrap_or_default())),
                Some(_) => Err(scanner.fault("Extra data")),
            }
        });
        checked.map_err(|fault| SyntaxError {
            at_chars: text
                .get(..fault.at)
                .map_or(0, |before| before.chars().count()),
            error: fault.error,
        })
    }

    /// Tells what the value is.
    pub(super) fn kind(self) -> Kind<'a> {
        match self.0.as_bytes().first() {
            Some(b'n') => Kind::Null,
            Some(b't') => Kind::Bool(true),
            Some(b'f') => Kind::Bool(false),
            Some(b'"') => Kind::Text,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            Some(_) | None => Kind::Number(self.0),
        }
    }

    /// Returns the text of a string; copies it only where it holds escapes.
    pub(super) fn text(self) -> Option<Result<Cow<'a, str>, LoneSurrogate>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        Some(unescape(inner))
    }

    /// Looks up members of an object by name in one pass; the last of equal keys wins.
    ///
    /// Everything that is not an object has no members.
    pub(super) fn members<const N: usize>(self, names: [&str; N]) -> [Option<Self>; N] {
        let mut found = [None; N];
        for (key, value) in self.entries() {
            let named = names.iter().zip(found.iter_mut());
            for (_, slot) in named.filter(|(name, _)| **name == key) {
                *slot = Some(value);
            }
        }
        found
    }

    /// Walks over the items of an array; everything else has none.
    pub(super) fn items(self) -> impl Iterator<Item = Self> {
        let mut scanner = self.walk(Kind::Array);
        std::iter::from_fn(move || scanner.next_item())
    }

    /// Walks over the members of an object, equal keys included; everything else has none.
    pub(super) fn entries(self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        let mut scanner = self.walk(Kind::Object);
        std::iter::from_fn(move || scanner.next_member())
    }

    /// Stands behind the bracket of a value of this kind, or before nothing.
    fn walk(self, kind: Kind<'_>) -> Scanner<'a> {
        let mut scanner = Scanner::new(if self.kind() == kind { self.0 } else { "" });
        scanner.at = scanner.text.len().min(1);
        scanner
    }

    /// Returns the value for an error reply, cut where it is long.
    pub(super) fn echo(self) -> Value {
        if self.0.len() <= ECHO_BYTES_MAX
            && let Ok(value) = serde_json::from_str(self.0)
        {
            return value;
        }
        echo_text(self.0)
    }
}

/// Returns a text for an error reply, cut where it is long.
pub(super) fn echo_text(text: &str) -> Value {
    if text.len() <= ECHO_BYTES_MAX {
        return Value::String(text.to_owned());
    }
    Value::String(text.chars().take(ECHO_CHARS_MAX).chain(['…']).collect())
}

/// Undoes the escapes of a checked string without its quotes.
fn unescape(inner: &str) -> Result<Cow<'_, str>, LoneSurrogate> {
    let Some(first) = inner.find('\\') else {
        return Ok(Cow::Borrowed(inner));
    };
    let (plain, escaped) = inner.split_at(first);
    let mut text = String::with_capacity(capacity(inner.len()));
    text.push_str(plain);
    let mut rest = escaped.chars();
    while let Some(c) = rest.next() {
        text.push(match c {
            '\\' => match rest.next().unwrap_or('\\') {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => code_point(&mut rest)?,
                other => other,
            },
            other => other,
        });
    }
    Ok(Cow::Owned(text))
}

/// Reads what follows `\u`, the second half of a pair included.
fn code_point(rest: &mut std::str::Chars<'_>) -> Result<char, LoneSurrogate> {
    let unit = code_unit(rest);
    if !(0xD800..0xDC00).contains(&unit) {
        return char::from_u32(unit).ok_or(LoneSurrogate);
    }
    if rest.next() != Some('\\') || rest.next() != Some('u') {
        return Err(LoneSurrogate);
    }
    let low = code_unit(rest);
    if !(0xDC00..0xE000).contains(&low) {
        return Err(LoneSurrogate);
    }
    char::from_u32(0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00)).ok_or(LoneSurrogate)
}

fn code_unit(rest: &mut std::str::Chars<'_>) -> u32 {
    rest.take(4)
        .filter_map(|digit| digit.to_digit(16))
        .fold(0, |unit, digit| unit << 4 | digit)
}

/// A fault at a byte offset; offsets of characters are counted only when told.
struct Fault {
    at: usize,
    error: &'static str,
}

#[derive(Clone, Copy)]
enum Within {
    Array,
    Object,
}

/// Walks over a text byte by byte; it stops only between characters.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn fault(&self, error: &'static str) -> Fault {
        Fault { at: self.at, error }
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let eaten = self.peek() == Some(byte);
        self.at += usize::from(eaten);
        eaten
    }

    fn skip_while(&mut self, wanted: fn(u8) -> bool) {
        let rest = self.rest();
        self.at += rest
            .iter()
            .position(|byte| !wanted(*byte))
            .unwrap_or(rest.len());
    }

    fn skip_space(&mut self) {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    /// Passes one value of any depth, without recursion.
    fn skip_value(&mut self) -> Result<(), Fault> {
        let mut stack = Vec::new();
        loop {
            if self.open(&mut stack)? {
                continue;
            }
            loop {
                let Some(within) = stack.last().copied() else {
                    return Ok(());
                };
                self.skip_space();
                let close = match within {
                    Within::Array => b']',
                    Within::Object => b'}',
                };
                if self.eat(close) {
                    stack.pop();
                } else if self.eat(b',') {
                    self.skip_space();
                    if let Within::Object = within {
                        self.skip_key()?;
                    }
                    break;
                } else {
                    return Err(self.fault("Expecting ',' delimiter"));
                }
            }
        }
    }

    /// Passes the head of a value; tells whether a value within it comes next.
    fn open(&mut self, stack: &mut Vec<Within>) -> Result<bool, Fault> {
        let within = match self.peek() {
            Some(b'[') => Within::Array,
            Some(b'{') => Within::Object,
            _ => return self.skip_scalar().map(|()| false),
        };
        if stack.len() == DEPTH_MAX {
            return Err(self.fault("Too many arrays or objects within one another"));
        }
        self.at += 1;
        self.skip_space();
        match within {
            Within::Array if self.eat(b']') => Ok(false),
            Within::Object if self.eat(b'}') => Ok(false),
            Within::Array => {
                stack.push(within);
                Ok(true)
            }
            Within::Object => {
                stack.push(within);
                self.skip_key().map(|()| true)
            }
        }
    }

    /// Passes a key, its colon and the space behind.
    fn skip_key(&mut self) -> Result<(), Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.fault("Expecting property name enclosed in double quotes"));
        }
        self.skip_string()?;
        self.skip_space();
        if !self.eat(b':') {
            return Err(self.fault("Expecting ':' delimiter"));
        }
        self.skip_space();
        Ok(())
    }

    fn skip_scalar(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'"') {
            return self.skip_string();
        }
        let rest = self.rest();
        for literal in ["null", "true", "false", "NaN", "Infinity", "-Infinity"] {
            if rest.starts_with(literal.as_bytes()) {
                self.at += literal.len();
                return Ok(());
            }
        }
        self.skip_number()
    }

    fn skip_number(&mut self) -> Result<(), Fault> {
        let begin = self.at;
        self.eat(b'-');
        if !self.eat(b'0') && !self.skip_digits() {
            self.at = begin;
            return Err(self.fault("Expecting value"));
        }
        // As in Python, a point or an exponent without digits ends the number before it.
        let whole = self.at;
        if !self.eat(b'.') || !self.skip_digits() {
            self.at = whole;
        }
        let mantissa = self.at;
        if self.eat(b'e') || self.eat(b'E') {
            let _signed = self.eat(b'+') || self.eat(b'-');
            if !self.skip_digits() {
                self.at = mantissa;
            }
        }
        Ok(())
    }

    fn skip_digits(&mut self) -> bool {
        let begin = self.at;
        self.skip_while(|byte| byte.is_ascii_digit());
        begin < self.at
    }

    fn skip_string(&mut self) -> Result<(), Fault> {
        let unterminated = self.fault("Unterminated string starting at");
        self.at += 1;
        loop {
            self.skip_while(|byte| 0x20 <= byte && byte != b'"' && byte != b'\\');
            match self.peek() {
                None => return Err(unterminated),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.skip_escape(&unterminated)?,
                Some(_) => return Err(self.fault("Invalid control character at")),
            }
        }
    }

    fn skip_escape(&mut self, unterminated: &Fault) -> Result<(), Fault> {
        match self.rest().get(1) {
            None => Err(Fault {
                at: unterminated.at,
                error: unterminated.error,
            }),
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => {
                let digits = self.rest().get(2..6).unwrap_or_default();
                if digits.len() == 4 && digits.iter().all(u8::is_ascii_hexdigit) {
                    self.at += 6;
                    return Ok(());
                }
                self.at += 1;
                Err(self.fault("Invalid \\uXXXX escape"))
            }
            Some(_) => Err(self.fault("Invalid \\escape")),
        }
    }

    /// Passes one item of a checked array, from behind the bracket or the last item.
    fn next_item(&mut self) -> Option<Json<'a>> {
        self.skip_space();
        self.eat(b',');
        self.skip_space();
        let begin = self.at;
        if matches!(self.peek(), None | Some(b']')) {
            return None;
        }
        self.skip_value().ok()?;
        Some(Json(self.text.get(begin..self.at)?))
    }

    /// Passes one member of a checked object, from behind the brace or the last member.
    fn next_member(&mut self) -> Option<(Cow<'a, str>, Json<'a>)> {
        self.skip_space();
        self.eat(b',');
        self.skip_space();
        let key_at = self.at;
        if self.peek() != Some(b'"') {
            return None;
        }
        self.skip_string().ok()?;
        let key = Json(self.text.get(key_at..self.at)?);
        self.at = key_at;
        self.skip_key().ok()?;
        let value_at = self.at;
        self.skip_value().ok()?;
        let value = Json(self.text.get(value_at..self.at)?);
        // A key that is no text of ours is no name of ours either.
        let key = key.text()?.unwrap_or(Cow::Borrowed(""));
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fault(text: &str) -> (usize, &'static str) {
        let fault = Json::check(text).expect_err(text);
        (fault.at_chars, fault.error)
    }

    #[test]
    fn a_syntax_error_has_pythons_words_and_counts_characters() {
        let name = "Expecting property name enclosed in double quotes";
        for (text, at, error) in [
            ("{bad", 1, name),
            ("{", 1, name),
            (r#"{"a":1,}"#, 7, name),
            (r#"{"a" 1}"#, 5, "Expecting ':' delimiter"),
            (r#"{"a":}"#, 5, "Expecting value"),
            (r#"{"ä":1 2}"#, 7, "Expecting ',' delimiter"),
            ("  ", 2, "Expecting value"),
            ("[1,", 3, "Expecting value"),
            ("nul", 0, "Expecting value"),
            ("-", 0, "Expecting value"),
            ("01", 1, "Extra data"),
            ("1.", 1, "Extra data"),
            ("{} x", 3, "Extra data"),
            (r#"{"é":"x"#, 5, "Unterminated string starting at"),
            (r#""\"#, 0, "Unterminated string starting at"),
            ("\"a\nb\"", 2, "Invalid control character at"),
            (r#""a\x""#, 2, "Invalid \\escape"),
            (r#""\u12""#, 2, "Invalid \\uXXXX escape"),
        ] {
            assert_eq!(fault(text), (at, error), "{text}");
        }
    }

    #[test]
    fn the_last_of_equal_keys_wins_and_other_members_cost_nothing() {
        let text = r#" {"a":1,"x":[{"a":9},{}],"\u0061" : "z\n" ,"b":null} "#;
        let [a, b, c] = Json::check(text).unwrap().members(["a", "b", "c"]);
        assert_eq!(a.unwrap().text().unwrap().unwrap(), "z\n");
        assert_eq!(b.unwrap().kind(), Kind::Null);
        assert!(c.is_none());
    }

    #[test]
    fn items_and_members_are_walked_over_in_their_order() {
        let texts = |text| {
            let items = Json::check(text).unwrap().items();
            items.map(|item| item.0.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(r#"[ 1 , "a,]" ,[2,3], {"b":[]} ]"#),
            ["1", r#""a,]""#, "[2,3]", r#"{"b":[]}"#]
        );
        for none in ["[]", " [ ] ", "{}", "\"[1]\"", "1", "null"] {
            assert!(texts(none).is_empty(), "{none}");
        }
        let object = Json::check(r#"{"a":1,"b":"x","a":2}"#).unwrap();
        let keys: Vec<_> = object.entries().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "b", "a"]);
        assert_eq!(Json::check("[1]").unwrap().entries().count(), 0);
    }

    #[test]
    fn numbers_that_only_python_has_are_tolerated() {
        for text in ["NaN", "Infinity", "-Infinity", "[NaN,1e5,-0.5E-3]"] {
            assert!(Json::check(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded_and_needs_no_stack_of_ours() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::check(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(fault(&nested(DEPTH_MAX + 1)).0, DEPTH_MAX);
        assert_eq!(fault(&nested(1 << 20)).0, DEPTH_MAX);
    }

    #[test]
    fn half_a_surrogate_pair_is_no_text() {
        let text = |text| Json::check(text).unwrap().text().unwrap();
        assert_eq!(text(r#""\ud83d\ude00""#).unwrap(), "😀");
        for lone in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83d\u0041""#] {
            assert_eq!(text(lone), Err(LoneSurrogate), "{lone}");
        }
    }

    #[test]
    fn a_long_value_is_shown_cut() {
        let long = format!("\"{}\"", "x".repeat(ECHO_BYTES_MAX));
        let shown = Json::check(&long).unwrap().echo();
        assert_eq!(shown.as_str().unwrap().chars().count(), ECHO_CHARS_MAX + 1);
        assert_eq!(
            Json::check("{\"a\":[1]}").unwrap().echo(),
            json!({"a": [1]})
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in r#"[\[\]{}",:\\u0-9a-f .eE+\-\ntrulsnäN😀]{0,40}"#) {
            if let Ok(json) = Json::check(&text) {
                let _values = (json.echo(), json.text(), json.members(["a", ""]), json.items().count());
            }
        }

        #[test]
        fn what_serde_reads_is_read_here_as_well(text in r#"[\[\]{}",:\\u0-9a-f .eE+\-ntruls]{0,24}"#) {
            if serde_json::from_str::<Value>(&text).is_ok() {
                prop_assert!(Json::check(&text).is_ok());
            }
        }
    }
}
