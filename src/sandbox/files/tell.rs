//! What a clerk is asked for one file or one directory.

use std::io;

use rustix::io::Errno;

use super::{AHEAD_BYTES_MAX, Clerk, Failed, Told};
use crate::agent::protocol::files::{
    self, Ask, CHUNK_BYTES_MAX, Links, Meta, Page, Say, Tag, Trouble, Until,
};
use crate::workspace::{
    Bounds, Cutter, End, Family, FileError, Kind, NAME_BYTES_MAX, SAMPLE_BYTES_MAX, Slice, Window,
};

/// Entries that are asked for at once.
pub(super) const PAGE_ENTRIES: u32 = 1024;
/// Bytes of the names and the targets of one listing.
const LISTED_BYTES_MAX: usize = 32 << 20;
/// Bytes of lines as they lie in a file for each byte of their text: a line end of three
/// bytes becomes one.
const BYTES_FOR_ONE: u64 = 3;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// What it says, where it is a link.
    pub target: Option<Vec<u8>>,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHow {
    /// Whatever is there, with directories above it.
    Anything,
    /// Only in place of this content.
    InPlaceOf(Tag),
}

impl Clerk {
    /// Says what is at a path, following links.
    pub async fn kind(&mut self, path: &[u8]) -> Told<Kind> {
        let links = Links::Followed;
        let path = path.to_vec();
        self.ask(&[Ask::Stat { path, links }]).await?;
        Ok(kind_of(self.meta(u64::MAX).await?.kind))
    }

    /// Reads a whole file that has at most so many bytes.
    pub async fn whole(&mut self, path: &[u8], most: u64) -> Told<(Vec<u8>, Tag)> {
        let read = most.saturating_add(1);
        let meta = self.open(path, most, read).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(read.saturating_sub(count(bytes.len()))).await? {
            self.make_room(bytes.len() + piece.len()).await?;
            bytes.extend_from_slice(&piece);
        }
        let size = count(bytes.len());
        if most < size {
            return Err(FileError::TooLarge {
                bytes: size,
                limit: most,
            }
            .into());
        }
        Ok((bytes, meta.tag))
    }

    /// Reads lines of a text, and of the rest only how many there are where that can be.
    pub async fn lines(
        &mut self,
        path: &[u8],
        window: Window,
        family: Family,
        bounds: Bounds,
    ) -> Told<Slice> {
        let sample = count(SAMPLE_BYTES_MAX);
        let meta = self.open(path, u64::MAX, sample).await?;
        let mut head = Vec::new();
        while let Some(piece) = self.piece(sample.saturating_sub(count(head.len()))).await? {
            head.extend_from_slice(&piece);
        }
        let cutter = Cutter::begin(&head, window, family, bounds)?;
        let slice = if head.len() < SAMPLE_BYTES_MAX {
            all_lines(cutter, &head).map_err(Failed::File)
        } else if cutter.is_utf8() {
            drop(head);
            self.counted_lines(window, bounds, cutter).await
        } else {
            drop(head);
            self.decoded_lines(bounds, cutter).await
        };
        slice.map_err(|failed| match failed {
            Failed::File(error) => sized(error, meta.tag.size).into(),
            failed => failed,
        })
    }

    /// Reads lines of a text that is read to its end, for only here is it known where the
    /// lines of its encoding end.
    async fn decoded_lines(&mut self, bounds: Bounds, mut cutter: Cutter) -> Told<Slice> {
        let (from, most) = (cutter.mark_bytes(), bounds.scan_bytes_max);
        let range = Ask::Range {
            from,
            most: most.saturating_add(1),
            until: Until::End,
        };
        self.ask(&[range]).await?;
        // Of what is read only the text is kept; it may be large.
        self.make_room(usize::MAX).await?;
        let (mut left, mut read) = (most, 0);
        while let Some(piece) = self.piece(most.saturating_add(1) - read).await? {
            let kept = count(piece.len()).min(left);
            read += count(piece.len());
            left -= kept;
            let kept = usize::try_from(kept).unwrap_or(usize::MAX);
            cutter.take(piece.get(..kept).unwrap_or(&piece))?;
        }
        let end = if most < read { End::Bound } else { End::OfFile };
        Ok(cutter.finish(end)?)
    }

