//! Finds the lines that a regular expression matches.
//!
//! Files are opened by the walk and read through [`Metered`], which looks at the deadline
//! and counts; nothing is mapped into memory, since the sandbox could cut such a file off
//! under the search. A file with a NUL in what was read of it is binary and has no hits.

use std::cell::Cell;
use std::io::{self, Read};

use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};

use super::ahead::{self, Flow, Next};
use super::expression::Expression;
use super::patience::{Cut, Patience, Reach, Stop};
use super::pattern::Pattern;
use super::skipped::{Skipped, Why};
use super::start::{SearchError, Start};
use super::walk::Walk;
use crate::workspace::FileError;

/// Whether what is hidden, whose name begins with a dot, is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// Hidden files, and all below hidden directories, are passed by.
    Skipped,
    /// They are searched like others.
    Searched,
}

/// What is searched for, and where.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// What a line must match.
    pub expression: &'a Expression,
    /// What a file's path must fit, if anything.
    pub filter: Option<&'a Pattern>,
    /// What becomes of hidden files. A start that is hidden itself is always searched.
    pub hidden: Hidden,
}

impl Query<'_> {
    /// Tells whether a file of this path is searched.
    pub(super) fn wants(&self, path: &[u8]) -> bool {
        self.filter.is_none_or(|filter| filter.fits(path))
    }
}

/// What a search for lines may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrepBounds {
    /// How far the walk goes.
    pub reach: Reach,
    /// So many hits are returned.
    pub hits: usize,
    /// The returned hits have at most so many bytes together, paths included.
    pub bytes: usize,
    /// A returned line is cut after so many bytes.
    pub line_bytes: usize,
    /// So many bytes are read of all files together.
    pub read_bytes: u64,
}

/// A line that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The file's path below the start; empty when the start is the file.
    pub path: Vec<u8>,
    /// The line's number, from 1.
    pub line_number: u64,
    /// The line without its end. Text in UTF-16 comes as UTF-8.
    pub line: Vec<u8>,
    /// Whether the line was longer than a returned one may be.
    pub is_line_cut: bool,
}

/// The lines that matched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grepped {
    /// Hits in the order of their paths, and of lines in a file.
    pub hits: Vec<Hit>,
    /// The bound that ended the search early; what was found until then is kept.
    pub cut: Option<Cut>,
    /// Files and directories that could not be searched, or not to their end.
    pub skipped: Skipped,
}

/// Finds the lines that match in the file at the start, or in all files below it.
///
/// Links are not followed, special files and binary ones are passed by. A deadline or a
/// bound ends the search with what was found; a caller that goes ends it with an error.
pub fn grep(
    start: Start<'_>,
    query: Query<'_>,
    bounds: &GrepBounds,
    patience: &Patience,
) -> Result<Grepped, SearchError> {
    let search = Search::begin(query, bounds, patience);
    match start.dir.open_dir(start.path) {
        Ok(dir) => search.directory(&dir),
        Err(FileError::NotDirectory) => search.single(start),
        Err(error) => Err(SearchError::Start(error)),
    }
}

fn searcher(expression: &Expression) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(expression.line_bytes_max()))
        .build()
}

/// A search for lines in one file after another, whoever opens and reads them.
#[derive(Debug)]
pub struct Search<'a> {
    query: Query<'a>,
    bounds: &'a GrepBounds,
    patience: &'a Patience,
    searcher: Searcher,
    hits: Vec<Hit>,
    bytes: usize,
    room: u64,
}

/// How the search of one file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At its end, or where it turned out to be no text.
    Whole,
    /// Before, for this reason.
    Left(Why),
    /// With a bound of the whole search.
    Cut(Cut),
    /// The caller has gone.
    Cancelled,
}

impl<'a> Search<'a> {
    /// Begins a search that has found nothing yet.
    pub fn begin(query: Query<'a>, bounds: &'a GrepBounds, patience: &'a Patience) -> Self {
        Self {
            query,
            bounds,
            patience,
            searcher: searcher(query.expression),
            hits: Vec::new(),
            bytes: 0,
            room: bounds.read_bytes,
        }
    }

    /// Returns the hits.
    pub fn into_hits(self) -> Vec<Hit> {
        self.hits
    }

    fn directory(mut self, dir: &crate::workspace::Dir) -> Result<Grepped, SearchError> {
        let walk = Walk::begin(dir, self.bounds.reach).map_err(SearchError::Start)?;
        let mut grepped = Grepped::default();
        ahead::each(walk, (self.query, self.patience), |next| {
            self.take(next, &mut grepped)
        })?;
        grepped.hits = self.hits;
        Ok(grepped)
    }

