//! Carries out operations on files in the sandbox: by its agent, or by small commands.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::errand::{Errand, Met, Reset, WhenLost, task};
use super::super::exec::text;
use super::super::request::{Input, Options};
use super::super::{Control, Refusal};
use super::asked::{Answer, Op};
use super::host::{Seen, bytes_answer, edited_answer, exists, found_files, query, sorted, written};
use super::{Done, Trip, scripts, words};
use crate::id::{Nonce, RunId};
use crate::sandbox::commands::{Ending, Output, Program, Ran};
use crate::session::record::Notice;
use crate::wire::files::{GrepMatch, GrepResponse, ReadResponse};
use crate::workspace::search::{Hidden, Pattern, spell};
use crate::workspace::{Change, Family, FileError, Kind, is_absolute, lines_of, replaced};

/// Bytes that a listing or a search may print.
const LISTING_BYTES_MAX: u64 = 8 << 20;
/// Bytes of input for one script, which becomes a third longer as text.
const INPUT_BYTES_MAX: usize = 720 << 10;
/// How often an edit begins anew because the sandbox changed the file meanwhile.
const EDITS_MAX: usize = 8;
/// Bytes beside the content that a script may print.
const SPARE_BYTES: u64 = 64 << 10;

/// A script with its arguments.
struct Script {
    text: &'static str,
    arguments: Vec<String>,
    input: Option<String>,
    output_max: u64,
}

/// What a script printed, and its code.
struct Printed {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: i64,
}

impl Control {
    /// Carries out an operation as the sandbox sees its files.
    pub(super) async fn by_sandbox(
        &self,
        trip: &Trip,
        reset: Option<(u64, Notice)>,
    ) -> Result<Done, Refusal> {
        let mut told = self.told(&trip.id, trip.news(reset));
        let done = self.done_inside(trip, &mut told).await?;
        Ok((done, told))
    }

    /// Carries out an operation in the sandbox: by its agent, or else by commands.
    pub(super) async fn done_inside(
        &self,
        trip: &Trip,
        told: &mut Option<Reset>,
    ) -> Result<Result<Answer, FileError>, Refusal> {
        match Box::pin(self.by_clerk(trip, told)).await? {
            Some(done) => Ok(done),
            None => self.within(trip, told).await,
        }
    }

    async fn within(
        &self,
        trip: &Trip,
        told: &mut Option<Reset>,
    ) -> Result<Result<Answer, FileError>, Refusal> {
        let site = &trip.site;
        let done = match &*trip.op {
            Op::Read { path, window } => {
                let bytes = self.fetch(trip, path, told).await?;
                let family = Family::of(path.as_bytes());
                let slice =
                    bytes.and_then(|(bytes, _)| lines_of(&bytes, *window, family, site.bounds()));
                slice.map(|slice| {
                    Answer::Read(ReadResponse {
                        content: words::lines(slice, *window),
                        ..ReadResponse::default()
                    })
                })
            }
            Op::ReadBytes { path } => {
                let bytes = self.fetch(trip, path, told).await?;
                bytes.map(|(bytes, _)| bytes_answer(&bytes))
            }
            Op::Write { path, bytes } => {
                let put = self.put(trip, path, (bytes, ""), told).await?;
                put.map(|()| written(site.absolute(path)))
            }
            Op::Edit {
                path,
                old,
                new,
                times,
            } => {
                let change = Change {
                    old,
                    new,
                    times: *times,
                };
                self.edit_inside(trip, path, change, told).await?
            }
            Op::Exists { .. } | Op::Ls { .. } | Op::Glob { .. } => {
                self.look_inside(trip, told).await?
            }
            Op::Grep {
                pattern,
                filter,
                hidden,
                ..
            } => {
                let filter = match query(pattern, filter.as_deref()) {
                    Ok((_, filter)) => filter,
                    Err(answer) => return Ok(Ok(*answer)),
                };
                self.grep_inside(trip, (pattern, filter, *hidden), told)
                    .await?
            }
        };
        Ok(done)
    }

