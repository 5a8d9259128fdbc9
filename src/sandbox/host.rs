//! Ends the processes of a run from the host, where they can be seen from there.
//!
//! It needs no process in the sandbox, so it works where a fork bomb has taken
//! them all, and no program of the image.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};

use super::commands::COOKIE;
use crate::id::RunId;

/// How long a command has between the request to end and its kill.
const GRACE: Duration = Duration::from_secs(2);
/// The rest between two looks at what is left of a run.
const POLL: Duration = Duration::from_millis(50);
/// The rest between two kills of what is left.
const KILL_POLL: Duration = Duration::from_millis(10);
/// The longest rest between two looks at a container that may have ended.
const VANISHED_POLL_MAX: Duration = Duration::from_secs(1);
/// How often a look that failed is taken again before something is signalled.
const LOOKS_MAX: usize = 10;
/// How often what is left is killed: what forks during one kill is met by the next.
const KILLS_MAX: usize = 20;

/// Whether the processes of a container can be seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// They can, and those of the run were ended.
    Seen,
    /// They cannot, or not to their end.
    Unseen,
}

/// A process of a container, as it was seen.
struct Process {
    pid: Pid,
    group: i32,
    carries_cookie: bool,
}

/// Why the processes of a container are not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blind {
    /// There is none here, or they may not be looked at: the container has ended, or its
    /// processes are another's.
    None,
    /// This look failed; the next one may not.
    Failed,
}

/// Why nothing can be said of a process.
enum Hidden {
    /// It has ended, or is none of the container's.
    Gone,
    /// It may be there, but not be looked at.
    Barred,
    /// It may be there: it could not be looked at, for want of descriptors, say.
    Unseen,
}

/// Ends every process of a run, and what shares a group with one: asks, waits, kills.
pub(super) async fn sweep(container: &str, run: &RunId) -> Reach {
    let signal = async |signal| look_at_run(container, run, signal).await;
    let mut looks = 1;
    let mut left = loop {
        match signal(Some(Signal::TERM)).await {
            Ok(left) => break left,
            // Nobody comes back to it later: one look that fails must not let a run go on.
            Err(Blind::Failed) if looks < LOOKS_MAX => sleep(POLL).await,
            Err(Blind::Failed | Blind::None) => return Reach::Unseen,
        }
        looks += 1;
    };
    // A look that fails says nothing of what is left: the next one may not fail.
    let end = Instant::now() + GRACE;
    while 0 < left && Instant::now() < end {
        sleep(POLL).await;
        left = signal(None).await.unwrap_or(left);
    }
    if left == 0 {
        return Reach::Seen;
    }
    kill_left(container, run).await
}

/// Kills what is left of a run that was given its time to end: one look where nothing is.
pub(super) async fn kill_left(container: &str, run: &RunId) -> Reach {
    for _ in 0..KILLS_MAX {
        match look_at_run(container, run, Some(Signal::KILL)).await {
            Ok(0) => return Reach::Seen,
            // Killing takes the kernel a moment.
            Ok(_) => sleep(KILL_POLL).await,
            Err(Blind::Failed | Blind::None) => sleep(POLL).await,
        }
    }
    Reach::Unseen
}

/// Waits until a container that was seen from here has no process any more; for ever where
/// it goes on, or cannot be seen.
pub(super) async fn vanished(container: &str) {
    let mut rest = POLL;
    loop {
        sleep(rest).await;
        let container = container.to_owned();
        let looked = tokio::task::spawn_blocking(move || is_empty(&container)).await;
        match looked {
            Ok(Some(true)) => return,
            Ok(Some(false) | None) => {}
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
        rest = (rest * 2).min(VANISHED_POLL_MAX);
    }
}

/// Tells whether no living process is a container's; `None` where not all can be seen.
fn is_empty(container: &str) -> Option<bool> {
    for entry in fs::read_dir("/proc").ok()? {
        let name = entry.ok()?.file_name();
        let Some(pid) = name.to_str().filter(|name| name.parse::<u32>().is_ok()) else {
            continue;
        };
        let read = |file| match fs::read(format!("/proc/{pid}/{file}")) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) => Err(hidden(&error)),
        };
        match (read("cgroup"), read("stat")) {
            (Err(Hidden::Unseen | Hidden::Barred), _)
            | (_, Err(Hidden::Unseen | Hidden::Barred)) => {
                return None;
            }
            (Err(Hidden::Gone), _) | (_, Err(Hidden::Gone)) => {}
            (Ok(groups), Ok(stat)) => {
                if groups.contains(container) && living_group(&stat).is_some() {
                    return Some(false);
                }
            }
        }
    }
    Some(true)
}

