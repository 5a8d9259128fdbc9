//! Ends every process of a run from within its container, whatever group or parent
//! it fled to.

use std::time::Duration;

use rustix::process::{Pid, Signal as HostSignal, kill_process_group};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::commands::COOKIE;
use crate::cause::chain;
use crate::docker;
use crate::docker::Engine;
use crate::docker::exec::{ExecBody, ExecCreated};
use crate::id::RunId;

/// Asks every process that carries the cookie `$1`, and its group, to end; waits
/// for two seconds at most, and kills what is left.
///
/// A pipeline takes all environments apart, since the `grep` of some images sees
/// only the first variable of each. What forks during a kill is met by the next.
const SCRIPT: &str = r#"
exec 2>/dev/null
cookie=$1
marked() {
  tail -n +1 /proc/[0-9]*/environ | tr '\0' '\n' | while read -r line; do
    case $line in
      "==> /proc/"*"/environ <==") pid=${line#"==> /proc/"} pid=${pid%"/environ <=="} ;;
      "$cookie") echo "$pid" ;;
    esac
  done
}
send() {
  for pid in $(marked); do
    read -r stat < "/proc/$pid/stat" || continue
    set -- "$1" ${stat##*) }
    if [ "$4" -gt 1 ]; then kill -"$1" -"$4"; fi
    kill -"$1" "$pid"
  done
}
send TERM
for rest in 0.05 0.1 0.2 0.3 0.4 0.45 0.5; do
  [ -n "$(marked)" ] || exit 0
  sleep "$rest" || { sleep 2; break; }
done
for again in 1 2 3; do
  [ -n "$(marked)" ] || exit 0
  send KILL
done
"#;

/// How long the script may take: its own two seconds, and what a busy host adds.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(4);

/// Ends everything in the container that carries a run's cookie: asks, waits, kills.
///
/// It is one script inside the container, since only there the processes have the
/// numbers that can be told apart from the host's, and since each call of the engine
/// costs time that the run no longer has. A failure is logged: what remains is ended
/// with the container at the latest.
pub(super) async fn sweep(engine: &Engine, container: &str, run: &RunId) {
    let cookie = format!("{COOKIE}={run}");
    let body = ExecBody {
        argv: ["/bin/sh", "-c", SCRIPT, "sandboxd-sweep", &cookie]
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
    // The shell is the sandbox's own, and may be anything.
    match timeout(SWEEP_WAIT_MAX, swept).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let error: docker::Error = error;
            warn!(%run, error = %chain(&error), "the processes of a run could not be signalled");
        }
        Err(_) => warn!(%run, "the sandbox's shell did not end the processes of a run in time"),
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
