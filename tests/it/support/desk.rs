//! A terminal of this host with a program on it, and what it shows.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

const WAIT_MAX: Duration = Duration::from_secs(20);
const POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// A pseudoterminal whose other end a program has for all its streams.
pub(crate) struct Desk {
    master: File,
    /// Keeps the terminal there when the program has ended.
    slave: OwnedFd,
    child: Child,
    shown: Vec<u8>,
}

impl Desk {
    /// Starts a program at a terminal of this size.
    pub(crate) fn seat(command: &mut Command, (cols, rows): (u16, u16)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        // Without a controlling terminal: a test has none to lose.
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let slave = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
        resize(&master, (cols, rows));
        command.stdin(slave.try_clone().unwrap());
        command.stdout(slave.try_clone().unwrap());
        command.stderr(slave.try_clone().unwrap());
        let child = command.spawn().unwrap();
        // What the command holds of the terminal would keep it open.
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        Self {
            master: File::from(master),
            slave,
            child,
            shown: Vec::new(),
        }
    }

    /// Returns how the terminal treats what is typed.
    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    /// Types.
    pub(crate) fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Makes the terminal another size, and tells the program so.
    pub(crate) fn resizes(&self, size: (u16, u16)) {
        resize(&self.master, size);
        self.signals(Signal::WINCH);
    }

    /// Sends a signal to the program.
    pub(crate) fn signals(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Returns everything that was shown.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Reads until a text was shown since the last time, and forgets what was until then.
    pub(crate) fn until_sees(&mut self, text: &str) {
        let end = Instant::now() + WAIT_MAX;
        loop {
            if let Some(at) = self.shown().find(text) {
                let rest = self.shown().split_off(at + text.len());
                self.shown = rest.into_bytes();
                return;
            }
            assert!(Instant::now() < end, "no {text:?} in {:?}", self.shown());
            self.reads();
        }
    }

    /// Reads to the end of the program; returns its status and what it showed since.
    pub(crate) fn ends(mut self) -> (ExitStatus, String, Termios) {
        let end = Instant::now() + WAIT_MAX;
        let status = loop {
            self.reads();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it goes on: {:?}", self.shown());
        };
        while self.reads() {}
        let modes = self.modes();
        (status, self.shown(), modes)
    }

    /// Reads what there is; tells whether there was anything.
    fn reads(&mut self) -> bool {
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        if poll(&mut fds, Some(&POLL)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let n = self.master.read(&mut bytes).unwrap();
        self.shown.extend_from_slice(&bytes[..n]);
        0 < n
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn resize(terminal: impl std::os::fd::AsFd, (cols, rows): (u16, u16)) {
    let size = Winsize {
        ws_col: cols,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}
