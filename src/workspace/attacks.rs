//! Attacks on the files of a workspace by the code that owns them.
//!
//! Each one changes a path in a loop while it is used tens of thousands of times. What
//! lies outside must never be read, changed or removed.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags};

use super::beneath::tests::{path, workspace};
use super::beneath::{Dir, Owner};
use super::expected::Expected;
use super::refused::FileError;
use super::write::{Replacing, Survives};

const TIMES: u32 = 20_000;
const SECRET: &[u8] = b"secret of the host";

/// A workspace with a directory `d` that keeps changing places with a link `l` to a
/// directory outside, where the same names are.
struct Attacked {
    temp: tempfile::TempDir,
    dir: Dir,
    outside: tempfile::TempDir,
}

impl Attacked {
    fn new() -> Self {
        let (temp, dir) = workspace();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("d")).unwrap();
        symlink(outside.path(), temp.path().join("l")).unwrap();
        for (place, content) in [
            (temp.path().join("d"), &b"inside"[..]),
            (outside.path().into(), SECRET),
        ] {
            std::fs::write(place.join("f"), content).unwrap();
            std::fs::create_dir_all(place.join("sub/deep")).unwrap();
            std::fs::write(place.join("sub/deep/f"), content).unwrap();
        }
        Self { temp, dir, outside }
    }

    /// Runs `use_it` again and again while two names change places.
    fn under_exchange(&self, names: (&str, &str), use_it: impl FnMut(&Dir, u32)) {
        self.under_exchanges(TIMES, names, use_it);
    }

    fn under_exchanges(&self, times: u32, names: (&str, &str), mut use_it: impl FnMut(&Dir, u32)) {
        let (one, other) = (
            self.temp.path().join(names.0),
            self.temp.path().join(names.1),
        );
        while_it_runs(
            || exchange(&one, &other),
            || (0..times).for_each(|nth| use_it(&self.dir, nth)),
        );
        let kept: Vec<_> = [
            self.outside.path().join("f"),
            self.outside.path().join("sub/deep/f"),
        ]
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect();
        assert_eq!(kept, [SECRET, SECRET]);
        let mut names: Vec<_> = std::fs::read_dir(self.outside.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["f", "sub"], "nothing was added outside");
    }
}

fn exchange(one: &Path, other: &Path) {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

fn while_it_runs(attack: impl Fn() + Sync, use_it: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                attack();
            }
        });
        // Also when an assertion fails, or the attack would never end.
        let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(use_it));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = used {
            std::panic::resume_unwind(panic);
        }
    });
}

fn how() -> Replacing {
    Replacing {
        owner: Some(Owner {
            uid: 1234,
            gid: 1234,
        }),
        bytes_max: 1_000,
        expected: Expected::Anything,
        survives: Survives::DaemonEnd,
    }
}

#[test]
fn nothing_is_read_through_a_directory_that_becomes_a_link() {
    let attacked = Attacked::new();
    let (mut n_inside, mut n_refused) = (0, 0);
    attacked.under_exchange(("d", "l"), |dir, nth| {
        let asked = if nth % 2 == 0 { "d/f" } else { "d/sub/deep/f" };
        match dir.open_file(&path(asked)) {
            Ok(opened) => {
                assert_eq!(opened.read_whole(100).unwrap(), b"inside");
                n_inside += 1;
            }
            Err(FileError::Link { .. }) => n_refused += 1,
            Err(error) => panic!("{error:?}"),
        }
        match dir.open_dir(&path("d")) {
            Ok(listed) => assert_eq!(listed.list(10).unwrap().entries.len(), 2),
            Err(error) => assert!(matches!(error, FileError::Link { .. }), "{error:?}"),
        }
    });
    assert!(
        0 < n_inside && 0 < n_refused,
        "{n_inside} inside, {n_refused} refused"
    );
}

#[test]
fn nothing_is_written_made_or_removed_through_a_directory_that_becomes_a_link() {
    let attacked = Attacked::new();
    let mut n_done = 0;
    attacked.under_exchange(("d", "l"), |dir, nth| {
        let done = match nth % 4 {
            0 => dir
                .write(&path("d/new"), b"from the daemon", how())
                .map(drop),
            1 => dir.make_dirs(&path("d/more/deep"), how().owner).map(drop),
            2 => dir.remove_file(&path("d/new")),
            _ => dir.write(&path("d/f"), b"inside", how()).map(drop),
        };
        match done {
            Ok(()) => n_done += 1,
            Err(FileError::Link { .. } | FileError::Moved | FileError::NotFound) => {}
            Err(FileError::NotDirectory) => {}
            Err(error) => panic!("{error:?}"),
        }
    });
    assert!(0 < n_done);
}

#[test]
fn a_file_that_becomes_a_link_or_a_fifo_is_itself_or_refused() {
    let attacked = Attacked::new();
    let temp = attacked.temp.path();
    std::fs::write(temp.join("file"), "inside").unwrap();
    symlink(attacked.outside.path().join("f"), temp.join("link")).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(temp.join("fifo"))
            .status()
            .unwrap()
            .success()
    );
    for other in ["link", "fifo"] {
        attacked.under_exchange(("file", other), |dir, _| {
            match dir.open_file(&path("file")) {
                Ok(opened) => assert_eq!(opened.read_whole(100).unwrap(), b"inside"),
                Err(FileError::Link { .. } | FileError::Special { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        });
        // Put back as they were, whichever way round they ended.
        if !std::fs::symlink_metadata(temp.join("file"))
            .unwrap()
            .is_file()
        {
            exchange(&temp.join("file"), &temp.join(other));
        }
    }
}

#[test]
fn a_write_to_a_link_that_was_a_file_replaces_the_link_or_is_refused() {
    let attacked = Attacked::new();
    let temp = attacked.temp.path();
    std::fs::write(temp.join("file"), "inside").unwrap();
    let target = attacked.outside.path().join("f");
    let attack = || {
        let fresh = temp.join("fresh");
        symlink(&target, &fresh).unwrap();
        std::fs::rename(&fresh, temp.join("file")).unwrap();
        std::fs::write(&fresh, "inside").unwrap();
        std::fs::rename(&fresh, temp.join("file")).unwrap();
    };
    while_it_runs(attack, || {
        for _ in 0..TIMES / 2 {
            match attacked.dir.write(&path("file"), b"from the daemon", how()) {
                Ok(_) | Err(FileError::Link { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    assert_eq!(std::fs::read(&target).unwrap(), SECRET);
}

#[test]
fn a_write_is_at_its_path_or_told_to_have_moved() {
    let attacked = Attacked::new();
    std::fs::create_dir(attacked.temp.path().join("e")).unwrap();
    let (mut n_there, mut n_moved) = (0, 0);
    // Exchanging directories costs the file system a hundred times as much.
    attacked.under_exchanges(TIMES / 20, ("d", "e"), |dir, _| {
        match dir.write(&path("d/new"), b"x", how()) {
            Ok(_) => n_there += 1,
            Err(FileError::Moved) => n_moved += 1,
            Err(error) => panic!("{error:?}"),
        }
    });
    assert!(
        0 < n_there && 0 < n_moved,
        "{n_there} there, {n_moved} moved"
    );
}
