//! Laws of opening beneath a directory, and what other tests of files begin with.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Command;

use super::*;

pub(in crate::workspace) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

pub(in crate::workspace) fn workspace() -> (tempfile::TempDir, Dir) {
    let temp = tempfile::tempdir().unwrap();
    let fd = rustix::fs::open(temp.path(), DIR_FLAGS, Mode::empty()).unwrap();
    (temp, Dir::held(fd))
}

#[test]
fn this_kernel_opens_beneath_a_directory() {
    probe().unwrap();
}

#[test]
fn a_link_is_told_by_name_wherever_it_is_and_never_followed() {
    let (temp, dir) = workspace();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("f"), "secret").unwrap();
    std::fs::create_dir_all(temp.path().join("a/in")).unwrap();
    symlink(outside.path(), temp.path().join("a/out")).unwrap();
    symlink("in", temp.path().join("a/rel")).unwrap();
    symlink("/proc/self/root", temp.path().join("magic")).unwrap();
    symlink("self", temp.path().join("self")).unwrap();
    for (asked, link) in [
        ("a/out", "out"),
        ("a/out/f", "out"),
        ("a/rel/f", "rel"),
        ("magic/etc/passwd", "magic"),
        ("self", "self"),
    ] {
        let told = |error: FileError| match error {
            FileError::Link { name } => String::from_utf8(name).unwrap(),
            other => panic!("{asked}: {other:?}"),
        };
        assert_eq!(told(dir.open_file(&path(asked)).unwrap_err()), link);
        assert_eq!(
            told(dir.open_dir(&path(asked)).map(drop).unwrap_err()),
            link
        );
        assert_eq!(told(dir.make_dirs(&path(asked), None).unwrap_err()), link);
    }
    assert_eq!(dir.stat(&path("a/out")).unwrap().kind, Kind::Link);
    dir.remove_file(&path("a/out")).unwrap();
    assert!(outside.path().join("f").exists());
}

#[test]
fn only_regular_files_are_opened_and_nothing_waits() {
    let (temp, dir) = workspace();
    let fifo = temp.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let _socket = std::os::unix::net::UnixListener::bind(temp.path().join("sock")).unwrap();
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    std::fs::write(temp.path().join("file"), "").unwrap();
    for name in ["fifo", "sock"] {
        let error = dir.open_file(&path(name)).unwrap_err();
        assert!(matches!(error, FileError::Special { .. }), "{error:?}");
        assert_eq!(dir.stat(&path(name)).unwrap().kind, Kind::Other);
    }
    let error = |asked: &str| dir.open_file(&path(asked)).unwrap_err();
    assert!(matches!(error("dir"), FileError::IsDirectory));
    assert!(matches!(error("none"), FileError::NotFound));
    assert!(matches!(error("file/x"), FileError::NotDirectory));
    assert!(matches!(
        dir.open_dir(&path("file")),
        Err(FileError::NotDirectory)
    ));
    assert!(matches!(
        dir.open_dir(&path("fifo")),
        Err(FileError::NotDirectory)
    ));
    assert!(dir.open_file(&path("file")).is_ok());
    let work_dir = dir.open_file(&RelPath::work_dir()).unwrap_err();
    assert!(matches!(work_dir, FileError::IsDirectory));
}

#[test]
fn directories_are_made_with_those_above_and_belong_to_the_sandbox() {
    let (temp, dir) = workspace();
    std::fs::create_dir(temp.path().join("a")).unwrap();
    let owner = Owner {
        uid: 1234,
        gid: 5678,
    };
    dir.make_dirs(&path("a/b/c"), Some(owner)).unwrap();
    dir.make_dirs(&path("a/b/c"), Some(owner)).unwrap();
    let meta = std::fs::metadata(temp.path().join("a/b/c")).unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777),
        (1234, 5678, 0o755)
    );
    let there = std::fs::metadata(temp.path().join("a")).unwrap();
    assert_eq!(there.uid(), rustix::process::geteuid().as_raw());
    std::fs::write(temp.path().join("a/f"), "").unwrap();
    let error = |asked: &str| dir.make_dirs(&path(asked), None).unwrap_err();
    assert!(matches!(error("a/f"), FileError::Exists));
    assert!(matches!(error("a/f/x"), FileError::NotDirectory));
    assert!(matches!(error("a/f/x/y"), FileError::NotDirectory));
    assert!(dir.make_dirs(&RelPath::work_dir(), None).is_ok());
}

#[test]
fn a_listing_is_whole_or_says_that_it_is_not() {
    let (temp, dir) = workspace();
    let odd = "n".repeat(254) + "\n";
    for name in ["a b", "-rf", odd.as_str()] {
        std::fs::write(temp.path().join(name), "12345").unwrap();
    }
    let bytes = std::ffi::OsString::from(
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff\xfe"),
    );
    symlink("/etc/passwd", temp.path().join(bytes)).unwrap();
    let mut listing = dir.list(4).unwrap();
    listing.entries.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(listing.extent, Extent::Complete);
    let seen: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| (entry.name.as_slice(), entry.meta.kind, entry.meta.size))
        .collect();
    let expected = [
        (&b"-rf"[..], Kind::File, 5),
        (b"a b", Kind::File, 5),
        (odd.as_bytes(), Kind::File, 5),
        (b"\xff\xfe", Kind::Link, 11),
    ];
    assert_eq!(seen, expected);
    let mut names = dir.names(9).unwrap();
    names.entries.sort();
    assert_eq!(names.entries.len(), 4);
    assert_eq!(names.entries[3].kind, Kind::Link);
    let cut = dir.list(3).unwrap();
    assert_eq!((cut.entries.len(), cut.extent), (3, Extent::Truncated));
}

#[test]
fn a_tree_of_a_thousand_levels_is_walked_by_descriptors() {
    let (_temp, dir) = workspace();
    let deep = path(&vec!["d"; 1_000].join("/"));
    let bottom = dir.make_dirs(&deep, None).unwrap();
    // Deeper than any path can say.
    let name = "n".repeat(255);
    let deepest = (0..4).fold(bottom, |dir, _| {
        dir.make_dirs(&path(&[name.as_str(); 12].join("/")), None)
            .unwrap()
    });
    assert!(deepest.names(9).unwrap().entries.is_empty());
    let mut walked = dir.clone();
    let mut depth = 0;
    while let Some(next) = walked.names(1).unwrap().entries.pop() {
        let below = RelPath::work_dir().child(&next.name).unwrap();
        walked = walked.open_dir(&below).unwrap();
        depth += 1;
    }
    assert_eq!(depth, 1_048);
    drop(crate::workspace::remove::empty(&dir.0).unwrap());
}

#[test]
fn a_mount_inside_is_not_entered() {
    // /proc is a mount below the root of every machine that this runs on.
    let fd = rustix::fs::open("/", DIR_FLAGS, Mode::empty()).unwrap();
    let dir = Dir::held(fd);
    for asked in ["proc", "proc/self/status"] {
        assert!(matches!(dir.stat(&path(asked)), Err(FileError::Outside)));
        assert!(matches!(
            dir.open_dir(&path(asked)),
            Err(FileError::Outside)
        ));
    }
}
