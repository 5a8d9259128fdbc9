//! Reads regular expressions, and bounds what one of them can cost.
//!
//! A match takes time linear in the text, but each byte may cost as much as the expression
//! is large: `a[ab]{8000}c` costs thousands of steps a byte. So the heavier an expression
//! is, the less text it gets at once, and the deadline is looked at in between.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use super::start::SearchError;

/// A longer expression is refused.
pub const EXPRESSION_BYTES_MAX: usize = 4_096;
/// An expression whose program would be larger is refused.
const PROGRAM_BYTES_MAX: usize = 1 << 20;
/// What a search may remember of a program's states.
const STATES_BYTES_MAX: usize = 8 << 20;
/// Parentheses deeper in one another are refused.
const NEST_MAX: u32 = 100;

/// A line for a light expression may have so many bytes.
const LINE_BYTES_MAX: usize = 1 << 20;
/// A line for the heaviest one may have so many.
const LINE_BYTES_MIN: usize = 4 << 10;
/// Bytes that are matched at once, times the weight of the expression: below a second.
const STEPS_MAX: usize = 64 << 20;

/// A regular expression for lines, in the syntax of Rust's `regex` crate.
#[derive(Clone, Debug)]
pub struct Expression {
    matcher: RegexMatcher,
    line_bytes_max: usize,
}

impl Expression {
    /// Reads an expression. It matches within a line, so it can hold no line end.
    pub fn parse(text: &str) -> Result<Self, SearchError> {
        let refused = |text: String| SearchError::Expression(text);
        if EXPRESSION_BYTES_MAX < text.len() {
            let longest = format!("it is longer than {EXPRESSION_BYTES_MAX} bytes");
            return Err(refused(longest));
        }
        let matcher = RegexMatcherBuilder::new()
            .multi_line(true)
            .line_terminator(Some(b'\n'))
            .size_limit(PROGRAM_BYTES_MAX)
            .dfa_size_limit(STATES_BYTES_MAX)
            .nest_limit(NEST_MAX)
            .build(text)
            .map_err(|error| refused(error.to_string()))?;
        let parsed = ParserBuilder::new()
            .utf8(false)
            .multi_line(true)
            .nest_limit(NEST_MAX)
            .build()
            .parse(text)
            .map_err(|error| refused(error.to_string()))?;
        let share = STEPS_MAX / weight(&parsed).max(1);
        Ok(Self {
            matcher,
            line_bytes_max: share.clamp(LINE_BYTES_MIN, LINE_BYTES_MAX),
        })
    }

    /// Returns how long a line may be that is held against this expression.
    pub fn line_bytes_max(&self) -> usize {
        self.line_bytes_max
    }

    pub(super) fn matcher(&self) -> &RegexMatcher {
        &self.matcher
    }
}

/// Says how many places of an expression a match can be at, at the same time.
fn weight(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1));
            let times = usize::try_from(times).unwrap_or(usize::MAX);
            weight(&repetition.sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => weight(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            let weights = parts.iter().map(weight);
            weights.fold(0, usize::saturating_add)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heavier_an_expression_the_shorter_its_lines() {
        let line_bytes = |text: &str| Expression::parse(text).unwrap().line_bytes_max();
        for light in ["needle", r"\w+\s+\w+", r"^\s*(pub )?fn [a-z_]{1,40}\(", ""] {
            assert_eq!(line_bytes(light), LINE_BYTES_MAX, "{light}");
        }
        assert_eq!(line_bytes("(?-u)a[ab]{1022}c"), 64 << 10);
        assert_eq!(line_bytes("(?-u)(a[ab]{800}c){10}"), STEPS_MAX / 8_020);
        assert_eq!(
            line_bytes("(?-u)([ab]{100}|(c{5}){60}){2}"),
            STEPS_MAX / 800
        );
    }
}
