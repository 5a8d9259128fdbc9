//! Walks below a directory in a sandbox, and hands on the files that are wanted of it.

use std::io::{self, Read};

use tokio::sync::mpsc;

use super::tell::{PAGE_ENTRIES, error_of, kind_of};
use super::{Clerk, Failed, Told};
use crate::agent::protocol::files::{
    Ask, DEPTH_MAX, Links, PATH_BYTES_MAX, Page, Say, Trouble, Until,
};
use crate::workspace::search::{Cut, Hidden, Pattern, Why};
use crate::workspace::{FileError, Kind};

/// Pieces that wait for whoever searches them, each of a chunk at most.
pub const PIECES_MAX: usize = 16;
/// Files that are asked for at once.
const FILES_MAX: usize = 64;

/// What is looked for below a directory.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// The directory.
    pub root: &'a [u8],
    /// What becomes of what is hidden.
    pub hidden: Hidden,
    /// What a file's path must fit, if anything.
    pub filter: Option<&'a Pattern>,
    /// Entries that are looked at.
    pub entries: usize,
}

/// A piece of what is searched.
#[derive(Debug)]
pub enum Piece {
    /// A file begins, which has this path below the start.
    File(Vec<u8>),
    /// Some of it.
    Bytes(Vec<u8>),
    /// It has ended, or could not be read any further.
    End(Result<(), io::Error>),
    /// A path was left out.
    Left(Vec<u8>, Why),
    /// The walk ended before it had seen everything.
    Cut(Cut),
}

impl Clerk {
    /// Finds the regular files below a directory, in the order of their paths.
    ///
    /// `found` says whether to go on. Returns the bound that ended the walk, if one did.
    pub async fn find(
        &mut self,
        sought: Sought<'_>,
        found: &mut (impl FnMut(Vec<u8>) -> bool + Send),
    ) -> Told<Option<Cut>> {
        self.begin_walk(sought).await?;
        let (mut seen, mut bytes) = (0, 0);
        loop {
            let mut is_wanted = true;
            let end = self
                .page(sought, &mut seen, &mut |one| match one {
                    Ok(path) if is_wanted => {
                        bytes += path.len();
                        is_wanted = found(path);
                    }
                    Ok(_) | Err(_) => {}
                })
                .await?;
            self.make_room(bytes).await?;
            match end {
                _ if !is_wanted => return Ok(None),
                Turn::Over(cut) => return Ok(cut),
                Turn::Next => {}
            }
        }
    }

    /// Hands on the content of all files below a directory that are wanted, in the order
    /// of their paths, for as long as somebody takes it.
    pub async fn pour(&mut self, sought: Sought<'_>, to: &mpsc::Sender<Piece>) -> Told<()> {
        self.begin_walk(sought).await?;
        let mut seen = 0;
        loop {
            let mut wanted = Vec::new();
            let mut left = Vec::new();
            let end = self
                .page(sought, &mut seen, &mut |one| match one {
                    Ok(path) => wanted.push(path),
                    Err(one) => left.push(one),
                })
                .await?;
            for (path, why) in left {
                if give(to, Piece::Left(path, why)).await == Taken::NoMore {
                    return Ok(());
                }
            }
            if self.pour_files(sought.root, wanted, to).await? == Taken::NoMore {
                return Ok(());
            }
            match end {
                Turn::Next => {}
                Turn::Over(None) => return Ok(()),
                Turn::Over(Some(cut)) => {
                    // Nobody is there where it is not heard.
                    give(to, Piece::Cut(cut)).await;
                    return Ok(());
                }
            }
        }
    }

    /// Hands on the content of the file at a path.
    pub async fn pour_one(&mut self, path: &[u8], to: &mpsc::Sender<Piece>) -> Told<()> {
        let open = Ask::Open {
            path: path.to_vec(),
            links: Links::Followed,
            most: u64::MAX,
        };
        self.ask(&[open, WHOLE]).await?;
        self.pour_next(Vec::new(), to, Start::Told)
            .await
            .map(|_| ())
    }

