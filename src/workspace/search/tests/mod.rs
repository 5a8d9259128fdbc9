//! Searches held against the system's own tools, in real directories.

mod glob;

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};

/// Opens a directory as a workspace is opened.
pub(super) fn root(dir: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty()).unwrap()
}

/// Makes files, each with its content, and the directories that they lie in.
pub(super) fn plant(dir: &Path, files: &[(&str, &[u8])]) {
    for (path, content) in files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Runs a tool in a directory and returns what it prints, cut at `separator` and sorted.
pub(super) fn told(dir: &Path, separator: u8, argv: &[&[u8]]) -> Vec<Vec<u8>> {
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
    let mut lines: Vec<_> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    lines.sort_unstable();
    lines
}

/// Does what is tried as a user who is not root, in a thread of its own.
pub(super) fn as_nobody<T: Send + 'static>(tried: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(move || {
        let nobody = rustix::fs::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        tried()
    })
    .join()
    .unwrap()
}
