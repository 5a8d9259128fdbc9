//! Searches of a tree that changes under them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags};

use super::{TOP, plant, root};
use crate::workspace::search::patience::testing;
use crate::workspace::search::{
    Expression, GlobBounds, GrepBounds, Hidden, Pattern, Query, Reach, Start, TreeBounds, glob,
    grep, tree, usage,
};

/// Swaps each pair of names, over and over, until told to end.
fn swap(dir: &Path, pairs: &'static [(&'static str, &'static str)]) -> Swapping {
    let ended = Arc::new(AtomicBool::new(false));
    let (dir, end) = (dir.to_owned(), Arc::clone(&ended));
    let thread = std::thread::spawn(move || {
        let mut n_swaps = 0_u64;
        while !end.load(Ordering::Relaxed) {
            for (left, right) in pairs {
                let (left, right) = (dir.join(left), dir.join(right));
                let how = RenameFlags::EXCHANGE;
                if rustix::fs::renameat_with(CWD, left, CWD, right, how).is_ok() {
                    n_swaps += 1;
                }
            }
        }
        n_swaps
    });
    Swapping { ended, thread }
}

struct Swapping {
    ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Swapping {
    fn end(self) -> u64 {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

const REACH: Reach = Reach {
    depth: 16,
    entries: 1_000,
};
const GLOBS: GlobBounds = GlobBounds {
    reach: REACH,
    paths: 100,
    bytes: 10_000,
};
const GREPS: GrepBounds = GrepBounds {
    reach: REACH,
    hits: 100,
    bytes: 10_000,
    line_bytes: 100,
    read_bytes: 10_000,
};
const TREES: TreeBounds = TreeBounds {
    depth: 16,
    entries: 100,
    bytes: 10_000,
};

/// A workspace with links to what lies beside it: files there hold a secret of 15 bytes,
/// those inside `plain` and a line end.
fn beside(dir: &Path) -> PathBuf {
    let (inside, outside) = (dir.join("ws"), dir.join("outside"));
    let secret = b"secret outside\n";
    plant(&outside, &[("secret", secret), ("deep/secret", secret)]);
    let paths = ["d/secret", "d/deep/secret", "e/deep/secret", "f"];
    plant(&inside, &paths.map(|path| (path, &b"plain\n"[..])));
    symlink(&outside, inside.join("d-link")).unwrap();
    symlink(outside.join("deep"), inside.join("e/deep-link")).unwrap();
    symlink(outside.join("secret"), inside.join("f-link")).unwrap();
    inside
}

#[test]
fn thousands_of_walks_through_swapped_directories_show_nothing_from_outside() {
    let dir = tempfile::tempdir().unwrap();
    let inside = beside(dir.path());
    let swapping = swap(
        &inside,
        &[
            ("d", "d-link"),
            ("e/deep", "e/deep-link"),
            ("f", "f-link"),
            ("d", "e"),
        ],
    );
    let root = root(&inside);
    let start = Start {
        dir: &root,
        path: TOP,
    };
    let patience = testing::long();
    let expression = Expression::parse(".").unwrap();
    let pattern = Pattern::parse("secret").unwrap();
    let query = Query {
        expression: &expression,
        filter: None,
        hidden: Hidden::Searched,
    };
    let mut n_lines = 0;
    for _ in 0..2_000 {
        let lines = grep(start, query, &GREPS, &patience).unwrap();
        n_lines += lines.hits.len();
        assert!(
            lines.hits.iter().all(|hit| hit.line == b"plain"),
            "{lines:?}"
        );
        let found = glob(start, &pattern, &GLOBS, &patience).unwrap();
        assert!(found.paths.len() <= 6, "{found:?}");
        let listed = tree(start, &TREES, &patience).unwrap();
        let mut sizes = listed.entries.iter().filter_map(|leaf| leaf.size);
        assert!(sizes.all(|size| size == 6), "{listed:?}");
        let (used, _, _) = usage(&root, REACH, &patience).unwrap();
        assert!(used.bytes <= 6 * 10);
    }
    assert!(0 < swapping.end() && 0 < n_lines);
}

#[test]
fn a_walk_through_a_directory_that_is_moved_around_ends() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), &[("a/b/c/d/f", b"x"), ("x/y/z/f", b"x")]);
    let swapping = swap(
        dir.path(),
        &[("a/b", "x/y"), ("a", "x"), ("a/b/c", "x/y/z")],
    );
    let root = root(dir.path());
    let start = Start {
        dir: &root,
        path: TOP,
    };
    let bounds = GlobBounds {
        reach: Reach {
            depth: 64,
            entries: 10_000,
        },
        paths: 1_000,
        bytes: 1 << 20,
    };
    let pattern = Pattern::parse("f").unwrap();
    for _ in 0..2_000 {
        let found = glob(start, &pattern, &bounds, &testing::long()).unwrap();
        assert!(found.cut.is_none(), "{found:?}");
    }
    assert!(0 < swapping.end());
}
