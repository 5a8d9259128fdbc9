//! Laws of listing a tree.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::{TOP, clear, plant, plant_deep, root};
use crate::workspace::search::patience::testing;
use crate::workspace::search::{Cut, Leaf, SearchError, Start, Tree, TreeBounds, tree};
use crate::workspace::{FileError, Kind, RelPath};

const WIDE: TreeBounds = TreeBounds {
    depth: 64,
    entries: 100_000,
    bytes: 64 << 20,
};

fn listed(dir: &Path, bounds: &TreeBounds) -> Tree {
    let root = root(dir);
    let start = Start {
        dir: &root,
        path: TOP,
    };
    tree(start, bounds, &testing::long()).unwrap()
}

fn paths(tree: &Tree) -> Vec<&str> {
    let text = |leaf: &'_ Leaf| leaf.path.clone();
    assert!(
        tree.entries
            .iter()
            .all(|leaf| String::from_utf8(text(leaf)).is_ok())
    );
    let paths = tree
        .entries
        .iter()
        .map(|leaf| std::str::from_utf8(&leaf.path).unwrap());
    paths.collect()
}

fn planted() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    plant(
        dir.path(),
        &[("z", b""), ("a", b"12345"), ("d/f", b""), ("d/e/g", b"")],
    );
    symlink("a", dir.path().join("link")).unwrap();
    symlink("/etc", dir.path().join("d/out")).unwrap();
    dir
}

#[test]
fn a_tree_is_breadth_first_with_directories_before_files_and_without_links() {
    let dir = planted();
    let made = std::process::Command::new("mkfifo")
        .arg(dir.path().join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let tree = listed(dir.path(), &WIDE);
    assert_eq!(paths(&tree), ["d", "a", "pipe", "z", "d/e", "d/f", "d/e/g"]);
    assert!(!tree.is_truncated());
    let kinds: Vec<_> = tree
        .entries
        .iter()
        .map(|leaf| (leaf.kind, leaf.size))
        .collect();
    assert_eq!(
        kinds[..4],
        [
            (Kind::Dir, None),
            (Kind::File, Some(5)),
            (Kind::Other, Some(0)),
            (Kind::File, Some(0)),
        ]
    );
    let dated = |leaf: &&Leaf| leaf.modified.is_some_and(|(secs, _)| 1_600_000_000 < secs);
    assert_eq!(tree.entries.iter().filter(dated).count(), 5);
}

#[test]
fn a_tree_says_when_it_is_cut_at_depth_entries_bytes_or_deadline() {
    let dir = planted();
    let cut = |bounds| {
        let tree = listed(dir.path(), &bounds);
        (tree.entries.len(), tree.cut)
    };
    assert_eq!(cut(TreeBounds { depth: 1, ..WIDE }), (3, Some(Cut::Depth)));
    assert_eq!(cut(TreeBounds { depth: 2, ..WIDE }), (5, Some(Cut::Depth)));
    assert_eq!(cut(TreeBounds { depth: 3, ..WIDE }), (6, None));
    assert_eq!(cut(TreeBounds { entries: 6, ..WIDE }), (6, None));
    assert_eq!(
        cut(TreeBounds { entries: 4, ..WIDE }),
        (4, Some(Cut::Entries))
    );
    let (few, why) = cut(TreeBounds { bytes: 2, ..WIDE });
    assert!(few < 3 && why.is_some());
    let root = root(dir.path());
    let start = Start {
        dir: &root,
        path: TOP,
    };
    let late = tree(start, &WIDE, &testing::none()).unwrap();
    assert_eq!((late.entries.len(), late.cut), (0, Some(Cut::Late)));
    let gone = tree(start, &WIDE, &testing::cancelled());
    assert!(matches!(gone, Err(SearchError::Cancelled)));
}

#[test]
fn an_empty_directory_at_the_last_level_counts_as_unopened() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let tree = listed(dir.path(), &TreeBounds { depth: 1, ..WIDE });
    assert!(tree.is_truncated());
}

#[test]
fn a_tree_begins_below_and_never_through_a_link() {
    let dir = planted();
    let root = root(dir.path());
    let at = |path: &str| {
        let path = RelPath::parse(path.as_bytes()).unwrap();
        let start = Start {
            dir: &root,
            path: &path,
        };
        tree(start, &WIDE, &testing::long())
    };
    assert_eq!(paths(&at("d").unwrap()), ["e", "f", "e/g"]);
    let refused = |path| match at(path) {
        Err(SearchError::Start(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused("d/out"), FileError::Link { .. }));
    assert!(matches!(refused("no"), FileError::NotFound));
    assert!(matches!(refused("a"), FileError::NotDirectory));
}

#[test]
fn a_tree_deeper_than_any_path_is_listed_to_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    plant_deep(dir.path(), 1_000);
    let deep = TreeBounds {
        depth: 4_000,
        ..WIDE
    };
    let tree = listed(dir.path(), &deep);
    assert_eq!((tree.entries.len(), tree.is_truncated()), (3_000, false));
    clear(dir.path());
}