    /// Says what is there, without reading any file.
    async fn look_inside(
        &self,
        trip: &Trip,
        told: &mut Option<Reset>,
    ) -> Result<Result<Answer, FileError>, Refusal> {
        let path = trip.op.root().unwrap_or(".");
        if let Op::Glob { pattern, .. } = &*trip.op {
            let found = self.find(trip, told).await?;
            return Ok(found.map(|found| {
                let mut paths = found.unwrap_or_default();
                match Pattern::parse(pattern) {
                    Ok(pattern) => paths.retain(|path| pattern.fits(path)),
                    Err(_) => paths.clear(),
                }
                found_files(&trip.op, paths)
            }));
        }
        let is_listing = matches!(&*trip.op, Op::Ls { .. });
        let (text, output_max) = if is_listing {
            (scripts::LS, LISTING_BYTES_MAX.saturating_add(SPARE_BYTES))
        } else {
            (scripts::EXISTS, SPARE_BYTES)
        };
        let arguments = vec![argument(path), LISTING_BYTES_MAX.to_string()];
        let script = Script::new(text, arguments, output_max);
        let printed = self.script(trip, script, told).await?;
        Ok(printed.map(|printed| {
            if is_listing {
                let seen = listed(&printed.stdout).into_iter();
                Answer::Entries(sorted(seen.map(|seen| seen.entry(path)).collect()))
            } else {
                exists(printed.code == 0)
            }
        }))
    }

    /// Fetches a whole file, and what tells its content from others.
    async fn fetch(
        &self,
        trip: &Trip,
        path: &str,
        told: &mut Option<Reset>,
    ) -> Result<Result<(Vec<u8>, String), FileError>, Refusal> {
        let limit = trip.site.bytes_max;
        let arguments = vec![argument(path), limit.to_string()];
        let script = Script::new(scripts::READ, arguments, limit.saturating_add(SPARE_BYTES));
        let printed = self.script(trip, script, told).await?;
        Ok(printed.and_then(|printed| match printed.code {
            0 => Ok((printed.stdout, text(printed.stderr).trim().to_owned())),
            scripts::TOO_LARGE => Err(FileError::TooLarge {
                bytes: text(printed.stdout).trim().parse().unwrap_or(u64::MAX),
                limit,
            }),
            _ => Err(printed.error()),
        }))
    }

