//! Ends every process of a run, whatever group or parent it fled to.

use rustix::process::{Pid, Signal as HostSignal, kill_process_group};
use tracing::{debug, warn};

use super::commands::COOKIE;
use crate::docker::Engine;
use crate::docker::exec::{ExecBody, ExecCreated};
use crate::id::RunId;

/// What a sweep sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The request to end.
    Term,
    /// The end.
    Kill,
}

/// Sends a signal to the group of every process that carries the cookie, and to
/// the process itself. `$1` is the signal's name, `$2` the cookie.
///
/// `-z` is for more than tidiness: the grep of busybox reads no further than the
/// first NUL without it.
const SCRIPT: &str = r#"
for e in $(grep -lszxF "$2" /proc/[0-9]*/environ); do
  d=${e%/environ}
  read -r s < "$d/stat" || continue
  s=${s##*) }
  set -- "$1" "$2" $s
  kill -"$1" -"$5" 2>/dev/null
  kill -"$1" "${d#/proc/}" 2>/dev/null
done
:
"#;

/// Signals everything in the container that carries a run's cookie.
///
/// It runs inside the container, since only there the processes have the
/// numbers that can be told apart from the host's. A failure is logged: what
/// remains is ended with the container at the latest.
pub(super) async fn sweep(engine: &Engine, container: &str, run: &RunId, signal: Signal) {
    let name = match signal {
        Signal::Term => "TERM",
        Signal::Kill => "KILL",
    };
    let cookie = format!("{COOKIE}={run}");
    let body = ExecBody {
        argv: ["/bin/sh", "-c", SCRIPT, "sandboxd-sweep", name, &cookie]
            .map(str::to_owned)
            .to_vec(),
        ..ExecBody::default()
    };
    let swept = async {
        match engine.exec_create(container, &body).await? {
            ExecCreated::New(exec) => {
                let mut stream = engine.exec_start(&exec).await?;
                while stream.next().await?.is_some() {}
                Ok(())
            }
            // With the container, everything in it has ended.
            ExecCreated::NotRunning(_) | ExecCreated::Gone => Ok(()),
        }
    };
    let swept: Result<(), crate::docker::Error> = swept.await;
    if let Err(error) = swept {
        warn!(%run, %error, "the processes of a run could not be signalled");
    }
}

/// Kills the group of an exec's process by its number on the host.
///
/// For a command that threw its environment away, cookie included. It works
/// where the daemon shares the engine's process numbers, which is checked: the
/// process has to be in the container's control group.
pub(super) fn kill_from_host(container: &str, pid: Option<u32>) {
    let Some(pid) = pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw)
    else {
        return;
    };
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero()));
    if !groups.is_ok_and(|groups| groups.contains(container)) {
        return;
    }
    if let Err(error) = kill_process_group(pid, HostSignal::KILL) {
        debug!(%error, "a process group could not be killed from the host");
    }
}
