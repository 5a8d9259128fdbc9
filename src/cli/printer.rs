//! Prints data, messages and questions, each where it belongs.

use std::fmt;
use std::io::{self, BufRead, Write};

use serde::Serialize;
use tabled::builder::Builder;
use tabled::settings::{Padding, Style};

use super::args::{Global, Output};
use super::text::visible;

/// Whether somebody is there to answer a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// Standard input and standard error are a terminal.
    Attached,
    /// A script runs the program.
    Absent,
}

/// What a command reads from and writes to.
pub struct Streams<'a> {
    /// Answers to questions, and the token where it is read from there.
    pub stdin: &'a mut dyn BufRead,
    /// Data.
    pub stdout: &'a mut dyn Write,
    /// Messages and questions.
    pub stderr: &'a mut dyn Write,
    /// Whether questions may be asked.
    pub terminal: Terminal,
}

impl fmt::Debug for Streams<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("terminal", &self.terminal)
            .finish_non_exhaustive()
    }
}

/// What somebody answered, or that nobody could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    NobodyThere,
}

/// Whether a table begins with the names of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headers {
    Shown,
    Hidden,
}

/// Prints in the format that was asked for.
#[derive(Debug)]
pub(super) struct Printer<'a> {
    streams: Streams<'a>,
    output: Output,
    headers: Headers,
}

impl<'a> Printer<'a> {
    pub(super) fn new(streams: Streams<'a>, global: &Global) -> Self {
        Self {
            streams,
            output: global.output,
            headers: if global.no_headers {
                Headers::Hidden
            } else {
                Headers::Shown
            },
        }
    }

    pub(super) fn output(&self) -> Output {
        self.output
    }

    pub(super) fn headers(&self) -> Headers {
        self.headers
    }

    pub(super) fn stdin(&mut self) -> &mut dyn BufRead {
        self.streams.stdin
    }

    /// Whether somebody is there to answer, or to sit at a terminal.
    pub(super) fn is_attended(&self) -> bool {
        self.streams.terminal == Terminal::Attached
    }

    /// Keeps standard input for something else than answers.
    pub(super) fn ask_nobody(&mut self) {
        self.streams.terminal = Terminal::Absent;
    }

    /// Prints one line of data.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.streams.stdout, "{}", visible(text))
    }

    /// Prints what a command printed, to the byte.
    pub(super) fn raw(&mut self, text: &str) -> io::Result<()> {
        self.raw_bytes(text.as_bytes())
    }

    /// Prints what a command wrote to its standard output, to the byte and at once.
    pub(super) fn raw_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.streams.stdout.write_all(bytes)?;
        self.streams.stdout.flush()
    }

    /// Prints what a command wrote to its standard error, to the byte and at once.
    pub(super) fn raw_error(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.streams.stderr.write_all(bytes)?;
        self.streams.stderr.flush()
    }

    /// Prints a JSON document over several lines.
    pub(super) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut self.streams.stdout, value)?;
        writeln!(self.streams.stdout)
    }

    /// Prints a JSON document on a line of its own, at once.
    pub(super) fn json_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.streams.stdout, value)?;
        writeln!(self.streams.stdout)?;
        self.streams.stdout.flush()
    }

    /// Prints rows in columns, each as wide as its widest cell.
    pub(super) fn table(
        &mut self,
        headers: Headers,
        names: &[&str],
        rows: Vec<Vec<String>>,
    ) -> io::Result<()> {
        let text = table(headers, names, rows);
        self.streams.stdout.write_all(text.as_bytes())?;
        self.streams.stdout.flush()
    }

    /// Prints names and values, one pair a line.
    pub(super) fn pairs(&mut self, pairs: &[(&str, String)]) -> io::Result<()> {
        let rows = pairs
            .iter()
            .map(|(name, value)| vec![format!("{name}:"), value.clone()])
            .collect();
        self.table(Headers::Hidden, &[], rows)
    }

    /// Says something that is no failure.
    pub(super) fn note(&mut self, text: &str) {
        self.message("note", text);
    }

    /// Says what failed, and what may help.
    pub(super) fn error(&mut self, text: &str, hint: Option<&str>) {
        self.message("error", text);
        if let Some(hint) = hint {
            self.message("hint", hint);
        }
    }

    fn message(&mut self, kind: &str, text: &str) {
        let written = writeln!(self.streams.stderr, "{kind}: {}", visible(text));
        // Where messages cannot be written there is nobody left to tell.
        drop(written);
    }

    /// Asks a question; everything but `y` and `yes` is a no.
    pub(super) fn ask(&mut self, question: &str) -> io::Result<Answer> {
        match self.streams.terminal {
            Terminal::Absent => return Ok(Answer::NobodyThere),
            Terminal::Attached => {}
        }
        write!(self.streams.stderr, "{} [y/N] ", visible(question))?;
        self.streams.stderr.flush()?;
        let mut answer = String::new();
        // It blocks the one thread there is, on which nothing else has to be done.
        io::Read::take(&mut self.streams.stdin, ANSWER_BYTES_MAX).read_line(&mut answer)?;
        let answer = answer.trim().to_ascii_lowercase();
        Ok(if matches!(answer.as_str(), "y" | "yes") {
            Answer::Yes
        } else {
            Answer::No
        })
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.streams.stdout.flush()
    }
}

/// Bytes read of an answer.
const ANSWER_BYTES_MAX: u64 = 64;

fn table(headers: Headers, names: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut builder = Builder::default();
    match headers {
        Headers::Shown => builder.push_record(names.iter().copied()),
        Headers::Hidden => {}
    }
    for row in rows {
        builder.push_record(row.iter().map(|cell| visible(cell)));
    }
    let mut table = builder.build();
    table.with(Style::empty()).with(Padding::new(0, 2, 0, 0));
    // Padding at the end of a line is of no use, and in the way when copied.
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_two_spaces_apart_and_lines_end_with_their_text() {
        let rows = vec![
            vec!["a".to_owned(), "漢字".to_owned(), "-".to_owned()],
            vec!["long-id".to_owned(), "x\x1b[1m".to_owned(), String::new()],
        ];
        expect_test::expect![[r"
            ID       TENANT    X
            a        漢字      -
            long-id  x\x1b[1m
        "]]
        .assert_eq(&table(Headers::Shown, &["ID", "TENANT", "X"], rows));
    }

    #[test]
    fn an_empty_table_is_its_header_or_nothing() {
        assert_eq!(table(Headers::Shown, &["ID"], Vec::new()), "ID\n");
        assert_eq!(table(Headers::Hidden, &["ID"], Vec::new()), "");
    }
}
