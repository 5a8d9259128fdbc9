//! Holds removals to trees as untrusted code makes them.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use super::*;

/// A directory in memory, where there is one: there files are made in no time.
fn in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

fn held(path: &Path) -> OwnedFd {
    rustix::fs::open(path, DIRECTORY, Mode::empty()).unwrap()
}

fn removed(dir: &Path, name: &str) -> Remains {
    remove_tree(&held(dir), name).unwrap()
}

/// Makes files and directories, so many of each level, with odd names among them.
fn fill(top: &Path, n_dirs: usize, n_files: usize) -> usize {
    std::fs::create_dir(top).unwrap();
    let mut n_made = 0;
    for dir in 0..n_dirs {
        let dir = top.join(format!("d{dir}\n'\"\x1b[31m {dir}"));
        std::fs::create_dir_all(dir.join("deep/er")).unwrap();
        for file in 0..n_files {
            let at = if file % 2 == 0 { "" } else { "deep/er" };
            let at = dir.join(at).join(format!("-rf {file} *\u{202e}"));
            std::fs::File::create(at).unwrap();
            n_made += 1;
        }
    }
    n_made
}

#[test]
fn two_hundred_thousand_files_go_with_their_directories() {
    let dir = in_memory();
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "x").unwrap();
    let top = dir.path().join("t");
    // One directory with more than is read at once, and many with few.
    assert_eq!(
        fill(&top, 4, 25_000) + fill(&top.join("m"), 1_000, 100),
        200_000
    );
    symlink(&outside, top.join("link")).unwrap();
    symlink("/", top.join("m/root")).unwrap();
    assert_eq!(removed(dir.path(), "t"), Remains::default());
    assert!(!top.exists());
    assert!(outside.join("precious").exists());
}

#[test]
fn a_tree_deeper_than_any_path_goes_with_a_handful_of_descriptors() {
    let dir = in_memory();
    let mut at = held(dir.path());
    for _ in 0..5_000 {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
    }
    assert_eq!(removed(dir.path(), "d"), Remains::default());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn run(program: &str, args: &[&str], path: &Path) -> bool {
    let status = Command::new(program).args(args).arg(path).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn what_cannot_be_removed_is_told_with_its_path_and_everything_else_goes() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("t");
    std::fs::create_dir_all(top.join("a/b/mount")).unwrap();
    std::fs::create_dir_all(top.join("a/other/deep")).unwrap();
    for name in ["f", "a/b/f", "a/other/f", "a/other/deep/f"] {
        std::fs::write(top.join(name), "x").unwrap();
    }
    let mount = top.join("a/b/mount");
    assert!(
        run("mount", &["-t", "tmpfs", "tmpfs"], &mount),
        "this test mounts a file system and needs the right to do so"
    );
    std::fs::write(mount.join("kept"), "x").unwrap();
    let found = held(&mount);
    let left = removed(dir.path(), "t");
    assert_eq!(left.count, 1, "{left}");
    assert_eq!(left.listed[0].path, b"a/b/mount");
    assert!(rustix::fs::statat(&found, "kept", AtFlags::empty()).is_ok());
    let mut files = 0;
    let mut dirs = vec![top.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else {
                files += 1;
                assert_eq!(entry.file_name(), "kept", "the mount's own");
            }
        }
    }
    assert_eq!(files, 1);
    drop(found);
    // Told again, and gone once it can go.
    assert_eq!(remove_all(&held(dir.path())).unwrap().count, 1);
    let mounted = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let here = mounted.lines().filter_map(|line| line.split(' ').nth(1));
    let here = here.filter(|path| path.starts_with(dir.path().to_str().unwrap()));
    for path in here {
        assert!(run("umount", &[], Path::new(path)));
    }
    assert_eq!(remove_all(&held(dir.path())).unwrap(), Remains::default());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_immutable_file_is_told_and_keeps_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("t");
    std::fs::create_dir_all(top.join("a/b")).unwrap();
    for name in ["a/b/fixed", "a/b/f", "a/f"] {
        std::fs::write(top.join(name), "x").unwrap();
    }
    let fixed = top.join("a/b/fixed");
    if !run("chattr", &["+i"], &fixed) {
        // This file system has none.
        return;
    }
    let held_file = std::fs::File::open(&fixed).unwrap();
    let left = removed(dir.path(), "t");
    assert_eq!(left.count, 1, "{left}");
    assert_eq!(left.listed[0].path, b"a/b/fixed");
    assert!(
        left.to_string()
            .starts_with("1 could not be removed: a/b/fixed (")
    );
    let proc = format!("/proc/self/fd/{}", held_file.as_raw_fd());
    let now = std::fs::read_link(proc).unwrap();
    assert!(run("chattr", &["-i"], &now));
    assert_eq!(removed(dir.path(), "t"), Remains::default());
    assert!(!top.exists());
}

/// Runs as another user, which the test below starts.
#[test]
#[ignore = "started by the test of read-only directories"]
fn as_nobody() {
    let Ok(dir) = std::env::current_dir() else {
        return;
    };
    let top = dir.join("t");
    std::fs::create_dir_all(top.join("a/b/c")).unwrap();
    for name in ["a/f", "a/b/f", "a/b/c/f"] {
        std::fs::write(top.join(name), "x").unwrap();
    }
    for (name, mode) in [("a/b/c", 0o000), ("a/b", 0o555), ("a", 0o500)] {
        std::fs::set_permissions(top.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(removed(&dir, "t"), Remains::default());
    assert!(!top.exists());
}

#[test]
fn read_only_directories_go_also_where_the_service_is_not_root() {
    use std::os::unix::process::CommandExt as _;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = std::env::current_exe().unwrap();
    // Somebody else has to be able to run it.
    let copied = dir.path().join("tests");
    std::fs::copy(program, &copied).unwrap();
    let ran = Command::new(&copied)
        .args([
            "--exact",
            "--ignored",
            "workspace::remove::tests::as_nobody",
        ])
        .current_dir(dir.path())
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}
