//! Laws of measuring a workspace.

use std::path::Path;
use std::process::Command;

use super::{clear, plant, plant_deep, root};
use crate::clock::Clock;
use crate::workspace::search as s;
use crate::workspace::search::patience::testing;
use crate::workspace::search::{
    Cut, Measuring, Progress, Reach, SearchError, TreeBounds, Usage, usage,
};

fn measured(dir: &Path) -> Usage {
    let (usage, cut, skipped) = usage(&root(dir), testing::FAR, &testing::long()).unwrap();
    assert_eq!((cut, skipped.is_empty()), (None, true));
    usage
}

/// What `du` counts below a directory, without the directory itself.
fn du(dir: &Path) -> u64 {
    let bytes = |all: &[&str]| {
        let output = Command::new("du").args(all).arg(dir).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let number = text.split_whitespace().next().unwrap();
        number.parse::<u64>().unwrap()
    };
    let own = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(dir).unwrap()) * 512;
    bytes(&["-s", "--block-size=1"]) - own
}

#[test]
fn usage_is_that_of_du_with_hard_links_once_and_holes_by_blocks() {
    let dir = tempfile::tempdir().unwrap();
    plant(
        dir.path(),
        &[("a", &[b'x'; 10_000]), ("d/b", b"y"), ("d/e/c", b"")],
    );
    std::fs::hard_link(dir.path().join("a"), dir.path().join("d/again")).unwrap();
    std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
    let holes = std::fs::File::create(dir.path().join("holes")).unwrap();
    holes.set_len(1 << 40).unwrap();
    let usage = measured(dir.path());
    assert_eq!(usage.disk_bytes, du(dir.path()));
    assert_eq!(usage.bytes, 10_001 + (1 << 40));
    assert_eq!((usage.files, usage.directories, usage.others), (4, 2, 1));
}

#[test]
fn a_measuring_goes_on_where_it_was_left_off() {
    let dir = tempfile::tempdir().unwrap();
    plant_deep(dir.path(), 100);
    let whole = measured(dir.path());
    let dir_held = root(dir.path());
    let mut measuring = Measuring::begin(&dir_held, testing::FAR).unwrap();
    let mut n_steps = 0;
    while measuring.advance(7, &testing::long()).unwrap() == Progress::Going {
        n_steps += 1;
    }
    assert_eq!((measuring.usage(), n_steps), (whole, 300 / 7));
    clear(dir.path());
}

#[test]
fn a_measuring_that_is_late_or_bounded_says_so() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path(), &[("a", b"x"), ("b", b"x"), ("c", b"x")]);
    let held = root(dir.path());
    let (_, cut, _) = usage(&held, testing::FAR, &testing::none()).unwrap();
    assert_eq!(cut, Some(Cut::Late));
    let reach = Reach {
        entries: 2,
        ..testing::FAR
    };
    let (few, cut, _) = usage(&held, reach, &testing::long()).unwrap();
    assert_eq!((few.files, cut), (2, Some(Cut::Entries)));
    let gone = usage(&held, testing::FAR, &testing::cancelled());
    assert!(matches!(gone, Err(SearchError::Cancelled)));
}

/// Makes fifty thousand files in a thousand directories.
fn plant_many(dir: &Path) {
    for outer in 0..50 {
        let outer = dir.join(format!("d{outer}"));
        for inner in 0..20 {
            let inner = outer.join(format!("e{inner}"));
            std::fs::create_dir_all(&inner).unwrap();
            for file in 0..50 {
                std::fs::write(inner.join(format!("file-{file}.txt")), "some text\n").unwrap();
            }
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn fifty_thousand_files_are_walked_in_a_time_that_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    plant_many(dir.path());
    let held = root(dir.path());
    let clock = Clock::host();
    let timed = |what: &str, counted: &dyn Fn() -> usize| {
        let began = clock.now();
        let counted = counted();
        println!("{what}: {counted} in {:?}", clock.now().since(began));
        counted
    };
    let patience = testing::long();
    let start = s::Start {
        dir: &held,
        path: super::TOP,
    };
    let pattern = s::Pattern::parse("*.txt").unwrap();
    let globbed = timed("glob", &|| {
        let bounds = s::GlobBounds {
            reach: testing::FAR,
            paths: 100_000,
            bytes: 64 << 20,
        };
        s::glob(start, &pattern, &bounds, &patience)
            .unwrap()
            .paths
            .len()
    });
    let expression = s::Expression::parse("some").unwrap();
    let grepped = timed("grep", &|| {
        let bounds = s::GrepBounds {
            reach: testing::FAR,
            hits: 100_000,
            bytes: 64 << 20,
            line_bytes: 4_096,
            read_bytes: 1 << 40,
        };
        let query = s::Query {
            expression: &expression,
            filter: None,
            hidden: s::Hidden::Skipped,
        };
        s::grep(start, query, &bounds, &patience)
            .unwrap()
            .hits
            .len()
    });
    let listed = timed("tree", &|| {
        let bounds = TreeBounds {
            depth: 64,
            entries: 100_000,
            bytes: 64 << 20,
        };
        s::tree(start, &bounds, &patience).unwrap().entries.len()
    });
    let counted = timed("usage", &|| {
        let (usage, _, _) = usage(&held, testing::FAR, &patience).unwrap();
        usize::try_from(usage.files).unwrap()
    });
    assert_eq!(
        (globbed, grepped, listed, counted),
        (50_000, 50_000, 51_050, 50_000)
    );
}