    /// Replaces a whole file; only in place of some content where that is told.
    async fn put(
        &self,
        trip: &Trip,
        path: &str,
        (bytes, instead): (&[u8], &str),
        told: &mut Option<Reset>,
    ) -> Result<Result<(), FileError>, Refusal> {
        let whole = argument(path);
        let parent = match whole.trim_end_matches('/').rsplit_once('/') {
            Some(("", _)) | None => "/",
            Some((parent, _)) => parent,
        };
        let sibling = format!(".sandboxd-{}.tmp", Nonce::random());
        let mut rest = bytes;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(INPUT_BYTES_MAX));
            let turn = if after.is_empty() { "last" } else { "more" };
            let arguments = [&whole, parent, &sibling, turn, instead].map(str::to_owned);
            let mut script = Script::new(scripts::WRITE, arguments.to_vec(), SPARE_BYTES);
            script.input = Some(STANDARD.encode(piece));
            let put = self.script(trip, script, told).await?;
            let put = put.and_then(|printed| match printed.code {
                0 => Ok(()),
                scripts::NO_PARENT => Err(FileError::NotDirectory),
                scripts::CHANGED => Err(FileError::Changed),
                _ => Err(printed.error()),
            });
            if put.is_err() || after.is_empty() {
                return Ok(put);
            }
            rest = after;
        }
    }

    async fn edit_inside(
        &self,
        trip: &Trip,
        path: &str,
        change: Change<'_>,
        told: &mut Option<Reset>,
    ) -> Result<Result<Answer, FileError>, Refusal> {
        let limit = trip.site.bytes_max;
        let family = Family::of(path.as_bytes());
        for _ in 0..EDITS_MAX {
            let bytes = self.fetch(trip, path, told).await?;
            let changed = bytes.and_then(|(bytes, tag)| {
                replaced(&bytes, change, family, limit).map(|(bytes, n)| (bytes, n, tag))
            });
            let (bytes, n_replaced, tag) = match changed {
                Ok(changed) => changed,
                Err(error) => return Ok(Err(error)),
            };
            match self.put(trip, path, (&bytes, &tag), told).await? {
                Err(FileError::Changed) => {}
                put => {
                    let absolute = trip.site.absolute(path);
                    return Ok(put.map(|()| edited_answer(absolute, n_replaced)));
                }
            }
        }
        Ok(Err(FileError::Busy))
    }

    /// Finds the regular files below the root of a search; nothing where that is a file.
    async fn find(
        &self,
        trip: &Trip,
        told: &mut Option<Reset>,
    ) -> Result<Result<Option<Vec<Vec<u8>>>, FileError>, Refusal> {
        let root = argument(trip.op.root().unwrap_or("."));
        let arguments = vec![root, LISTING_BYTES_MAX.to_string()];
        let output_max = LISTING_BYTES_MAX.saturating_add(SPARE_BYTES);
        let script = Script::new(scripts::FIND, arguments, output_max);
        let printed = self.script(trip, script, told).await?;
        Ok(printed.and_then(|printed| match printed.code {
            0 => Ok(Some(found(&printed.stdout))),
            scripts::IS_FILE => Ok(None),
            _ => Err(printed.error()),
        }))
    }

    async fn grep_inside(
        &self,
        trip: &Trip,
        (pattern, filter, hidden): (&str, Option<Pattern>, Hidden),
        told: &mut Option<Reset>,
    ) -> Result<Result<Answer, FileError>, Refusal> {
        let root = argument(trip.op.root().unwrap_or("."));
        let (directory, files, is_file) = match self.find(trip, told).await? {
            Err(error) => return Ok(Err(error)),
            Ok(Some(files)) => (root, files, false),
            Ok(None) => {
                let (directory, name) = root.rsplit_once('/').unwrap_or((".", &root));
                let name = name.as_bytes().to_vec();
                (format!("{directory}/"), vec![name], true)
            }
        };
        let wanted = files.into_iter().filter(|path| {
            let is_shown = hidden == Hidden::Searched || is_file || !is_hidden(path);
            is_shown && filter.as_ref().is_none_or(|filter| filter.fits(path))
        });
        let mut inputs = vec![Vec::new()];
        for path in wanted {
            let path = [b"./", path.as_slice(), b"\0"].concat();
            match inputs.last_mut() {
                Some(input) if input.len() + path.len() <= INPUT_BYTES_MAX => input.extend(path),
                Some(_) | None => inputs.push(path),
            }
        }
        let output_max = LISTING_BYTES_MAX.saturating_add(SPARE_BYTES);
        let mut found = GrepResponse::default();
        for input in inputs {
            let most = LISTING_BYTES_MAX.to_string();
            let arguments = vec![directory.clone(), extended(pattern), most];
            let mut script = Script::new(scripts::GREP, arguments, output_max);
            script.input = Some(STANDARD.encode(input));
            let printed = match self.script(trip, script, told).await? {
                Ok(printed) => printed,
                Err(error) => return Ok(Err(error)),
            };
            match printed.code {
                0 => {
                    let length = u64::try_from(printed.stdout.len()).unwrap_or(u64::MAX);
                    found.truncated |= LISTING_BYTES_MAX <= length;
                    found
                        .matches
                        .extend(hits(&trip.op, &printed.stdout, is_file));
                }
                scripts::BAD_EXPRESSION => {
                    let why = text(printed.stderr);
                    return Ok(Ok(Answer::Grep(words::not_searched(why.trim()))));
                }
                _ => return Ok(Err(printed.error())),
            }
        }
        found
            .matches
            .sort_by(|a, b| (&a.path, a.line_number).cmp(&(&b.path, b.line_number)));
        Ok(Ok(Answer::Grep(found)))
    }

    /// Runs a script in the sandbox.
    async fn script(
        &self,
        trip: &Trip,
        script: Script,
        told: &mut Option<Reset>,
    ) -> Result<Result<Printed, FileError>, Refusal> {
        let _slot = self.slot(&trip.id)?;
        let argv = ["sh", "-c", script.text, "sh"].map(str::to_owned);
        let argv = argv.into_iter().chain(script.arguments).collect();
        let options = Options {
            stdin: script.input.map_or(Input::Closed, Input::Text),
            ..Options::default()
        };
        let run = RunId::random();
        let output = Output::Split {
            limit: script.output_max,
        };
        let errand = Errand {
            id: trip.id.clone(),
            // The id was never used, so it tells the request from any other.
            digest: run.to_string(),
            run,
            task: task(Program::Argv(argv), options, output),
            deadline: trip.deadline,
            when_lost: WhenLost::StartEmpty,
        };
        let _attended = self.0.attended.watch(&errand.run);
        let (mut ran, reset) = match Box::pin(self.offer(&errand, &trip.halt)).await? {
            Met::Ran(ran, reset) => (ran, reset),
            Met::Late => return Err(trip.late()),
            Met::Halted(_) => return Err(Refusal::ShuttingDown),
        };
        if told.is_none() {
            *told = reset;
        }
        if let Some(leftover) = ran.leftover.take() {
            leftover.forget().await;
        }
        printed(ran, trip)
    }
}

