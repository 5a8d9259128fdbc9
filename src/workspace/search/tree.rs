//! Lists a tree breadth first.
//!
//! A directory's entries come before those of any directory in it: directories first,
//! then the others, each by name. Links are left out. What waits for its turn is a path,
//! so the listing holds two descriptors however many directories there are.

use std::collections::VecDeque;

use super::descent;
use super::patience::{Cut, DEPTH_MAX, Patience};
use super::skipped::{Skipped, Why};
use super::start::{SearchError, Start};
use super::walk::{Room, list};
use crate::workspace::{Dir, Kind};

/// What a listing of a tree may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeBounds {
    /// So many levels are listed; 1 lists the start alone.
    pub depth: usize,
    /// So many entries are returned.
    pub entries: usize,
    /// The returned paths have at most so many bytes together.
    pub bytes: usize,
}

/// A file or directory of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its path below the start.
    pub path: Vec<u8>,
    /// What it is; never a link.
    pub kind: Kind,
    /// Its size, unless it is a directory.
    pub size: Option<u64>,
    /// When its content changed, in seconds since 1970 and nanoseconds of the second,
    /// unless it is a directory.
    pub modified: Option<(i64, u32)>,
}

/// The entries of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Breadth first.
    pub entries: Vec<Leaf>,
    /// The bound that was met first.
    pub cut: Option<Cut>,
    /// Directories that could not be listed, and files that could not be looked at.
    pub skipped: Skipped,
}

impl Tree {
    /// Returns whether something of the tree is missing.
    pub fn is_truncated(&self) -> bool {
        self.cut.is_some() || !self.skipped.is_empty()
    }
}

/// Lists what lies below a start.
///
/// A directory is read only as far as there is room: one that does not fit gives the
/// entries that the file system told first. A deadline or a bound ends the listing with
/// what was found; a caller that goes ends it with an error.
pub fn tree(
    start: Start<'_>,
    bounds: &TreeBounds,
    patience: &Patience,
) -> Result<Tree, SearchError> {
    let top = start.directory()?;
    let mut listing = Breadth {
        tree: Tree::default(),
        waiting: VecDeque::from([(Vec::new(), 1)]),
        bytes: 0,
        buffer: Vec::new(),
    };
    while let Some((path, level)) = listing.waiting.pop_front() {
        let dir = match descent::descend(&top, &path).and_then(|dir| dir.reopened()) {
            Ok(dir) => dir,
            Err(error) if path.is_empty() => return Err(SearchError::Start(error)),
            Err(error) => {
                listing.tree.skipped.note(&path, error.into());
                continue;
            }
        };
        match listing.level(&dir, (&path, level), bounds, patience) {
            Ok(None) => {}
            Ok(Some(cut)) => {
                listing.tree.cut.get_or_insert(cut);
                break;
            }
            Err(stop) => {
                let cut = SearchError::unless_late(stop)?;
                listing.tree.cut.get_or_insert(cut);
                break;
            }
        }
    }
    Ok(listing.tree)
}

struct Breadth {
    tree: Tree,
    /// Directories to list, each with its level.
    waiting: VecDeque<(Vec<u8>, usize)>,
    bytes: usize,
    buffer: Vec<u8>,
}

impl Breadth {
    /// Adds the entries of one directory; returns the bound that ends the listing.
    fn level(
        &mut self,
        dir: &Dir,
        (above, level): (&[u8], usize),
        bounds: &TreeBounds,
        patience: &Patience,
    ) -> Result<Option<Cut>, super::Stop> {
        patience.check()?;
        let room = Room {
            entries: bounds.entries.saturating_sub(self.tree.entries.len()),
            bytes: bounds.bytes.saturating_sub(self.bytes),
            links: super::walk::Links::LeftOut,
        };
        let mut listed = list(dir, &mut self.buffer, room, patience)?;
        if let Some(error) = listed.failure {
            let error = crate::workspace::FileError::from(error);
            self.tree.skipped.note(above, error.into());
        }
        listed.entries.sort_unstable_by(|a, b| {
            (a.kind != Kind::Dir, &a.name).cmp(&(b.kind != Kind::Dir, &b.name))
        });
        for entry in listed.entries {
            let mut path = above.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            self.bytes = self.bytes.saturating_add(path.len());
            if bounds.bytes < self.bytes {
                return Ok(Some(Cut::Bytes));
            }
            let leaf = match look(dir, &entry.name, entry.kind, path) {
                Ok(leaf) => leaf,
                // It is not there any more, or not as what was listed.
                Err((_, Why::Changed)) => continue,
                Err((path, why)) => {
                    self.tree.skipped.note(&path, why);
                    continue;
                }
            };
            if leaf.kind == Kind::Dir {
                if bounds.depth.min(DEPTH_MAX) <= level {
                    self.tree.cut.get_or_insert(Cut::Depth);
                } else {
                    self.waiting.push_back((leaf.path.clone(), level + 1));
                }
            }
            self.tree.entries.push(leaf);
        }
        Ok(listed.is_cut.then_some(Cut::Entries))
    }
}

fn look(dir: &Dir, name: &[u8], kind: Kind, path: Vec<u8>) -> Result<Leaf, (Vec<u8>, Why)> {
    if kind == Kind::Dir {
        return Ok(Leaf {
            path,
            kind,
            size: None,
            modified: None,
        });
    }
    let found = descent::named(name).and_then(|name| Ok(dir.stat(&name)?));
    match found {
        // It became something else since it was listed.
        Ok(meta) if meta.kind != kind => Err((path, Why::Changed)),
        Ok(meta) => Ok(Leaf {
            path,
            kind,
            size: Some(meta.size),
            modified: Some((meta.modified_secs, meta.modified_nanos)),
        }),
        Err(why) => Err((path, why)),
    }
}
