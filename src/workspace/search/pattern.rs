//! Reads the patterns that name files, as `glob` and the filter of `grep` take them.
//!
//! | written | means |
//! | --- | --- |
//! | `*.py` | a base name, at any depth; hidden ones too |
//! | `src/*.py` | a path below the start; `*` and `?` stop at a slash |
//! | `src/**/*.py` | `**` stands for any number of directories, also none |
//! | `*.{js,ts}`, `[a-c]`, `[!a]`, `\*` | one of several, one of a set, none of it, a star itself |
//!
//! Names are bytes, and `?` or a set stands for one byte, as `find` has it in the C locale.

use globset::{Candidate, GlobBuilder, GlobMatcher};

/// A longer pattern is refused.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// Braces within braces are refused below this depth.
pub const BRACE_DEPTH_MAX: usize = 8;
/// More alternatives in all braces together are refused.
pub const ALTERNATIVES_MAX: usize = 256;

/// A pattern for paths below the start of a search.
#[derive(Clone, Debug)]
pub struct Pattern {
    matcher: GlobMatcher,
    against: Against,
}

/// What of a path a pattern is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    Name,
    Path,
}

/// Why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing is left of it.
    #[error("the pattern is empty")]
    Empty,
    /// It has more bytes than [`PATTERN_BYTES_MAX`].
    #[error("the pattern is longer than {PATTERN_BYTES_MAX} bytes")]
    Long,
    /// Its braces have too many alternatives, or lie too deep in one another.
    #[error(
        "the braces of the pattern have more than {ALTERNATIVES_MAX} alternatives \
         or lie more than {BRACE_DEPTH_MAX} deep"
    )]
    Braces,
    /// It is no pattern.
    #[error("the pattern cannot be read: {0}")]
    Syntax(String),
}

impl Pattern {
    /// Reads a pattern. A leading `/` or `./` means the start of the search.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if PATTERN_BYTES_MAX < text.len() {
            return Err(PatternError::Long);
        }
        let mut pattern = text;
        let mut is_anchored = false;
        while let Some(rest) = pattern
            .strip_prefix("./")
            .or_else(|| pattern.strip_prefix('/'))
        {
            pattern = rest;
            is_anchored = true;
        }
        if pattern.is_empty() {
            return Err(PatternError::Empty);
        }
        check_braces(pattern)?;
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| PatternError::Syntax(error.kind().to_string()))?;
        let against = if is_anchored || pattern.contains('/') || pattern == "**" {
            Against::Path
        } else {
            Against::Name
        };
        Ok(Self {
            matcher: glob.compile_matcher(),
            against,
        })
    }

    /// Returns whether it fits a path below the start of the search.
    pub fn fits(&self, path: &[u8]) -> bool {
        let held = match self.against {
            Against::Path => path,
            Against::Name => {
                let name = path.rsplit(|byte| *byte == b'/').next();
                name.unwrap_or_default()
            }
        };
        let candidate = Candidate::from_bytes(held);
        self.matcher.is_match_candidate(&candidate)
    }
}