impl Script {
    fn new(text: &'static str, arguments: Vec<String>, output_max: u64) -> Self {
        Self {
            text,
            arguments,
            input: None,
            output_max,
        }
    }
}

impl Printed {
    /// Says why a script failed.
    fn error(self) -> FileError {
        match self.code {
            scripts::IS_DIRECTORY => FileError::IsDirectory,
            scripts::NOT_FOUND => FileError::NotFound,
            scripts::SPECIAL => FileError::Io(io::Error::other("it is not a regular file")),
            scripts::DENIED => FileError::Permission,
            code => {
                let words = text(self.stderr);
                let words = words.trim();
                FileError::Io(io::Error::other(if words.is_empty() {
                    format!("exit {code}")
                } else {
                    words.to_owned()
                }))
            }
        }
    }
}

/// Says what a script printed, or why it has no answer.
fn printed(ran: Ran, trip: &Trip) -> Result<Result<Printed, FileError>, Refusal> {
    let code = match ran.ending {
        Ending::Exited(code) => code,
        Ending::OutputLimit => {
            let why = "it printed more than it was asked to".to_owned();
            return Ok(Err(FileError::Io(io::Error::other(why))));
        }
        Ending::TimedOut => return Err(trip.late()),
        Ending::CallerGone => return Err(Refusal::ShuttingDown),
        Ending::OutOfMemory(code)
        | Ending::StartFailed(code)
        | Ending::Stopped(code)
        | Ending::Signalled(code) => {
            let words = text(ran.stderr);
            let why = format!("the sandbox could not do it (exit {code}) {}", words.trim());
            return Ok(Err(FileError::Io(io::Error::other(why.trim().to_owned()))));
        }
        Ending::Unknown(loss) => {
            let why = format!("the sandbox was lost meanwhile: {}", loss.as_str());
            return Ok(Err(FileError::Io(io::Error::other(why))));
        }
    };
    Ok(Ok(Printed {
        stdout: ran.stdout,
        stderr: ran.stderr,
        code,
    }))
}

/// Writes a path so that no program takes it for an option.
fn argument(path: &str) -> String {
    if is_absolute(path.as_bytes()) {
        path.to_owned()
    } else {
        format!("./{path}")
    }
}

fn is_hidden(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/')
        .any(|name| name.starts_with(b"."))
}

/// Writes an expression as `grep -E` reads it: that knows no `\d`.
fn extended(pattern: &str) -> String {
    let mut extended = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    let mut is_set = false;
    while let Some(char) = chars.next() {
        match (char, is_set) {
            ('\\', _) => match (chars.next(), is_set) {
                (Some('d'), false) => extended.push_str("[0-9]"),
                (Some('d'), true) => extended.push_str("0-9"),
                (Some('D'), false) => extended.push_str("[^0-9]"),
                (Some(other), _) => extended.extend(['\\', other]),
                (None, _) => extended.push('\\'),
            },
            (other, _) => {
                is_set = (other == '[' || is_set) && other != ']';
                extended.push(other);
            }
        }
    }
    extended
}

