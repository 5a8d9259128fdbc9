//! The calls whose safety the compiler cannot check.
#![expect(
    unsafe_code,
    reason = "what a child does before its program, and two settings of the C library"
)]

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Gid, Uid};

/// Whom a child becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its user.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
    /// Its further groups.
    pub(crate) groups: Vec<u32>,
}

/// Whether a child's standard input becomes the terminal of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminal {
    /// It does.
    Yes,
    /// It is no terminal.
    No,
}

/// Has the command begin a session of its own, as another user where one is given.
pub(crate) fn prepare(command: &mut Command, identity: Option<Identity>, terminal: Terminal) {
    let identity = identity.map(|one| {
        let groups: Vec<Gid> = one.groups.into_iter().map(Gid::from_raw).collect();
        (Uid::from_raw(one.uid), Gid::from_raw(one.gid), groups)
    });
    let before = move || {
        rustix::process::setsid()?;
        if terminal == Terminal::Yes {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        if let Some((uid, gid, groups)) = &identity {
            rustix::thread::set_thread_groups(groups)?;
            rustix::thread::set_thread_gid(*gid)?;
            rustix::thread::set_thread_uid(*uid)?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the child between fork and exec. It makes system calls
    // only, on values made before the fork, and takes neither memory nor locks; there is
    // one thread, so that the identity of the thread is that of the process. Descriptor 0
    // is open there: the command has set up its standard input before.
    unsafe {
        command.pre_exec(before);
    }
}

/// Gives every signal its default disposition, so that no child inherits another.
pub(crate) fn default_signals() {
    for signal in 1..=31 {
        if matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGPIPE) {
            continue;
        }
        // SAFETY: a valid signal, the default disposition, and no thread or handler yet.
        // SIGPIPE stays ignored; the standard library gives it back to each child.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// Has large buffers given back to the system as soon as they are dropped.
pub(crate) fn lean_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets numbers of the allocator; there is one thread. A threshold that is set
    // does not grow by itself, which would keep what large buffers had taken.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 10);
    }
}
