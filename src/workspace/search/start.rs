//! Says where a search begins, and how the paths that it finds are spelled.

use super::patience::{Cut, Stop};
use crate::workspace::{Dir, FileError, RelPath};

/// Where a search begins: at a path below a workspace's directory.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The directory that the search stays in.
    pub dir: &'a Dir,
    /// The path below it.
    pub path: &'a RelPath,
}

/// Why a search gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// There is nothing that can be searched where it should begin.
    #[error("open the start of the search")]
    Start(#[source] FileError),
    /// The regular expression is none, or too large.
    #[error("read the pattern: {0}")]
    Expression(String),
    /// The caller has gone.
    #[error("search for a caller that has gone")]
    Cancelled,
}

impl SearchError {
    /// A search that is late answers with what it has; one without a caller does not.
    pub(super) fn unless_late(stop: Stop) -> Result<Cut, Self> {
        match stop {
            Stop::Late => Ok(Cut::Late),
            Stop::Cancelled => Err(Self::Cancelled),
        }
    }
}

impl Start<'_> {
    pub(super) fn directory(&self) -> Result<Dir, SearchError> {
        self.dir.open_dir(self.path).map_err(SearchError::Start)
    }
}

/// Returns whether a root as callers write it means the work directory.
pub fn is_work_directory(root: &str) -> bool {
    root.is_empty() || root.bytes().all(|byte| byte == b'/') || root == "." || root == "./"
}

/// Spells a path that was found below a root as `find` and `grep` spell it.
///
/// Below `src/` it is `src/x`, below `/` it is `/x`, and below the empty root `x`.
pub fn spell(root: &[u8], below: &[u8]) -> Vec<u8> {
    let trimmed = root.iter().rposition(|byte| *byte != b'/');
    let head = trimmed.map_or(&b""[..], |last| root.get(..=last).unwrap_or_default());
    let mut spelled = head.to_vec();
    if !root.is_empty() && !below.is_empty() {
        spelled.push(b'/');
    }
    spelled.extend_from_slice(below);
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_path_is_spelled_below_the_root_as_it_was_asked_for() {
        for (root, below, spelled) in [
            ("/workspace", "a/b", "/workspace/a/b"),
            ("src/", "a", "src/a"),
            ("src//", "a", "src/a"),
            (".", "a", "./a"),
            ("/", "a", "/a"),
            ("", "a", "a"),
            ("one.txt", "", "one.txt"),
        ] {
            let found = spell(root.as_bytes(), below.as_bytes());
            assert_eq!(found, spelled.as_bytes(), "{below} below {root}");
        }
    }

    #[test]
    fn a_root_of_nothing_a_dot_or_a_slash_means_the_work_directory() {
        for root in ["", ".", "./", "/", "//"] {
            assert!(is_work_directory(root), "{root:?}");
        }
        for root in ["a", "..", "/a", "./a"] {
            assert!(!is_work_directory(root), "{root:?}");
        }
    }
}
