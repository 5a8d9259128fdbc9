//! Breaks, from outside, the streams between a daemon and the agents of its sandboxes.

use std::fs;

use rustix::net::{Shutdown, SocketAddrUnix, getsockname, shutdown, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::daemon::Daemon;

/// How the sockets are called on which agents dial; a socket keeps the name that it was
/// bound to.
const NAME: &[u8] = b"/agent.sock.new";

/// Breaks every stream to an agent that the daemon has; returns how many there were.
///
/// Both ends live on, and neither has asked for it.
pub(crate) fn break_streams(daemon: &Daemon) -> usize {
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let mut broken = 0;
    for entry in fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap() {
        let Ok(entry) = entry else { continue };
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
        if !is_socket {
            continue;
        }
        let fd = entry.file_name().to_str().unwrap().parse().unwrap();
        // It may be closed by now.
        let Ok(socket) = pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()) else {
            continue;
        };
        let name = getsockname(&socket).ok();
        let name = name.and_then(|name| SocketAddrUnix::try_from(name).ok());
        let is_agents =
            name.is_some_and(|name| name.path_bytes().is_some_and(|path| path.ends_with(NAME)));
        if is_agents && !sockopt::socket_acceptconn(&socket).unwrap() {
            broken += usize::from(shutdown(&socket, Shutdown::Both).is_ok());
        }
    }
    broken
}