    async fn begin_walk(&mut self, sought: Sought<'_>) -> Told<()> {
        let walk = Ask::Walk {
            path: sought.root.to_vec(),
            hidden: sought.hidden == Hidden::Searched,
            depth: DEPTH_MAX,
        };
        self.ask(&[walk]).await?;
        self.done().await
    }

    /// Hears a part of a walk.
    async fn page(
        &mut self,
        sought: Sought<'_>,
        seen: &mut usize,
        tell: &mut (impl FnMut(Result<Vec<u8>, (Vec<u8>, Why)>) + Send),
    ) -> Told<Turn> {
        let entries = PAGE_ENTRIES;
        self.ask(&[Ask::More { entries }]).await?;
        for told in 0..=entries {
            let said = self.hear().await?;
            if matches!(&said, Say::Entry(_) | Say::Left { .. }) {
                *seen += 1;
                if sought.entries < *seen {
                    return Ok(Turn::Over(Some(Cut::Entries)));
                }
            }
            match said {
                Say::Entry(entry) => {
                    let fits = |path: &[u8]| sought.filter.is_none_or(|filter| filter.fits(path));
                    if kind_of(entry.kind) == Kind::File && fits(&entry.path) {
                        tell(Ok(entry.path));
                    }
                }
                Say::Left { path, why } => tell(Err((path, left_out(why)))),
                Say::Page(page) => {
                    self.settled();
                    return Ok(match page {
                        Page::More if told == entries => Turn::Next,
                        Page::More => return Err(Failed::unfit()),
                        Page::Last => Turn::Over(None),
                        Page::TooDeep => Turn::Over(Some(Cut::Depth)),
                        Page::TooMany => Turn::Over(Some(Cut::Entries)),
                    });
                }
                other => return Err(self.refused(&other, 0)),
            }
        }
        Err(Failed::unfit())
    }

    /// Hands on files below a directory, of which several are asked for at once.
    async fn pour_files(
        &mut self,
        root: &[u8],
        wanted: Vec<Vec<u8>>,
        to: &mpsc::Sender<Piece>,
    ) -> Told<Taken> {
        let mut wanted = wanted.into_iter().peekable();
        while wanted.peek().is_some() {
            let (mut bytes, mut asked) = (Vec::new(), Vec::new());
            while let Some(path) = wanted.next_if(|path| {
                let after = bytes.len() + root.len() + path.len() + FRAMES_BYTES;
                asked.is_empty() || (asked.len() < FILES_MAX && Self::fits_ahead(after))
            }) {
                let whole = [root, b"/", &path].concat();
                if PATH_BYTES_MAX < whole.len() {
                    let left = Piece::Left(path, Why::LongName);
                    if give(to, left).await == Taken::NoMore {
                        return Ok(Taken::NoMore);
                    }
                    continue;
                }
                let open = Ask::Open {
                    path: whole,
                    links: Links::Kept,
                    most: u64::MAX,
                };
                for ask in [open, WHOLE] {
                    ask.put(&mut bytes).map_err(|_| Failed::unfit())?;
                }
                asked.push(path);
            }
            self.send(&bytes, asked.len() * 2).await?;
            for path in asked {
                if self.pour_next(path, to, Start::Found).await? == Taken::NoMore {
                    return Ok(Taken::NoMore);
                }
            }
        }
        Ok(Taken::All)
    }

