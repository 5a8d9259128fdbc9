//! Goes down from a directory that is held, also where no single path is long enough.

use super::skipped::Why;
use crate::workspace::{Dir, FileError, RelPath};

/// A longer path is opened in pieces: the system takes at most 4,096 bytes at once.
const PIECE_BYTES_MAX: usize = 4_000;

/// Returns the path of a name in the directory that holds it.
pub(in crate::workspace) fn named(name: &[u8]) -> Result<RelPath, Why> {
    // A directory has no other names; a file system that says so is broken.
    RelPath::work_dir().child(name).map_err(|_| Why::Changed)
}

/// Opens the directory at a path below `dir`; `dir` itself for an empty path.
pub(in crate::workspace) fn descend(dir: &Dir, path: &[u8]) -> Result<Dir, FileError> {
    let mut held = dir.clone();
    for piece in pieces(path) {
        let piece = RelPath::parse(piece).map_err(|_| FileError::NotFound)?;
        held = held.open_dir(&piece)?;
    }
    Ok(held)
}

/// Cuts a path between its names into pieces that the system takes.
fn pieces(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = match rest.get(..PIECE_BYTES_MAX) {
            None => rest.len(),
            // A name has at most 255 bytes, so there is a slash.
            Some(head) => head
                .iter()
                .rposition(|byte| *byte == b'/')
                .unwrap_or(rest.len()),
        };
        let (piece, tail) = rest.split_at(end);
        rest = tail.strip_prefix(b"/").unwrap_or(tail);
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workspace::search::tests::root;

    #[test]
    fn a_path_is_cut_between_its_names() {
        let path = vec![b"0123456789".as_slice(); 1_000].join(&b'/');
        let cut: Vec<_> = pieces(&path).collect();
        assert!(cut.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX));
        assert_eq!(cut.join(&b'/'), path);
        assert_eq!(pieces(b"").count(), 0);
    }

    #[test]
    fn no_link_and_no_climb_is_gone_down() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("in/deep")).unwrap();
        symlink("in", dir.path().join("link")).unwrap();
        symlink("/etc", dir.path().join("out")).unwrap();
        let root = root(dir.path());
        assert!(descend(&root, b"in/deep").is_ok());
        for path in [
            "link",
            "out",
            "link/deep",
            "..",
            "in/../..",
            "/etc",
            "in/no",
        ] {
            assert!(descend(&root, path.as_bytes()).is_err(), "{path}");
        }
    }
}
