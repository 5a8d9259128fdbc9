//! The terminal that this program runs on.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

/// Pieces of what was typed that wait to be sent.
const PIECES_MAX: usize = 8;
/// Bytes of one.
const PIECE_BYTES_MAX: usize = 4 << 10;
/// Columns or rows, and characters, of the largest terminal that the service has.
const SIDE_MAX: u16 = 1_000;
const CELLS_MAX: u32 = 250_000;

/// Undoes what the program in the sandbox may have left: the alternate screen, a hidden
/// cursor, reports of the mouse, brackets around what is pasted, keys of other modes,
/// colours. It ends on a line of its own.
pub(super) const LEAVE: &[u8] = b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\
\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m\r\n";

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) cols: u16,
    pub(super) rows: u16,
}

/// Whether somebody types here, and sees what is printed.
pub(super) fn is_terminal() -> bool {
    isatty(io::stdin()) && isatty(io::stdout())
}

/// Returns the size as the service takes it; `None` where the terminal does not know it.
pub(super) fn size() -> Option<Size> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    bounded(size.ws_col, size.ws_row)
}

fn bounded(cols: u16, rows: u16) -> Option<Size> {
    if cols == 0 || rows == 0 {
        return None;
    }
    let cols = cols.min(SIDE_MAX);
    let fits = u16::try_from(CELLS_MAX / u32::from(cols)).unwrap_or(SIDE_MAX);
    Some(Size {
        cols,
        rows: rows.min(SIDE_MAX).min(fits),
    })
}

/// Has every key pass as it is, for as long as it lives.
#[derive(Debug)]
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // At once, even where nobody reads what is printed; one that is gone needs no mode.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).unwrap_or_default();
    }
}

/// Reads what is typed, on a thread of its own, until it is dropped.
///
/// Standard input is not made non-blocking: the shell that started this program shares it.
#[derive(Debug)]
pub(super) struct Keyboard {
    pieces: mpsc::Receiver<Vec<u8>>,
    /// Dropping it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Keyboard {
    pub(super) fn listen() -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let (tell, pieces) = mpsc::channel(PIECES_MAX);
        let thread = std::thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || read(&stopped, &tell))?;
        Ok(Self {
            pieces,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns what was typed next; `None` once the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.pieces.recv().await
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.pieces.close();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say, however it ended.
            drop(thread.join());
        }
    }
}

fn read(stopped: &UnixStream, tell: &mpsc::Sender<Vec<u8>>) {
    let stdin = io::stdin();
    loop {
        let mut fds = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let [typed, stop] = fds.map(|fd| fd.revents());
        if !stop.is_empty() {
            return;
        }
        if typed.is_empty() {
            continue;
        }
        let mut bytes = vec![0; PIECE_BYTES_MAX];
        // Past the buffer of the standard library, which somebody else has locked.
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => return,
            Ok(n) => {
                bytes.truncate(n);
                if tell.blocking_send(bytes).is_err() {
                    return;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_one_that_the_service_takes_or_none() {
        let size = |cols, rows| Some(Size { cols, rows });
        assert_eq!(bounded(80, 24), size(80, 24));
        assert_eq!(bounded(0, 24), None);
        assert_eq!(bounded(80, 0), None);
        assert_eq!(bounded(2_000, 9), size(1_000, 9));
        assert_eq!(bounded(1_000, 900), size(1_000, 250));
        assert_eq!(bounded(1, u16::MAX), size(1, 1_000));
    }
}
