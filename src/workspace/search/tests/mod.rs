//! Searches held against the system's own tools, in real directories.

mod glob;
mod grep;
mod races;
mod tree;
mod usage;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};

use crate::workspace::{Dir, RelPath};

/// Opens a directory as a workspace is opened.
pub(in crate::workspace) fn root(dir: &Path) -> Dir {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir::held(rustix::fs::open(dir, flags, Mode::empty()).unwrap())
}

/// The work directory itself.
pub(in crate::workspace) const TOP: &RelPath = &RelPath::work_dir();

/// Makes a chain of so many directories, each with two files beside the next.
pub(in crate::workspace) fn plant_deep(dir: &Path, depth: usize) {
    let mut parent = rustix::fs::open(dir, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..depth {
        for name in ["a-before", "z-after"] {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)).unwrap();
        }
        rustix::fs::mkdirat(&parent, "middle", Mode::RWXU).unwrap();
        parent = rustix::fs::openat(&parent, "middle", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

/// Removes what may be too deep for the directory's own removal.
pub(in crate::workspace) fn clear(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(dir, flags, Mode::empty()).unwrap();
    drop(crate::workspace::remove::empty(&top).unwrap());
}

/// Makes files, each with its content, and the directories that they lie in.
pub(in crate::workspace) fn plant(dir: &Path, files: &[(&str, &[u8])]) {
    for (path, content) in files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Runs a tool in a directory and returns what it prints, cut at `separator` and sorted.
pub(in crate::workspace) fn told(dir: &Path, separator: u8, argv: &[&[u8]]) -> Vec<Vec<u8>> {
    let [program, rest @ ..] = argv else {
        panic!("no program");
    };
    let output = Command::new(std::ffi::OsStr::from_bytes(program))
        .args(rest.iter().map(|arg| std::ffi::OsStr::from_bytes(arg)))
        .env("LC_ALL", "C")
        .current_dir(dir)
        .output()
        .unwrap();
    let lines = output.stdout.split(|byte| *byte == separator);
    let mut lines: Vec<_> = lines
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    lines.sort_unstable();
    lines
}

/// Does what is tried as a user who is not root, in a thread of its own.
pub(in crate::workspace) fn as_nobody<T: Send + 'static>(
    tried: impl FnOnce() -> T + Send + 'static,
) -> T {
    std::thread::spawn(move || {
        let nobody = rustix::fs::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        tried()
    })
    .join()
    .unwrap()
}
