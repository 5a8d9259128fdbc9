//! Laws of finding files.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::{TOP, as_nobody, clear, plant, plant_deep, root, told};
use crate::workspace::search::patience::testing;
use crate::workspace::search::{
    Cut, GlobBounds, Globbed, Pattern, Reach, SearchError, Start, Why, glob,
};
use crate::workspace::{FileError, RelPath};

const WIDE: GlobBounds = GlobBounds {
    reach: testing::FAR,
    paths: 1_000_000,
    bytes: 64 << 20,
};

fn find(dir: &Path, pattern: &str, bounds: &GlobBounds) -> Globbed {
    let root = root(dir);
    let pattern = Pattern::parse(pattern).unwrap();
    glob(
        Start {
            dir: &root,
            path: TOP,
        },
        &pattern,
        bounds,
        &testing::long(),
    )
    .unwrap()
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        "a.py",
        "a/b.py",
        "a-b/c.py",
        "a.d/e.py",
        ".hid/f.py",
        ".g.py",
        "src/deep/er/h.py",
        "src/i.txt",
        "src/j.PY",
        "odd \n'name/k.py",
        "empty/x/y/z.rs",
    ];
    plant(dir.path(), &files.map(|file| (file, &b"x"[..])));
    let raw = std::ffi::OsStr::from_bytes(b"raw\xff\xfe.py");
    std::fs::write(dir.path().join(raw), "x").unwrap();
    std::fs::create_dir(dir.path().join("dir.py")).unwrap();
    symlink("a.py", dir.path().join("link.py")).unwrap();
    symlink("/etc", dir.path().join("out")).unwrap();
    symlink("..", dir.path().join("src/up")).unwrap();
    dir
}

#[test]
fn a_pattern_without_a_slash_finds_what_find_finds_by_name_in_the_order_of_bytes() {
    let dir = tree();
    for pattern in ["*.py", "*", "?.py", "[a-g]*", ".*", "k.py", "*.rs", "none"] {
        let argv = [
            &b"find"[..],
            b".",
            b"-type",
            b"f",
            b"-name",
            pattern.as_bytes(),
            b"-print0",
        ];
        let expected: Vec<_> = told(dir.path(), 0, &argv)
            .into_iter()
            .map(|path| path.strip_prefix(b"./").unwrap().to_vec())
            .collect();
        let found = find(dir.path(), pattern, &WIDE);
        assert_eq!(found.paths, expected, "{pattern}");
        assert_eq!((found.cut, found.skipped.is_empty()), (None, true));
    }
}

#[test]
fn a_pattern_with_a_slash_begins_at_the_start() {
    let dir = tree();
    let paths = |pattern: &str| find(dir.path(), pattern, &WIDE).paths;
    assert_eq!(paths("src/*"), [&b"src/i.txt"[..], b"src/j.PY"]);
    assert_eq!(paths("src/**/*.py"), [b"src/deep/er/h.py"]);
    assert_eq!(paths("deep/**"), Vec::<Vec<u8>>::new());
    let root = root(dir.path());
    let deep = RelPath::parse(b"src/deep").unwrap();
    let start = Start {
        dir: &root,
        path: &deep,
    };
    let pattern = Pattern::parse("er/*").unwrap();
    let found = glob(start, &pattern, &WIDE, &testing::long()).unwrap();
    assert_eq!(found.paths, [b"er/h.py"]);
}

#[test]
fn a_bound_keeps_the_first_paths_and_says_which_it_was() {
    let dir = tree();
    let all = find(dir.path(), "*", &WIDE).paths;
    let cut = |bounds: GlobBounds| {
        let found = find(dir.path(), "*", &bounds);
        (found.paths, found.cut)
    };
    assert_eq!(
        cut(GlobBounds { paths: 3, ..WIDE }),
        (all[..3].to_vec(), Some(Cut::Results))
    );
    let exact = GlobBounds {
        paths: all.len(),
        ..WIDE
    };
    assert_eq!(cut(exact), (all.clone(), None));
    let bytes = all[0].len() + all[1].len();
    assert_eq!(
        cut(GlobBounds { bytes, ..WIDE }),
        (all[..2].to_vec(), Some(Cut::Bytes))
    );
    let reach = Reach {
        entries: 5,
        ..testing::FAR
    };
    let (paths, why) = cut(GlobBounds { reach, ..WIDE });
    assert!(paths.len() <= 5 && why == Some(Cut::Entries));
    let reach = Reach {
        depth: 1,
        ..testing::FAR
    };
    let (paths, why) = cut(GlobBounds { reach, ..WIDE });
    let shallow = |path: &&Vec<u8>| path.split(|byte| *byte == b'/').count() <= 2;
    let expected: Vec<_> = all.iter().filter(shallow).cloned().collect();
    assert_eq!((paths, why), (expected, Some(Cut::Depth)));
}

#[test]
fn a_search_that_is_late_answers_and_one_without_a_caller_does_not() {
    let dir = tree();
    let root = root(dir.path());
    let pattern = Pattern::parse("*").unwrap();
    let start = Start {
        dir: &root,
        path: TOP,
    };
    let late = glob(start, &pattern, &WIDE, &testing::none()).unwrap();
    assert_eq!((late.paths.len(), late.cut), (0, Some(Cut::Late)));
    let gone = glob(start, &pattern, &WIDE, &testing::cancelled()).unwrap_err();
    assert!(matches!(gone, SearchError::Cancelled));
}

#[test]
fn a_start_that_is_missing_a_file_a_link_or_outside_is_told_apart() {
    let dir = tree();
    let root = root(dir.path());
    let pattern = Pattern::parse("*").unwrap();
    let refused = |path: &str| {
        let path = RelPath::parse(path.as_bytes()).unwrap();
        let start = Start {
            dir: &root,
            path: &path,
        };
        match glob(start, &pattern, &WIDE, &testing::long()) {
            Err(SearchError::Start(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(refused("no"), FileError::NotFound));
    assert!(matches!(refused("a.py"), FileError::NotDirectory));
    assert!(matches!(refused("out"), FileError::Link { .. }));
    assert!(matches!(refused("src/up"), FileError::Link { .. }));
    assert!(matches!(refused("src/up/a"), FileError::Link { .. }));
}

#[test]
fn one_unreadable_directory_is_told_and_the_rest_is_found() {
    let found = as_nobody(|| {
        let dir = tempfile::tempdir().unwrap();
        plant(dir.path(), &[("a/f", b"x"), ("b/f", b"x"), ("c/d/f", b"x")]);
        let shut = dir.path().join("b");
        std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o000)).unwrap();
        let found = find(dir.path(), "f", &WIDE);
        std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o700)).unwrap();
        found
    });
    assert_eq!(found.paths, [&b"a/f"[..], b"c/d/f"]);
    let [left] = &found.skipped.listed[..] else {
        panic!("{:?}", found.skipped);
    };
    assert_eq!((&left.path[..], left.why), (&b"b"[..], Why::Denied));
}

#[test]
fn a_tree_a_thousand_deep_is_walked_with_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    plant_deep(dir.path(), 1_000);
    let found = find(dir.path(), "?-*", &WIDE);
    assert_eq!((found.paths.len(), found.cut), (2_000, None));
    assert!(found.skipped.is_empty(), "{:?}", found.skipped);
    assert!(found.paths.is_sorted());
    clear(dir.path());
}
