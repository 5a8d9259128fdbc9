//! Searches of a tree that changes under them.

use std::os::unix::fs::symlink;
use std::path::Path;
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

#[test]
fn thousands_of_walks_through_swapped_directories_show_nothing_from_outside() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    plant(
        &outside,
        &[
            ("secret", b"secret outside\n"),
            ("deep/secret", b"secret outside\n"),
        ],
    );
    let inside = dir.path().join("ws");
    plant(
        &inside,
        &[
            ("d/secret", b"plain\n"),
            ("d/deep/secret", b"plain\n"),
            ("e/deep/secret", b"plain\n"),
            ("f", b"plain\n"),
        ],
    );
    symlink(&outside, inside.join("d-link")).unwrap();
    symlink(outside.join("deep"), inside.join("e/deep-link")).unwrap();
    symlink(outside.join("secret"), inside.join("f-link")).unwrap();
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
    let (start, patience) = (
        Start {
            dir: &root,
            path: TOP,
        },
        testing::long(),
    );
    let reach = Reach {
        depth: 16,
        entries: 1_000,
    };
    let globs = GlobBounds {
        reach,
        paths: 100,
        bytes: 10_000,
    };
    let greps = GrepBounds {
        reach,
        hits: 100,
        bytes: 10_000,
        line_bytes: 100,
        read_bytes: 10_000,
    };
    let trees = TreeBounds {
        depth: 16,
        entries: 100,
        bytes: 10_000,
    };
    let expression = Expression::parse(".").unwrap();
    let pattern = Pattern::parse("secret").unwrap();
    let query = Query {
        expression: &expression,
        filter: None,
        hidden: Hidden::Searched,
    };
    let mut n_lines = 0;
    for _ in 0..2_000 {
        let lines = grep(start, query, &greps, &patience).unwrap();
        n_lines += lines.hits.len();
        assert!(
            lines.hits.iter().all(|hit| hit.line == b"plain"),
            "{lines:?}"
        );
        assert!(
            glob(start, &pattern, &globs, &patience)
                .unwrap()
                .paths
                .len()
                <= 6
        );
        let listed = tree(start, &trees, &patience).unwrap();
        let plain = listed
            .entries
            .iter()
            .filter_map(|leaf| leaf.size)
            .all(|size| size == 6);
        assert!(plain, "{listed:?}");
        let (used, _, _) = usage(&root, reach, &patience).unwrap();
        assert!(used.bytes <= 6 * 10);
    }
    let n_swaps = swapping.end();
    println!("{n_swaps} swaps, {n_lines} lines");
    assert!(0 < n_swaps && 0 < n_lines);
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