fn check_braces(pattern: &str) -> Result<(), PatternError> {
    let (mut depth, mut alternatives) = (0_usize, 0_usize);
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                chars.next();
            }
            '{' => {
                depth += 1;
                alternatives += 1;
            }
            '}' => depth = depth.saturating_sub(1),
            ',' if depth != 0 => alternatives += 1,
            _ => {}
        }
        if BRACE_DEPTH_MAX < depth || ALTERNATIVES_MAX < alternatives {
            return Err(PatternError::Braces);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).unwrap().fits(path.as_bytes())
    }

    #[test]
    fn a_pattern_fits_as_its_table_says() {
        for (pattern, path, expected) in [
            ("*.py", "a.py", true),
            ("*.py", "src/deep/a.py", true),
            ("*.py", "src/.hidden.py", true),
            ("*.py", "a.pyc", false),
            ("*", "any/.thing", true),
            ("**", "any/.thing", true),
            ("**/*.py", "a.py", true),
            ("**/*.py", "x/y/a.py", true),
            ("src/*.py", "src/a.py", true),
            ("src/*.py", "src/x/a.py", false),
            ("src/*.py", "lib/src/a.py", false),
            ("**/src/*.py", "lib/src/a.py", true),
            ("src/**", "src/x/y", true),
            ("src/**", "src", false),
            ("src/**/*.py", "src/a.py", true),
            ("src/**/*.py", "src/x/y/a.py", true),
            ("./src/*.py", "src/a.py", true),
            ("/a.py", "a.py", true),
            ("/a.py", "x/a.py", false),
            ("*.{js,ts}", "x/a.ts", true),
            ("*.{js,ts}", "x/a.tsx", false),
            ("{src,lib}/**/*.rs", "lib/x/y.rs", true),
            ("[a-c]?", "x/bz", true),
            ("[!a-c]?", "x/bz", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("a?b", "a/b", false),
            ("a[/]b", "a/b", false),
            ("a\nb*", "x/a\nb\nc", true),
            ("*b", "a\nb", true),
        ] {
            assert_eq!(fits(pattern, path), expected, "{pattern:?} and {path:?}");
        }
        let bytes = Pattern::parse("a*z").unwrap();
        assert!(bytes.fits(b"dir\xff/a\xfe\xffz"));
        assert!(Pattern::parse("*").unwrap().fits(b"\xff"));
    }

    #[test]
    fn a_pattern_that_is_empty_long_nested_or_broken_is_refused_in_words() {
        let long = "a".repeat(PATTERN_BYTES_MAX + 1);
        let many = format!("{{{}}}", "a,".repeat(ALTERNATIVES_MAX));
        let deep = "{".repeat(BRACE_DEPTH_MAX + 1);
        for (pattern, error) in [
            ("", PatternError::Empty),
            ("./", PatternError::Empty),
            ("///", PatternError::Empty),
            (&long, PatternError::Long),
            (&many, PatternError::Braces),
            (&deep, PatternError::Braces),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap_err(), error);
        }
        for broken in ["[a", "{a,b", "a}", "[z-a]", r"a\"] {
            let error = Pattern::parse(broken).unwrap_err();
            assert!(
                matches!(error, PatternError::Syntax(_)),
                "{broken}: {error}"
            );
            assert!(error.to_string().contains("cannot be read: "), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_pattern_panic(text in any::<String>(), path in any::<Vec<u8>>()) {
            if let Ok(pattern) = Pattern::parse(&text) {
                pattern.fits(&path);
            }
        }

        #[test]
        fn patterns_of_odd_signs_never_panic(text in r"[\[\]{},*?!\\/a^-]{0,40}") {
            if let Ok(pattern) = Pattern::parse(&text) {
                pattern.fits(text.as_bytes());
                pattern.fits(b"a/a");
            }
        }

        #[test]
        fn a_name_fits_itself_when_its_signs_are_escaped(
            name in r"[^/\x00]{1,20}",
            above in "([a-z]{1,3}/){0,3}",
        ) {
            let escaped: String = name.chars().flat_map(|char| ['\\', char]).collect();
            let pattern = Pattern::parse(&escaped).unwrap();
            let path = format!("{above}{name}");
            prop_assert!(pattern.fits(path.as_bytes()));
            let other = format!("{above}{name}x");
            prop_assert!(!pattern.fits(other.as_bytes()));
        }

        #[test]
        fn a_star_stays_within_a_name_and_two_cross_directories(
            parts in proptest::collection::vec("[a-z.]{1,4}", 1..5),
        ) {
            let path = parts.join("/");
            let stars = vec!["*"; parts.len()].join("/");
            let (exact, deeper) = (format!("/{stars}"), format!("/{stars}/*"));
            prop_assert!(fits(&exact, &path));
            prop_assert!(!fits(&deeper, &path));
            prop_assert!(fits("/**", &path));
            let last = parts.last().unwrap();
            let at_any_depth = format!("**/{last}");
            prop_assert!(fits(&at_any_depth, &path));
        }
    }
}
