//! Finds the files whose paths fit a pattern.

use super::patience::{Cut, Patience, Reach};
use super::pattern::Pattern;
use super::skipped::Skipped;
use super::start::{SearchError, Start};
use super::walk::Walk;
use crate::workspace::Kind;

/// What a search for files may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobBounds {
    /// How far the walk goes.
    pub reach: Reach,
    /// So many paths are returned.
    pub paths: usize,
    /// The returned paths have at most so many bytes together.
    pub bytes: usize,
}

/// The files that fit a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Globbed {
    /// Paths below the start, in the order of their bytes.
    pub paths: Vec<Vec<u8>>,
    /// The bound that ended the search early; what was found until then is kept.
    pub cut: Option<Cut>,
    /// Directories that could not be read.
    pub skipped: Skipped,
}

/// Finds the regular files below a start that fit a pattern, hidden ones too.
///
/// Links and special files are no results. A deadline or a bound ends the search with
/// what was found; a caller that goes ends it with an error.
pub fn glob(
    start: Start<'_>,
    pattern: &Pattern,
    bounds: &GlobBounds,
    patience: &Patience,
) -> Result<Globbed, SearchError> {
    let mut walk = Walk::begin(&start.directory()?, bounds.reach).map_err(SearchError::Start)?;
    let mut paths = Vec::new();
    let mut bytes = 0_usize;
    loop {
        let kind = match walk.next(patience) {
            Ok(Some(kind)) => kind,
            Ok(None) => break,
            Err(stop) => {
                walk.note_cut(SearchError::unless_late(stop)?);
                break;
            }
        };
        if kind != Kind::File || !pattern.fits(walk.path()) {
            continue;
        }
        bytes = bytes.saturating_add(walk.path().len());
        if bounds.paths <= paths.len() {
            walk.note_cut(Cut::Results);
            break;
        }
        if bounds.bytes < bytes {
            walk.note_cut(Cut::Bytes);
            break;
        }
        paths.push(walk.path().to_vec());
    }
    Ok(Globbed {
        paths,
        cut: walk.cut,
        skipped: walk.skipped,
    })
}
