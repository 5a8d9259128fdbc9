//! Measures what a workspace takes, a step at a time.

use std::collections::BTreeSet;

use super::patience::{Cut, Patience, Reach};
use super::skipped::Skipped;
use super::start::SearchError;
use super::walk::Walk;
use crate::workspace::{Dir, Kind, Meta};

/// So many files with several names are remembered; later ones count at every name.
const LINKED_MAX: usize = 1_000_000;

/// What a workspace takes. The directory that it lies in is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on the disk: blocks, as `du` counts them. A file with holes takes less than
    /// its length, and one with several names is counted once.
    pub disk_bytes: u64,
    /// Lengths of files, holes included, each file once.
    pub bytes: u64,
    /// Regular files, each once.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links, FIFOs, sockets and devices.
    pub others: u64,
}

/// A measuring under way, which can be left off and gone on with.
#[derive(Debug)]
pub struct Measuring {
    walk: Walk,
    usage: Usage,
    linked: BTreeSet<(u64, u64)>,
}

/// Where a measuring stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to count.
    Going,
    /// Everything was counted that a bound did not cut off.
    Done,
}

impl Measuring {
    /// Begins to measure what lies in a directory.
    pub fn begin(dir: &Dir, reach: Reach) -> Result<Self, SearchError> {
        Ok(Self {
            walk: Walk::begin(dir, reach).map_err(SearchError::Start)?,
            usage: Usage::default(),
            linked: BTreeSet::new(),
        })
    }

    /// Counts at most so many entries more.
    ///
    /// A deadline ends the measuring with [`Cut::Late`]; a caller that goes ends it with
    /// an error.
    pub fn advance(
        &mut self,
        entries: usize,
        patience: &Patience,
    ) -> Result<Progress, SearchError> {
        for _ in 0..entries {
            match self.walk.next(patience) {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Progress::Done),
                Err(stop) => {
                    self.walk.note_cut(SearchError::unless_late(stop)?);
                    return Ok(Progress::Done);
                }
            }
            match self.walk.meta() {
                Ok(meta) => self.count(&meta),
                Err(why) => self.walk.skip(why),
            }
        }
        Ok(Progress::Going)
    }

    /// Returns what was counted so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the bound that was met first, if one was.
    pub fn cut(&self) -> Option<Cut> {
        self.walk.cut
    }

    /// Returns what could not be counted.
    pub fn skipped(&self) -> &Skipped {
        &self.walk.skipped
    }

    fn count(&mut self, meta: &Meta) {
        if meta.kind != Kind::Dir && 1 < meta.n_links {
            if self.linked.contains(&meta.identity) {
                return;
            }
            if self.linked.len() < LINKED_MAX {
                self.linked.insert(meta.identity);
            }
        }
        let usage = &mut self.usage;
        usage.disk_bytes = usage.disk_bytes.saturating_add(meta.disk_bytes);
        match meta.kind {
            Kind::File => {
                usage.bytes = usage.bytes.saturating_add(meta.size);
                usage.files += 1;
            }
            Kind::Dir => usage.directories += 1,
            Kind::Link | Kind::Other => usage.others += 1,
        }
    }
}

/// Measures what lies in a directory in one go.
pub fn usage(
    dir: &Dir,
    reach: Reach,
    patience: &Patience,
) -> Result<(Usage, Option<Cut>, Skipped), SearchError> {
    let mut measuring = Measuring::begin(dir, reach)?;
    while measuring.advance(usize::MAX, patience)? == Progress::Going {}
    Ok((measuring.usage, measuring.walk.cut, measuring.walk.skipped))
}
