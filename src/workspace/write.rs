//! Replaces a file whole, so that nobody ever sees half of one.
//!
//! The new content goes to a file without a name (`O_TMPFILE`), which the sandbox cannot
//! see, and which is gone by itself if the daemon dies. When it is whole it gets its mode
//! and its owner, a random name beside the old file, and by a rename the old one's place.
//! Where the file system knows no files without names, it has the random name from the
//! beginning.
//!
//! The directory is held throughout: what is moved to its path meanwhile is never
//! written to. If it was itself moved, the file moved with it, which is told.

use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::beneath::{Dir, Kind, Meta, Owner, own, own_descriptors};
use super::expected::Expected;
use super::locks::{self, Turn};
use super::path::RelPath;
use super::placed::{Arrival, Old, Placed, reserve};
use super::refused::FileError;
use crate::id::Nonce;

/// The mode of a new file.
const NEW_FILE: u32 = 0o644;
/// What a file keeps of its mode when it is replaced: no bit that lends its owner's rights.
const KEPT_MODE: u32 = 0o777;
/// Pieces that are written at once, as many as the kernel takes (`UIO_MAXIOV`).
const PIECES_MAX: usize = 1_024;
/// How the name begins and ends that a file has before it is in its place.
const ASIDE_BEGINS: &str = ".sandboxd-";
const ASIDE_ENDS: &str = ".tmp";

/// How a file is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacing {
    /// Who owns what is new: the file, and directories above it.
    pub owner: Option<Owner>,
    /// Bytes of the new content.
    pub bytes_max: u64,
    /// What has to be there before.
    pub expected: Expected,
    /// What it survives.
    pub survives: Survives,
}

/// What a finished write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Survives {
    /// The end of the daemon.
    #[default]
    DaemonEnd,
    /// A loss of power too: the file and its directory are synced.
    PowerLoss,
}

/// New content that is on its way to its place; dropped, it leaves nothing.
#[derive(Debug)]
pub struct Draft {
    top: Dir,
    parent_path: RelPath,
    parent: Dir,
    name: RelPath,
    /// The name it has beside its place, while it has one.
    aside: Option<String>,
    file: File,
    n_bytes: u64,
    /// Whether it has room on the disk for all of them.
    is_reserved: bool,
    how: Replacing,
}

impl Dir {
    /// Replaces a file by these bytes.
    pub fn write(&self, path: &RelPath, bytes: &[u8], how: Replacing) -> Result<Meta, FileError> {
        self.write_pieces(path, [bytes], how)
            .map(|placed| placed.meta)
    }

    /// Replaces a file by these bytes, one piece after the other.
    pub fn write_pieces<P: AsRef<[u8]>>(
        &self,
        path: &RelPath,
        pieces: impl IntoIterator<Item = P>,
        how: Replacing,
    ) -> Result<Placed, FileError> {
        let pieces: Vec<P> = pieces.into_iter().collect();
        let mut pieces: Vec<IoSlice<'_>> = pieces
            .iter()
            .map(|one| IoSlice::new(one.as_ref()))
            .collect();
        // What can be refused is so before it is put in its place, a moment from now.
        let mut draft = Draft::begin(self, path, self.parent_of(path, &how)?, how)?;
        draft.append_all(&mut pieces)?;
        draft.place()
    }

    /// Begins to replace a file, which changes with [`Draft::commit`].
    ///
    /// Directories above it are made. What can be refused is refused now.
    pub fn draft(&self, path: &RelPath, how: Replacing) -> Result<Draft, FileError> {
        Draft::within(self, path, self.parent_of(path, &how)?, how)
    }

    /// Opens the directory that a file is to be in, and makes those that are missing.
    fn parent_of(&self, path: &RelPath, how: &Replacing) -> Result<Self, FileError> {
        let parent = path.parent().ok_or(FileError::IsDirectory)?;
        match self.make_dirs(&parent, how.owner) {
            Err(FileError::Exists) => Err(FileError::NotDirectory),
            other => other,
        }
    }
}

impl Draft {
    /// Begins to replace a file whose directory is held already, and looks whether it can be.
    pub(super) fn within(
        top: &Dir,
        path: &RelPath,
        parent: Dir,
        how: Replacing,
    ) -> Result<Self, FileError> {
        let draft = Self::begin(top, path, parent, how)?;
        let old = look(&draft.parent, &draft.name)?;
        draft.how.expected.check(seen(old.as_ref()))?;
        Ok(draft)
    }