/// Signals the processes of a run, if a signal is given, and counts them.
async fn look_at_run(container: &str, run: &RunId, signal: Option<Signal>) -> Result<usize, Blind> {
    let (container, cookie) = (container.to_owned(), format!("{COOKIE}={run}"));
    let act = move || signal_run(&container, &cookie, signal);
    match tokio::task::spawn_blocking(act).await {
        Ok(found) => found,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Does so; blocks for a look at every process of the host.
fn signal_run(container: &str, cookie: &str, signal: Option<Signal>) -> Result<usize, Blind> {
    let processes = processes(container, cookie)?;
    let groups: BTreeSet<i32> = processes
        .iter()
        .filter(|process| process.carries_cookie)
        .map(|process| process.group)
        .collect();
    let of_run = processes
        .iter()
        .filter(|process| process.carries_cookie || groups.contains(&process.group));
    let mut count = 0;
    for process in of_run {
        count += 1;
        if let Some(signal) = signal {
            send(process, container, cookie, signal);
        }
    }
    Ok(count)
}

/// Signals a process if it is still the one that was seen; the next look tells.
///
/// One descriptor is held at a time, however many processes there are: a crowd of
/// commands that end together must not take all that the daemon may have.
fn send(process: &Process, container: &str, cookie: &str, signal: Signal) {
    // Held before it is looked at again, so that what is signalled is what was seen.
    let Ok(descriptor) = pidfd_open(process.pid, PidfdFlags::empty()) else {
        return;
    };
    let same = look(process.pid, container, cookie).is_ok_and(|now| {
        now.group == process.group && now.carries_cookie == process.carries_cookie
    });
    if same {
        match pidfd_send_signal(&descriptor, signal) {
            // It may have ended since.
            Ok(()) | Err(_) => {}
        }
    }
}

/// Lists the living processes of a container, of which there is at least one.
fn processes(container: &str, cookie: &str) -> Result<Vec<Process>, Blind> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").map_err(|_| Blind::Failed)? {
        let name = entry.map_err(|_| Blind::Failed)?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            continue;
        };
        match look(pid, container, cookie) {
            Ok(process) => found.push(process),
            Err(Hidden::Gone) => {}
            Err(Hidden::Barred) => return Err(Blind::None),
            Err(Hidden::Unseen) => return Err(Blind::Failed),
        }
    }
    if found.is_empty() {
        return Err(Blind::None);
    }
    Ok(found)
}

/// Looks at a process of a container.
fn look(pid: Pid, container: &str, cookie: &str) -> Result<Process, Hidden> {
    let of = |file| format!("/proc/{}/{file}", pid.as_raw_nonzero());
    let groups = fs::read(of("cgroup")).map_err(|error| hidden(&error))?;
    if !String::from_utf8_lossy(&groups).contains(container) {
        return Err(Hidden::Gone);
    }
    let environment = fs::read(of("environ")).map_err(|error| hidden(&error))?;
    let stat = fs::read(of("stat")).map_err(|error| hidden(&error))?;
    let group = living_group(&String::from_utf8_lossy(&stat)).ok_or(Hidden::Gone)?;
    Ok(Process {
        pid,
        group,
        carries_cookie: environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == cookie.as_bytes()),
    })
}

/// Tells a process that has ended from one that cannot be looked at.
fn hidden(error: &std::io::Error) -> Hidden {
    let has_ended =
        error.kind() == ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH);
    match error.kind() {
        _ if has_ended => Hidden::Gone,
        ErrorKind::PermissionDenied => Hidden::Barred,
        _ => Hidden::Unseen,
    }
}

/// Reads the group from `/proc/PID/stat`; `None` for a process that has ended.
fn living_group(stat: &str) -> Option<i32> {
    // The name before the last parenthesis may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_process_is_read_whatever_its_name_is() {
        assert_eq!(living_group("7 (a) S 1) S 3 5 7 0 -1"), Some(5));
        assert_eq!(living_group("7 (sh) Z 3 5 7 0 -1"), None);
        assert_eq!(living_group(""), None);
    }

    #[test]
    fn a_container_that_is_not_there_is_not_seen() {
        assert!(matches!(
            processes("no-such-container", "A=b"),
            Err(Blind::None)
        ));
    }
}