/// Reads what the script that finds files printed; a path that was cut off is none.
fn found(stdout: &[u8]) -> Vec<Vec<u8>> {
    let whole = stdout.iter().rposition(|byte| *byte == 0).unwrap_or(0);
    let whole = stdout.get(..whole).unwrap_or_default();
    whole
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| path.strip_prefix(b"./").unwrap_or(path).to_vec())
        .collect()
}

/// Reads what the script that lists a directory printed.
fn listed(stdout: &[u8]) -> Vec<Seen> {
    let mut parts = stdout.split(|byte| *byte == 0);
    let mut seen = Vec::new();
    let mut rest = parts.next().unwrap_or_default();
    while let Some(end) = rest.windows(3).position(|window| window == b"//\n") {
        let (entry, after) = rest.split_at(end);
        rest = after.get(3..).unwrap_or_default();
        seen.extend(entry_of(entry));
    }
    while let (Some(name), Some(target)) = (parts.next(), parts.next()) {
        seen.push(Seen {
            name: name.strip_prefix(b"./").unwrap_or(name).to_vec(),
            kind: Kind::Link,
            size: u64::try_from(target.len()).unwrap_or(0),
            target: Some(target.to_vec()),
        });
    }
    seen
}

/// Reads the mode, the size and the name of an entry.
fn entry_of(entry: &[u8]) -> Option<Seen> {
    const KIND_MASK: u32 = 0o170_000;
    let mut words = entry.splitn(3, |byte| *byte == b' ');
    let mode = std::str::from_utf8(words.next()?).ok()?;
    let size = std::str::from_utf8(words.next()?).ok()?;
    let name = words.next()?;
    let kind = match u32::from_str_radix(mode, 16).ok()? & KIND_MASK {
        0o040_000 => Kind::Dir,
        0o100_000 => Kind::File,
        0o120_000 => Kind::Link,
        _ => Kind::Other,
    };
    Some(Seen {
        name: name.strip_prefix(b"./").unwrap_or(name).to_vec(),
        kind,
        size: size.parse().ok()?,
        target: None,
    })
}

/// Reads what the script that searches files printed.
fn hits(op: &Op, stdout: &[u8], is_file: bool) -> Vec<GrepMatch> {
    let root = op.spelled_root().as_bytes();
    let mut parts = stdout.split(|byte| *byte == 0);
    let mut matches = Vec::new();
    while let (Some(path), Some(lines)) = (parts.next(), parts.next()) {
        let below = path.strip_prefix(b"./").unwrap_or(path);
        let path = spell(root, if is_file { b"" } else { below });
        let path = String::from_utf8_lossy(&path).into_owned();
        for line in String::from_utf8_lossy(lines).split_terminator('\n') {
            if let Some((number, line)) = line.split_once(':')
                && let Ok(line_number) = number.parse()
            {
                matches.push(GrepMatch {
                    path: path.clone(),
                    line_number,
                    line: line.to_owned(),
                    path_b64: None,
                });
            }
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_keeps_names_with_spaces_line_feeds_and_targets() {
        let seen = listed(b"41ed 4096 ./a dir//\n81a4 3 ./odd\n name//\n\0./l\0to there\0");
        let shown: Vec<_> = seen.into_iter().map(|seen| seen.entry("/etc/")).collect();
        let names: Vec<_> = shown.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(
            names,
            ["/etc/a dir", "/etc/odd\n name", "/etc/l -> to there"]
        );
        assert!(shown[0].is_dir && !shown[1].is_dir && !shown[2].is_dir);
        assert_eq!(shown[1].size, Some(3));
    }

    #[test]
    fn an_expression_keeps_all_but_its_digits() {
        assert_eq!(extended(r"a\d+[\d_]\.\D"), r"a[0-9]+[0-9_]\.[^0-9]");
    }
}