    /// Hands on the next of the files that were asked for.
    async fn pour_next(
        &mut self,
        path: Vec<u8>,
        to: &mpsc::Sender<Piece>,
        start: Start,
    ) -> Told<Taken> {
        match self.hear().await? {
            Say::Meta(_) => self.settled(),
            Say::Failed(why) => {
                self.settled();
                match self.hear().await? {
                    Say::Failed(_) => self.settled(),
                    _ => return Err(Failed::unfit()),
                }
                if start == Start::Told {
                    return Err(error_of(why, 0).into());
                }
                return Ok(give(to, Piece::Left(path, left_out(why))).await);
            }
            _ => return Err(Failed::unfit()),
        }
        if give(to, Piece::File(path)).await == Taken::NoMore {
            return Ok(Taken::NoMore);
        }
        loop {
            let piece = match self.hear().await? {
                Say::Bytes(piece) if !piece.is_empty() => Piece::Bytes(piece),
                Say::Done => {
                    self.settled();
                    return Ok(give(to, Piece::End(Ok(()))).await);
                }
                Say::Failed(why) => {
                    self.settled();
                    return Ok(give(to, Piece::End(Err(read_error(why)))).await);
                }
                _ => return Err(Failed::unfit()),
            };
            if give(to, piece).await == Taken::NoMore {
                return Ok(Taken::NoMore);
            }
        }
    }
}

/// Asks for all of the file that is open, if it is text.
const WHOLE: Ask = Ask::Range {
    from: 0,
    most: u64::MAX,
    until: Until::Zero,
};
/// Bytes of the two requests for a file beside its path.
const FRAMES_BYTES: usize = 64;

/// Whether there is more of a walk.
enum Turn {
    Next,
    Over(Option<Cut>),
}

/// Whether what is handed on is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    All,
    NoMore,
}

/// Whether a file is what the search was told to begin with, or was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Told,
    Found,
}

/// Hands on a piece.
async fn give(to: &mpsc::Sender<Piece>, piece: Piece) -> Taken {
    match to.send(piece).await {
        Ok(()) => Taken::All,
        Err(_) => Taken::NoMore,
    }
}

/// Says why something is left out of a search.
fn left_out(why: Trouble) -> Why {
    match why {
        Trouble::Kernel => Why::Elsewhere,
        why => match error_of(why, 0) {
            // What is a link now was a file before.
            FileError::Io(error) if is_link(&error) => Why::Changed,
            error => error.into(),
        },
    }
}

fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn read_error(why: Trouble) -> io::Error {
    match why {
        Trouble::Errno(number) => {
            io::Error::from_raw_os_error(i32::try_from(number).unwrap_or_default())
        }
        // The file is open: nothing else can be said of it.
        _ => rustix::io::Errno::IO.into(),
    }
}

/// Reads one file out of the pieces of a search, for those who block.
#[derive(Debug)]
pub struct Reading<'a> {
    from: &'a mut mpsc::Receiver<Piece>,
    piece: Vec<u8>,
    read: usize,
    has_ended: bool,
}

impl<'a> Reading<'a> {
    /// Begins behind the piece that says that a file begins.
    pub fn of(from: &'a mut mpsc::Receiver<Piece>) -> Self {
        Self {
            from,
            piece: Vec::new(),
            read: 0,
            has_ended: false,
        }
    }

    /// Passes over what was not read of the file.
    pub fn pass(mut self) {
        while !self.has_ended {
            self.has_ended = !matches!(self.from.blocking_recv(), Some(Piece::Bytes(_)));
        }
    }
}

impl Read for Reading<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let rest = self.piece.get(self.read..).unwrap_or_default();
            if !rest.is_empty() || self.has_ended {
                let mut rest = rest;
                let n = rest.read(buffer)?;
                self.read += n;
                return Ok(n);
            }
            match self.from.blocking_recv() {
                Some(Piece::Bytes(piece)) => (self.piece, self.read) = (piece, 0),
                Some(Piece::End(Err(error))) => {
                    self.has_ended = true;
                    return Err(error);
                }
                // Where it broke off, whoever waits for the whole knows it.
                Some(Piece::End(Ok(())) | Piece::File(_) | Piece::Left(..) | Piece::Cut(_))
                | None => self.has_ended = true,
            }
        }
    }
}
