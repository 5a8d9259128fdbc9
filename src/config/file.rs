//! Parses the configuration file: lines of `NAME=VALUE`, as systemd's `EnvironmentFile`.
//!
//! A line that starts with `#` or `;` is a comment. A value may stand in single
//! quotes (taken as it is) or in double quotes (a backslash escapes `"`, `\`, `` ` ``,
//! `$` and the end of the line), and then spans lines. Outside of quotes a backslash
//! takes the next character as it is and joins lines. Nothing is expanded.

use std::iter::Peekable;
use std::str::Chars;

/// One assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The variable.
    pub name: String,
    /// Its value, without quotes.
    pub value: String,
    /// The line on which it starts, from 1.
    pub line: usize,
}

/// One line that is no assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it; never shows a value.
    pub why: &'static str,
}

/// Parses a file; what is wrong in one line does not hide the others.
pub fn parse(text: &str) -> (Vec<Entry>, Vec<BadLine>) {
    let mut scanner = Scanner {
        chars: text.trim_start_matches('\u{feff}').chars().peekable(),
        line: 1,
    };
    let (mut entries, mut bad) = (Vec::new(), Vec::new());
    loop {
        scanner.skip_white_space();
        let line = scanner.line;
        match scanner.chars.peek() {
            None => return (entries, bad),
            Some('#' | ';') => scanner.skip_line(),
            Some(_) => match scanner.entry() {
                Ok((name, value)) => entries.push(Entry { name, value, line }),
                Err(why) => bad.push(BadLine { line, why }),
            },
        }
    }
}

struct Scanner<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.chars.next();
        if next == Some('\n') {
            self.line += 1;
        }
        next
    }

    fn skip_white_space(&mut self) {
        while self.chars.peek().is_some_and(|c| c.is_whitespace()) {
            self.next();
        }
    }

    fn skip_blanks(&mut self) {
        while self
            .chars
            .next_if(|c| c.is_whitespace() && *c != '\n')
            .is_some()
        {}
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|c| c != '\n') {}
    }

    /// Reads one assignment up to the end of its last line.
    fn entry(&mut self) -> Result<(String, String), &'static str> {
        let mut name = String::new();
        while let Some(c) = self.chars.next_if(|c| *c != '=' && *c != '\n') {
            name.push(c);
        }
        if self.chars.next_if_eq(&'=').is_none() {
            return Err("there is no '='");
        }
        let name = name.trim_end();
        if !is_name(name) {
            self.skip_line();
            return Err(if name.starts_with("export ") {
                "'export' is shell syntax"
            } else {
                "what stands before '=' is not a name"
            });
        }
        self.skip_blanks();
        let value = match self.chars.peek() {
            Some('\'') => self.quoted('\'')?,
            Some('"') => self.quoted('"')?,
            Some(_) | None => self.bare(),
        };
        Ok((name.to_owned(), value))
    }

    fn bare(&mut self) -> String {
        let mut value = String::new();
        // What a backslash protects is not trimmed off the end.
        let mut kept = 0;
        while let Some(c) = self.next().filter(|c| *c != '\n') {
            if c != '\\' {
                value.push(c);
                continue;
            }
            if let Some(escaped) = self.next().filter(|c| *c != '\n') {
                value.push(escaped);
                kept = value.len();
            }
        }
        let end = value.trim_end().len().max(kept);
        value.truncate(end);
        value
    }

    fn quoted(&mut self, quote: char) -> Result<String, &'static str> {
        self.next();
        let mut value = String::new();
        loop {
            match self.next().ok_or("a quote is not closed")? {
                c if c == quote => break,
                '\\' if quote == '"' => match self.next() {
                    Some('\n') => {}
                    Some(c @ ('"' | '\\' | '`' | '$')) => value.push(c),
                    Some(c) => value.extend(['\\', c]),
                    None => return Err("a quote is not closed"),
                },
                c => value.push(c),
            }
        }
        self.skip_blanks();
        match self.next() {
            None | Some('\n') => Ok(value),
            Some(_) => {
                self.skip_line();
                Err("something follows the closing quote")
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(usize, String)> {
        let (entries, bad) = parse(text);
        assert_eq!(bad, [], "{text:?}");
        entries
            .into_iter()
            .map(|entry| (entry.line, entry.value))
            .collect()
    }

    #[test]
    fn values_are_read_as_systemd_reads_them() {
        for (text, value) in [
            ("A=b", "b"),
            ("A = b c ", "b c"),
            ("  A=\"b c \"  ", "b c "),
            ("A='$x \\n \"'", "$x \\n \""),
            ("A=\"\\\"\\\\\\$\\x\"", "\"\\$\\x"),
            ("A=", ""),
            ("A=\"\"", ""),
            ("A=b # c", "b # c"),
            ("A=b\\\nc", "bc"),
            ("A=\"b\\\nc\"", "bc"),
            ("A='{\n \"x\": 1\n}'", "{\n \"x\": 1\n}"),
            ("A=a\\ ", "a "),
            ("A=a\\\\b", "a\\b"),
            ("A=b\r\n", "b"),
            ("\u{feff}A=b", "b"),
            ("A=b=c", "b=c"),
        ] {
            let found = values(text);
            assert_eq!(found, [(1, value.to_owned())], "{text:?}");
        }
    }

    #[test]
    fn entries_know_the_line_on_which_they_start() {
        let found = values("# one\n\nA='x\ny'\n; four\nB=2\nC=a\\\nb\nD=4");
        let lines: Vec<usize> = found.into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [3, 6, 7, 9]);
    }

    #[test]
    fn one_bad_line_hides_no_other() {
        let (entries, bad) = parse("A\nexport B=1\n1C=2\nD='x' y\nE=5\nF=\"open\nG=7");
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["E"]);
        let lines: Vec<(usize, &str)> = bad.iter().map(|bad| (bad.line, bad.why)).collect();
        assert_eq!(
            lines,
            [
                (1, "there is no '='"),
                (2, "'export' is shell syntax"),
                (3, "what stands before '=' is not a name"),
                (4, "something follows the closing quote"),
                (6, "a quote is not closed"),
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_file_panics_the_parser_and_every_line_lies_within(text in "[A-C='\"\\\\\n# x]{0,60}") {
            let (entries, bad) = parse(&text);
            let lines = text.split('\n').count();
            assert!(entries.iter().all(|entry| 1 <= entry.line && entry.line <= lines));
            assert!(bad.iter().all(|bad| 1 <= bad.line && bad.line <= lines));
        }
    }
}