    fn take(&mut self, next: Next, grepped: &mut Grepped) -> Result<Flow, SearchError> {
        grepped.skipped.absorb(next.left);
        let Some((path, opened)) = next.file else {
            grepped.cut = next.cut;
            return Ok(Flow::Over);
        };
        let ending = match opened {
            Ok(opened) => self.file(opened.file, &path),
            Err(why) => Ending::Left(why),
        };
        match ending {
            Ending::Whole => Ok(Flow::On),
            Ending::Left(why) => {
                grepped.skipped.note(&path, why);
                Ok(Flow::On)
            }
            Ending::Cut(cut) => {
                grepped.cut = Some(cut);
                Ok(Flow::Over)
            }
            Ending::Cancelled => Err(SearchError::Cancelled),
        }
    }

    fn single(mut self, start: Start<'_>) -> Result<Grepped, SearchError> {
        let opened = start
            .dir
            .open_file(start.path)
            .map_err(SearchError::Start)?;
        let mut grepped = Grepped::default();
        if self.query.wants(start.path.name().unwrap_or_default()) {
            match self.file(opened.file, b"") {
                Ending::Whole => {}
                Ending::Left(why) => grepped.skipped.note(b"", why),
                Ending::Cut(cut) => grepped.cut = Some(cut),
                Ending::Cancelled => return Err(SearchError::Cancelled),
            }
        }
        grepped.hits = self.hits;
        Ok(grepped)
    }

    /// Searches a file, under this path.
    pub fn file(&mut self, file: impl Read, path: &[u8]) -> Ending {
        let stop = Cell::new(None);
        let room = Cell::new(self.room);
        let metered = Metered {
            file,
            room: &room,
            patience: self.patience,
            stop: &stop,
        };
        let (n_hits, bytes) = (self.hits.len(), self.bytes);
        let mut sink = Finds {
            path,
            bounds: self.bounds,
            hits: &mut self.hits,
            bytes: &mut self.bytes,
            full: None,
            is_binary: false,
        };
        let matcher = self.query.expression.matcher();
        let searched = self.searcher.search_reader(matcher, metered, &mut sink);
        let (full, is_binary) = (sink.full, sink.is_binary);
        self.room = room.get();
        if is_binary {
            self.hits.truncate(n_hits);
            self.bytes = bytes;
        }
        match (searched, stop.get(), full) {
            (_, Some(Halt::Stopped(Stop::Cancelled)), _) => Ending::Cancelled,
            (_, Some(Halt::Stopped(Stop::Late)), _) => Ending::Cut(Cut::Late),
            (_, Some(Halt::Full), _) => Ending::Cut(Cut::Read),
            (_, None, Some(cut)) if !is_binary => Ending::Cut(cut),
            (Ok(()), None, _) => Ending::Whole,
            (Err(error), None, _) => Ending::Left(why(&error)),
        }
    }
}

/// The one error of the searcher itself is that a line does not fit into its memory.
fn why(error: &io::Error) -> Why {
    if error.raw_os_error().is_none() {
        Why::LongLine
    } else {
        Why::Unreadable(error.kind())
    }
}

/// Why reading was given up.
#[derive(Clone, Copy, Debug)]
enum Halt {
    Stopped(Stop),
    Full,
}

/// A file whose reading ends with the patience, or when enough was read.
struct Metered<'a, R> {
    file: R,
    room: &'a Cell<u64>,
    patience: &'a Patience,
    stop: &'a Cell<Option<Halt>>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let halt = match self.patience.check() {
            Err(stop) => Some(Halt::Stopped(stop)),
            Ok(()) if self.room.get() == 0 => Some(Halt::Full),
            Ok(()) => None,
        };
        if let Some(halt) = halt {
            self.stop.set(Some(halt));
            return Err(io::Error::other("the search has to end"));
        }
        let n_read = self.file.read(buffer)?;
        let counted = u64::try_from(n_read).unwrap_or(u64::MAX);
        self.room.set(self.room.get().saturating_sub(counted));
        Ok(n_read)
    }
}

struct Finds<'a> {
    path: &'a [u8],
    bounds: &'a GrepBounds,
    hits: &'a mut Vec<Hit>,
    bytes: &'a mut usize,
    full: Option<Cut>,
    is_binary: bool,
}

impl Sink for Finds<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, matched: &SinkMatch<'_>) -> io::Result<bool> {
        let line = matched.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let kept = line.get(..self.bounds.line_bytes).unwrap_or(line);
        let bytes = self.bytes.saturating_add(kept.len() + self.path.len());
        if self.bounds.hits <= self.hits.len() {
            self.full = Some(Cut::Results);
        } else if self.bounds.bytes < bytes {
            self.full = Some(Cut::Bytes);
        } else {
            *self.bytes = bytes;
            self.hits.push(Hit {
                path: self.path.to_vec(),
                line_number: matched.line_number().unwrap_or_default(),
                line: kept.to_vec(),
                is_line_cut: kept.len() < line.len(),
            });
        }
        Ok(self.full.is_none())
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.is_binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.is_binary |= finish.binary_byte_offset().is_some();
        Ok(())
    }
}