    /// Reads lines of a text in UTF-8; the others are counted where it lies.
    async fn counted_lines(
        &mut self,
        window: Window,
        bounds: Bounds,
        mut cutter: Cutter,
    ) -> Told<Slice> {
        let Window { offset, limit } = window;
        let lines = Ask::Lines {
            from: cutter.mark_bytes(),
            offset,
            limit,
            most: bounds.scan_bytes_max,
        };
        self.ask(&[lines]).await?;
        cutter.skip();
        let mut room = bounds.text_bytes_max.saturating_add(1);
        room = room.saturating_mul(BYTES_FOR_ONE);
        let mut taken = 0;
        loop {
            match self.hear().await? {
                Say::Bytes(piece) => {
                    let left = room.checked_sub(count(piece.len()));
                    room = left
                        .filter(|_| !piece.is_empty())
                        .ok_or_else(Failed::unfit)?;
                    taken += piece.len();
                    self.make_room(taken).await?;
                    cutter.take(&piece)?;
                }
                Say::Counted { lines, whole } => {
                    self.settled();
                    let end = if whole { End::OfFile } else { End::Bound };
                    return Ok(cutter.finish_counted(lines, end)?);
                }
                other => return Err(self.refused(&other, 0)),
            }
        }
    }

    /// Replaces a file; at once, or not at all.
    pub async fn write(&mut self, path: &[u8], bytes: &[u8], how: WriteHow) -> Told<()> {
        let (parents, expected) = match how {
            WriteHow::Anything => (true, None),
            WriteHow::InPlaceOf(tag) => (false, Some(tag)),
        };
        let path = path.to_vec();
        self.ask(&[Ask::Draft { path, parents }]).await?;
        self.done().await?;
        for chunk in bytes.chunks(CHUNK_BYTES_MAX) {
            let mut frame = Vec::new();
            let put = Ask::Data(chunk.to_vec()).put(&mut frame);
            put.map_err(|_| Failed::unfit())?;
            self.send(&frame, 0).await?;
        }
        self.ask(&[Ask::Commit { expected }]).await?;
        self.meta(0).await.map(|_| ())
    }

    /// Lists a directory, at most so many entries of it.
    pub async fn list(&mut self, path: &[u8], most: usize) -> Told<Vec<Listed>> {
        let path = path.to_vec();
        self.ask(&[Ask::List { path }]).await?;
        self.done().await?;
        let (mut listed, mut bytes) = (Vec::new(), 0_usize);
        loop {
            self.ask(&[Ask::More {
                entries: PAGE_ENTRIES,
            }])
            .await?;
            for told in 0..=PAGE_ENTRIES {
                match self.hear().await? {
                    Say::Entry(entry) => {
                        if NAME_BYTES_MAX < entry.path.len() || entry.path.contains(&b'/') {
                            return Err(Failed::unfit());
                        }
                        bytes += entry.path.len() + entry.target.as_ref().map_or(0, Vec::len);
                        self.make_room(bytes).await?;
                        if most <= listed.len() || LISTED_BYTES_MAX < bytes {
                            return Ok(listed);
                        }
                        listed.push(Listed {
                            name: entry.path,
                            kind: kind_of(entry.kind),
                            size: entry.size,
                            target: entry.target,
                        });
                    }
                    Say::Page(page) => {
                        self.settled();
                        match page {
                            Page::More if told == PAGE_ENTRIES => break,
                            Page::More => return Err(Failed::unfit()),
                            Page::Last | Page::TooDeep | Page::TooMany => return Ok(listed),
                        }
                    }
                    other => return Err(self.refused(&other, 0)),
                }
            }
            if self.owed != 0 {
                return Err(Failed::unfit());
            }
        }
    }

