//! Ends the processes of a run from the host, where they can be seen from there.
//!
//! It needs no process in the sandbox, so it works where a fork bomb has taken
//! them all, and no program of the image.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep};

use super::commands::{COOKIE, GRACE};
use crate::id::RunId;

/// The rest between two looks at what is left of a run.
const POLL: Duration = Duration::from_millis(50);
/// How often what is left is killed: what forks during one kill is met by the next.
const KILLS_MAX: usize = 20;

/// Whether the processes of a container can be seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// They can, and those of the run were ended.
    Seen,
    /// They cannot, and nothing was done.
    Unseen,
}

/// A process of a container; the descriptor stays its own when the number is reused.
struct Process {
    descriptor: OwnedFd,
    group: i32,
    carries_cookie: bool,
}

/// Ends every process of a run, and what shares a group with one: asks, waits, kills.
pub(super) async fn sweep(container: &str, run: &RunId) -> Reach {
    let signal = async |signal| {
        let (container, cookie) = (container.to_owned(), format!("{COOKIE}={run}"));
        let act = move || signal_run(&container, &cookie, signal);
        match tokio::task::spawn_blocking(act).await {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    };
    let Some(mut left) = signal(Some(Signal::TERM)).await else {
        return Reach::Unseen;
    };
    let end = Instant::now() + GRACE;
    while 0 < left && Instant::now() < end {
        sleep(POLL).await;
        left = signal(None).await.unwrap_or(0);
    }
    for _ in 0..KILLS_MAX {
        if left == 0 {
            break;
        }
        left = signal(Some(Signal::KILL)).await.unwrap_or(0);
    }
    Reach::Seen
}

/// Signals the processes of a run, if a signal is given, and counts them; `None`
/// where the container's processes cannot be seen.
fn signal_run(container: &str, cookie: &str, signal: Option<Signal>) -> Option<usize> {
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
            match pidfd_send_signal(&process.descriptor, signal) {
                // It may have ended since; the next look tells.
                Ok(()) | Err(_) => {}
            }
        }
    }
    Some(count)
}

/// Lists the living processes of a container; `None` where not all can be seen.
fn processes(container: &str, cookie: &str) -> Option<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").ok()? {
        let name = entry.ok()?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            continue;
        };
        // Held before it is looked at, so that what is signalled is what was seen.
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let of = |file| format!("/proc/{}/{file}", pid.as_raw_nonzero());
        let groups = fs::read_to_string(of("cgroup")).unwrap_or_default();
        if !groups.contains(container) {
            continue;
        }
        let environment = match fs::read(of("environ")) {
            Ok(environment) => environment,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            Err(_) => continue,
        };
        let stat = fs::read(of("stat")).unwrap_or_default();
        let Some(group) = living_group(&String::from_utf8_lossy(&stat)) else {
            continue;
        };
        found.push(Process {
            descriptor,
            group,
            carries_cookie: environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == cookie.as_bytes()),
        });
    }
    (!found.is_empty()).then_some(found)
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
        assert!(processes("no-such-container", "A=b").is_none());
    }
}
