//! Reads which processes there are, and whose cookie they carry.

use std::fs;
use std::io::Read;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::protocol::COOKIE;

/// A process, as `/proc/PID/stat` tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: i32,
    /// Its parent.
    pub(crate) parent: i32,
    /// Its process group.
    pub(crate) group: i32,
    /// Its session.
    pub(crate) session: i32,
    /// Whether it runs.
    pub(crate) life: Life,
    /// When it started; with the number, this is one process only.
    pub(crate) started: u64,
}

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs, or waits.
    Live,
    /// A signal has stopped it.
    Stopped,
    /// It has ended and is not reaped.
    Ended,
}

/// Whose cookie a process carries in its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// The one that was asked for.
    This,
    /// Another.
    Other,
    /// None, or it cannot be read.
    Unknown,
}

/// Processes that one look finds.
const PROCESSES_MAX: usize = 1 << 16;
/// Bytes of an environment that are searched.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// Returns the processes there are, the older first; none where they cannot be seen.
pub(crate) fn look() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut text = Vec::with_capacity(1024);
    for entry in entries.flatten().take(PROCESSES_MAX) {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        text.clear();
        let read = fs::File::open(format!("/proc/{pid}/stat"))
            .and_then(|file| file.take(4096).read_to_end(&mut text));
        if read.is_ok() {
            found.extend(parse(pid, &text));
        }
    }
    found.sort_by_key(|one| (one.started, one.pid));
    found
}

/// Returns one process.
pub(crate) fn look_at(pid: i32) -> Option<Process> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &text)
}

fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    // The name may hold anything, so the fields are counted from its last bracket.
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(stat.get(after + 1..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let life = match fields.next()? {
        "T" | "t" => Life::Stopped,
        "Z" | "X" | "x" => Life::Ended,
        _ => Life::Live,
    };
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    Some(Process {
        pid,
        parent,
        group,
        session,
        life,
        started,
    })
}

/// Reads whose cookie a process carries.
pub(crate) fn carries(pid: i32, run: &str) -> Carries {
    let mut environment = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/environ")).and_then(|file| {
        file.take(ENVIRONMENT_BYTES_MAX)
            .read_to_end(&mut environment)
    });
    if read.is_err() {
        return Carries::Unknown;
    }
    cookie_in(&environment, run)
}

fn cookie_in(environment: &[u8], run: &str) -> Carries {
    let cookies = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let value = variable.strip_prefix(COOKIE.as_bytes())?;
        value.strip_prefix(b"=")
    });
    let mut carries = Carries::Unknown;
    for cookie in cookies {
        if cookie == run.as_bytes() {
            return Carries::This;
        }
        carries = Carries::Other;
    }
    carries
}

/// Sends a signal to a process; that it is gone already is no matter.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|_| 1 < pid) {
        kill_process(pid, signal).ok();
    }
}

/// Sends a signal to a process group at once; that it is gone already is no matter.
pub(crate) fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group).filter(|_| 1 < group) {
        kill_process_group(group, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::{Carries, Life, cookie_in, look, look_at, parse};

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_mislead() {
        let stat = b"7 (a) R 9 (x) S 5 6 4 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        let one = parse(7, stat).unwrap();
        assert_eq!((one.parent, one.group, one.session), (5, 6, 4));
        assert_eq!((one.life, one.started), (Life::Live, 4242));
        assert_eq!(parse(7, b"7 (a) S 5"), None);
    }

    #[test]
    fn the_own_process_is_found() {
        let own = i32::try_from(std::process::id()).unwrap();
        let found = look().into_iter().find(|one| one.pid == own).unwrap();
        assert_eq!(look_at(own).map(|one| one.started), Some(found.started));
    }

    #[test]
    fn a_cookie_is_a_whole_variable() {
        let environment = b"A=1\0XSANDBOXD_RUN=one\0SANDBOXD_RUN=two\0SANDBOXD_RUNS=three\0";
        assert_eq!(cookie_in(environment, "two"), Carries::This);
        assert_eq!(cookie_in(environment, "one"), Carries::Other);
        assert_eq!(cookie_in(b"A=SANDBOXD_RUN=one\0", "one"), Carries::Unknown);
    }
}