    /// Opens a file that has at most so many bytes, and asks for its beginning at once.
    async fn open(&mut self, path: &[u8], most: u64, read: u64) -> Told<Meta> {
        let open = Ask::Open {
            path: path.to_vec(),
            links: Links::Followed,
            most,
        };
        let range = Ask::Range {
            from: 0,
            most: read,
            until: Until::End,
        };
        self.ask(&[open, range]).await?;
        match self.meta(most).await {
            Ok(meta) => Ok(meta),
            Err(Failed::File(error)) => {
                // Nothing is open that could be read.
                match self.hear().await? {
                    Say::Failed(_) => self.settled(),
                    _ => return Err(Failed::unfit()),
                }
                let name = path.rsplit(|byte| *byte == b'/').next();
                let name = name.unwrap_or_default().to_vec();
                Err(Failed::File(match error {
                    FileError::Special { .. } => FileError::Special { name },
                    error => error,
                }))
            }
            Err(failed) => Err(failed),
        }
    }

    /// Hears the next piece of a range, of which so many bytes may come; nothing at its end.
    async fn piece(&mut self, left: u64) -> Told<Option<Vec<u8>>> {
        match self.hear().await? {
            // Whoever says nothing again and again would keep us for ever.
            Say::Bytes(piece) if piece.is_empty() || left < count(piece.len()) => {
                Err(Failed::unfit())
            }
            Say::Bytes(piece) => Ok(Some(piece)),
            Say::Done => {
                self.settled();
                Ok(None)
            }
            other => Err(self.refused(&other, 0)),
        }
    }

    pub(super) async fn done(&mut self) -> Told<()> {
        match self.hear().await? {
            Say::Done => {
                self.settled();
                Ok(())
            }
            other => Err(self.refused(&other, 0)),
        }
    }

    pub(super) async fn meta(&mut self, most: u64) -> Told<Meta> {
        match self.hear().await? {
            Say::Meta(meta) => {
                self.settled();
                Ok(meta)
            }
            other => Err(self.refused(&other, most)),
        }
    }

    /// Makes an error of what was said in place of an answer.
    pub(super) fn refused(&mut self, said: &Say, limit: u64) -> Failed {
        match said {
            Say::Failed(why) => {
                self.settled();
                Failed::File(error_of(*why, limit))
            }
            Say::Done
            | Say::Meta(_)
            | Say::Bytes(_)
            | Say::Counted { .. }
            | Say::Entry(_)
            | Say::Left { .. }
            | Say::Page(_) => Failed::unfit(),
        }
    }

    /// Returns whether requests may be sent together without hearing an answer.
    pub(super) fn fits_ahead(bytes: usize) -> bool {
        bytes <= AHEAD_BYTES_MAX
    }
}

fn all_lines(mut cutter: Cutter, head: &[u8]) -> Result<Slice, FileError> {
    let mark = usize::try_from(cutter.mark_bytes()).unwrap_or(0);
    cutter.take(head.get(mark..).unwrap_or_default())?;
    cutter.finish(End::OfFile)
}

/// Puts trouble into the kinds that callers tell apart.
pub(super) fn error_of(why: Trouble, limit: u64) -> FileError {
    let name = Vec::new();
    match why {
        Trouble::IsDirectory => FileError::IsDirectory,
        Trouble::Special | Trouble::Kernel => FileError::Special { name },
        Trouble::TooLarge(bytes) => FileError::TooLarge { bytes, limit },
        Trouble::Changed => FileError::Changed,
        Trouble::Bad => FileError::Io(io::Error::other("it was not understood in the sandbox")),
        Trouble::Errno(number) => {
            let number = i32::try_from(number).unwrap_or(0);
            match Errno::from_raw_os_error(number) {
                // Within the sandbox these say what they say everywhere.
                Errno::LOOP | Errno::XDEV | Errno::AGAIN => {
                    FileError::Io(io::Error::from_raw_os_error(number))
                }
                errno => FileError::from(errno),
            }
        }
    }
}

pub(super) fn kind_of(kind: files::Kind) -> Kind {
    match kind {
        files::Kind::File => Kind::File,
        files::Kind::Dir => Kind::Dir,
        files::Kind::Link => Kind::Link,
        files::Kind::Other => Kind::Other,
    }
}

/// Tells of a file's own size where what was wanted of it is too large.
fn sized(error: FileError, size: u64) -> FileError {
    match error {
        FileError::TooLarge { bytes, limit } => FileError::TooLarge {
            bytes: bytes.max(size),
            limit,
        },
        other => other,
    }
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