    fn begin(top: &Dir, path: &RelPath, parent: Dir, how: Replacing) -> Result<Self, FileError> {
        let (parent_path, name) = path.split().ok_or(FileError::IsDirectory)?;
        let name = RelPath::work_dir().child(name).expect("it is one name");
        let (file, aside) = nameless(&parent)?;
        Ok(Self {
            top: top.clone(),
            parent_path,
            parent,
            name,
            aside,
            file,
            n_bytes: 0,
            is_reserved: false,
            how,
        })
    }

    /// Appends to the new content.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let bytes_then = self.bytes_with(bytes.len())?;
        self.file.write_all(bytes)?;
        self.n_bytes = bytes_then;
        Ok(())
    }

    /// Appends all that the new content consists of, for which room is taken first.
    fn append_all(&mut self, mut pieces: &mut [IoSlice<'_>]) -> Result<(), FileError> {
        let n_bytes = pieces.iter().map(|piece| piece.len()).sum();
        let bytes_then = self.bytes_with(n_bytes)?;
        self.is_reserved = reserve(&self.file, bytes_then)?;
        while 0 < pieces.iter().map(|piece| piece.len()).sum::<usize>() {
            let (some, _) = pieces.split_at(pieces.len().min(PIECES_MAX));
            match rustix::io::writev(&self.file, some) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => IoSlice::advance_slices(&mut pieces, n),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.n_bytes = bytes_then;
        Ok(())
    }

    /// Returns how many bytes it has with so many more.
    fn bytes_with(&self, more: usize) -> Result<u64, FileError> {
        let limit = self.how.bytes_max;
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let bytes = self.n_bytes.saturating_add(more);
        if limit < bytes {
            return Err(FileError::TooLarge { bytes, limit });
        }
        Ok(bytes)
    }

    /// Puts the new content in its place; returns what is there now.
    ///
    /// An old file's mode and owner stay; its other names, if it has any, keep the old
    /// content.
    ///
    /// # Errors
    /// The old content is as it was, but for [`FileError::Moved`]: then the new one is
    /// wherever its directory is now.
    pub fn commit(self) -> Result<Meta, FileError> {
        self.place().map(|placed| placed.meta)
    }

    /// Like [`Draft::commit`]; says too whether something was there before.
    pub fn place(self) -> Result<Placed, FileError> {
        let turn = self.turn()?;
        self.place_in(&turn)
    }

    /// Puts the new content in its place for one who has the turn at it.
    pub(super) fn commit_in(self, turn: &Turn) -> Result<Meta, FileError> {
        self.place_in(turn).map(|placed| placed.meta)
    }

    fn place_in(mut self, _turn: &Turn) -> Result<Placed, FileError> {
        let old = look(&self.parent, &self.name)?;
        self.how.expected.check(seen(old.as_ref()))?;
        self.dress(seen(old.as_ref()))?;
        if self.how.survives == Survives::PowerLoss {
            rustix::fs::fdatasync(&self.file)?;
        }
        self.put().map_err(|error| match error {
            // The directory was removed: nothing can be put there any more.
            Errno::NOENT => FileError::Moved,
            Errno::EXIST => FileError::Changed,
            error => error.into(),
        })?;
        if self.how.survives == Survives::PowerLoss {
            rustix::fs::fsync(self.parent.fd())?;
        }
        self.check_path()?;
        Ok(Placed {
            meta: Meta::of(&rustix::fs::fstat(&self.file)?),
            arrival: if old.is_some() {
                Arrival::Replaced
            } else {
                Arrival::New
            },
            old: old.map(|(old, _)| {
                if self.is_reserved {
                    old.gives_way_to(&self.file)
                } else {
                    old
                }
            }),
        })
    }

    /// Makes sure that the directory is still where its path leads.
    fn check_path(&self) -> Result<(), FileError> {
        // The work directory is the one that everything began at.
        if self.parent_path.is_work_dir() {
            return Ok(());
        }
        let held = self.parent.meta()?.identity;
        let there = self.top.open_dir(&self.parent_path);
        match there.and_then(|there| there.meta()) {
            Ok(there) if there.identity == held => Ok(()),
            Err(FileError::Io(error)) => Err(FileError::Io(error)),
            Ok(_) | Err(_) => Err(FileError::Moved),
        }
    }

    fn turn(&self) -> Result<Turn, FileError> {
        turn(&self.parent, &self.name)
    }

    /// Gives the new content its owner and its mode.
    fn dress(&self, old: Option<&Meta>) -> Result<(), FileError> {
        let owner = old.map_or(self.how.owner, |old| Some(old.owner));
        let mode = old.map_or(NEW_FILE, |old| old.mode & KEPT_MODE);
        let now = Meta::of(&rustix::fs::fstat(&self.file)?).owner;
        if owner.is_some_and(|owner| owner != now) {
            own(self.file.as_fd(), owner)?;
        }
        // Last: a new owner takes bits away.
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?;
        Ok(())
    }

    fn put(&mut self) -> Result<(), Errno> {
        let parent = self.parent.fd();
        let aside = if let Some(aside) = &self.aside {
            aside.clone()
        } else {
            let aside = name_aside();
            let number = self.file.as_raw_fd().to_string();
            // The entry of a descriptor leads to its file, whatever has a name.
            let follow = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(own_descriptors()?, &number, parent, &aside, follow)?;
            self.aside.insert(aside).clone()
        };
        let how = match self.how.expected {
            Expected::Nothing => RenameFlags::NOREPLACE,
            Expected::Anything | Expected::Something | Expected::OneOf(_) | Expected::NoneOf(_) => {
                RenameFlags::empty()
            }
        };
        rustix::fs::renameat_with(parent, &aside, parent, self.name.as_bytes(), how)?;
        self.aside = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            match rustix::fs::unlinkat(self.parent.fd(), aside, AtFlags::empty()) {
                // Nobody is there who could do more.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Waits for the turn at a file of a directory.
pub(super) fn turn(parent: &Dir, name: &RelPath) -> Result<Turn, FileError> {
    Ok(locks::wait(parent.meta()?.identity, name.as_bytes()))
}

/// Looks at what is to be replaced: a regular file, or nothing.
fn look(parent: &Dir, name: &RelPath) -> Result<Option<(Old, Meta)>, FileError> {
    let (old, meta) = match parent.find(name) {
        Ok((held, meta)) => {
            let bytes = meta.size;
            (Old::new(held, bytes), meta)
        }
        Err(FileError::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    let name = name.as_bytes().to_vec();
    match meta.kind {
        Kind::File => Ok(Some((old, meta))),
        Kind::Dir => Err(FileError::IsDirectory),
        Kind::Link => Err(FileError::Link { name }),
        Kind::Other => Err(FileError::Special { name }),
    }
}

fn seen(old: Option<&(Old, Meta)>) -> Option<&Meta> {
    old.map(|(_, meta)| meta)
}

/// Makes a file in a directory, without a name where the file system can.
fn nameless(parent: &Dir) -> Result<(File, Option<String>), FileError> {
    let how = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    match parent.open(&RelPath::work_dir(), how | OFlags::TMPFILE) {
        Ok(file) => return Ok((File::from(file), None)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    named(parent).map(|(file, aside)| (file, Some(aside)))
}

/// Makes a file with a random name in a directory.
fn named(parent: &Dir) -> Result<(File, String), FileError> {
    let how = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let aside = name_aside();
    let path = RelPath::work_dir()
        .child(aside.as_bytes())
        .expect("it is one name");
    let file = parent.open(&path, how | OFlags::CREATE | OFlags::EXCL)?;
    Ok((File::from(file), aside))
}

/// Returns a name that nobody can foretell, however long the name beside it is.
fn name_aside() -> String {
    format!("{ASIDE_BEGINS}{}{ASIDE_ENDS}", Nonce::random())
}

/// Returns whether a name is one that a file has while it is written.
pub(super) fn is_aside(name: &[u8]) -> bool {
    let begins = name.strip_prefix(ASIDE_BEGINS.as_bytes());
    let nonce = begins.and_then(|rest| rest.strip_suffix(ASIDE_ENDS.as_bytes()));
    nonce.is_some_and(|nonce| nonce.len() == 32 && nonce.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::Path;
    use std::process::Command;

    use super::super::beneath::tests::{path, workspace};
    use super::*;

    fn how() -> Replacing {
        Replacing {
            owner: Some(Owner {
                uid: 1234,
                gid: 5678,
            }),
            bytes_max: 1 << 20,
            expected: Expected::Anything,
            survives: Survives::DaemonEnd,
        }
    }

    fn expecting(expected: Expected) -> Replacing {
        Replacing { expected, ..how() }
    }

    fn names(dir: &Dir) -> Vec<String> {
        let listing = dir.names(100).unwrap();
        let mut names: Vec<_> = listing
            .entries
            .into_iter()
            .map(|entry| String::from_utf8(entry.name).unwrap())
            .collect();
        names.sort();
        names
    }

    fn owned(path: &Path) -> (u32, u32, u32) {
        let meta = std::fs::metadata(path).unwrap();
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    }

    #[test]
    fn a_new_file_belongs_to_the_sandbox_with_the_directories_above_it() {
        let (temp, dir) = workspace();
        let meta = dir.write(&path("a/b/f"), b"content", how()).unwrap();
        assert_eq!(
            std::fs::read(temp.path().join("a/b/f")).unwrap(),
            b"content"
        );
        assert_eq!(owned(&temp.path().join("a/b/f")), (1234, 5678, 0o644));
        assert_eq!(owned(&temp.path().join("a/b")), (1234, 5678, 0o755));
        assert_eq!(meta, dir.stat(&path("a/b/f")).unwrap());
        assert_eq!(names(&dir.open_dir(&path("a/b")).unwrap()), ["f"]);
        let empty = dir.write(&path(&"n".repeat(255)), b"", how()).unwrap();
        assert_eq!(empty.size, 0);
    }

    #[test]
    fn an_old_file_keeps_its_mode_and_owner_but_lends_no_rights() {
        let (temp, dir) = workspace();
        let file = temp.path().join("f");
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::chown(&file, Some(77), Some(88)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4755)).unwrap();
        std::fs::hard_link(&file, temp.path().join("other")).unwrap();
        for survives in [Survives::DaemonEnd, Survives::PowerLoss] {
            dir.write(&path("f"), b"new", Replacing { survives, ..how() })
                .unwrap();
        }
        assert_eq!(owned(&file), (77, 88, 0o755));
        assert_eq!(std::fs::read(temp.path().join("other")).unwrap(), b"old");
        assert_eq!(names(&dir), ["f", "other"]);
    }

    #[test]
    fn only_a_regular_file_is_replaced() {
        let (temp, dir) = workspace();
        std::fs::create_dir(temp.path().join("dir")).unwrap();
        std::fs::write(temp.path().join("file"), "").unwrap();
        symlink("file", temp.path().join("link")).unwrap();
        let fifo = Command::new("mkfifo")
            .arg(temp.path().join("fifo"))
            .status();
        assert!(fifo.unwrap().success());
        let refused = |asked: &str| dir.write(&path(asked), b"x", how()).unwrap_err();
        assert!(matches!(refused("dir"), FileError::IsDirectory));
        assert!(matches!(refused("link"), FileError::Link { name } if name == b"link"));
        assert!(matches!(refused("fifo"), FileError::Special { name } if name == b"fifo"));
        assert!(matches!(refused("file/x"), FileError::NotDirectory));
        assert!(matches!(refused("file/x/y"), FileError::NotDirectory));
        assert!(matches!(refused("link/x"), FileError::Link { .. }));
        let work_dir = dir.write(&RelPath::work_dir(), b"x", how()).unwrap_err();
        assert!(matches!(work_dir, FileError::IsDirectory));
        assert_eq!(names(&dir), ["dir", "fifo", "file", "link"]);
    }

    #[test]
    fn a_write_is_refused_where_the_file_is_not_the_expected_one() {
        let (temp, dir) = workspace();
        let file = path("f");
        let write = |expected| dir.write(&file, b"x", expecting(expected));
        let is_refused = |expected| matches!(write(expected), Err(FileError::Changed));
        assert!(is_refused(Expected::Something));
        assert!(is_refused(Expected::OneOf(vec!["1".to_owned()])));
        let first = write(Expected::Nothing).unwrap().etag();
        assert!(is_refused(Expected::Nothing));
        assert!(is_refused(Expected::NoneOf(vec![first.clone()])));
        let second = write(Expected::OneOf(vec![first.clone()])).unwrap().etag();
        assert_ne!(first, second);
        assert!(is_refused(Expected::OneOf(vec![first])));
        write(Expected::Something).unwrap();
        // What comes in between is noticed too.
        let tag = dir.stat(&file).unwrap().etag();
        let mut draft = dir
            .draft(&file, expecting(Expected::OneOf(vec![tag])))
            .unwrap();
        draft.append(b"late").unwrap();
        std::fs::write(temp.path().join("f"), "sooner").unwrap();
        assert!(matches!(draft.commit(), Err(FileError::Changed)));
        let draft = dir.draft(&path("g"), expecting(Expected::Nothing)).unwrap();
        std::fs::write(temp.path().join("g"), "sooner").unwrap();
        assert!(matches!(draft.commit(), Err(FileError::Changed)));
        assert_eq!(names(&dir), ["f", "g"]);
        assert_eq!(std::fs::read(temp.path().join("f")).unwrap(), b"sooner");
    }

    #[test]
    fn a_draft_that_is_too_large_or_given_up_leaves_nothing() {
        let (temp, dir) = workspace();
        std::fs::write(temp.path().join("f"), "old").unwrap();
        let mut draft = dir
            .draft(
                &path("f"),
                Replacing {
                    bytes_max: 10,
                    ..how()
                },
            )
            .unwrap();
        draft.append(b"0123456789").unwrap();
        let error = draft.append(b"x").unwrap_err();
        assert!(matches!(
            error,
            FileError::TooLarge {
                bytes: 11,
                limit: 10
            }
        ));
        assert_eq!(names(&dir), ["f"], "it has no name");
        drop(draft);
        assert_eq!(std::fs::read(temp.path().join("f")).unwrap(), b"old");
    }

    #[test]
    fn a_draft_with_a_name_works_like_one_without() {
        assert!(is_aside(name_aside().as_bytes()) && !is_aside(b".sandboxd-x.tmp"));
        let (temp, dir) = workspace();
        let with_name = |asked: &str| {
            let mut draft = dir.draft(&path(asked), how()).unwrap();
            let (file, aside) = named(&draft.parent).unwrap();
            (draft.file, draft.aside) = (file, Some(aside));
            draft.append(b"new").unwrap();
            draft
        };
        drop(with_name("f"));
        assert!(names(&dir).is_empty());
        with_name("f").commit().unwrap();
        assert_eq!(names(&dir), ["f"]);
        assert_eq!(owned(&temp.path().join("f")), (1234, 5678, 0o644));
    }

    #[test]
    fn a_file_in_a_directory_that_was_moved_is_told() {
        let (temp, dir) = workspace();
        let draft = dir.draft(&path("a/f"), how()).unwrap();
        std::fs::rename(temp.path().join("a"), temp.path().join("b")).unwrap();
        std::fs::create_dir(temp.path().join("a")).unwrap();
        assert!(matches!(draft.commit(), Err(FileError::Moved)));
        assert!(temp.path().join("b/f").exists());
        let draft = dir.draft(&path("a/f"), how()).unwrap();
        std::fs::remove_dir(temp.path().join("a")).unwrap();
        assert!(matches!(draft.commit(), Err(FileError::Moved)));
    }

    #[test]
    fn a_full_disk_leaves_the_old_content_and_nothing_else() {
        let (temp, _) = workspace();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(temp.path())
            .status();
        if !mount.is_ok_and(|status| status.success()) {
            // Only root can mount; the law is then checked where root runs the tests.
            return;
        }
        let root = rustix::fs::open(temp.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let dir = Dir::held(root);
        dir.write(&path("f"), b"old", how()).unwrap();
        let error = dir.write(&path("f"), &vec![0; 1 << 18], how());
        let kept = std::fs::read(temp.path().join("f"));
        let left = names(&dir);
        drop(dir);
        assert!(
            Command::new("umount")
                .arg(temp.path())
                .status()
                .unwrap()
                .success()
        );
        assert!(matches!(error, Err(FileError::NoSpace)), "{error:?}");
        assert_eq!(kept.unwrap(), b"old");
        assert_eq!(left, ["f"]);
    }
}
