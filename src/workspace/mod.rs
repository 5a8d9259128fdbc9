//! Keeps the directories that outlive containers, one for each session.
//!
//! ```text
//! <root>/                 0700
//!   .sandboxd-root        what tells it from other directories
//!   .trash/               what is being removed
//!   .incoming/            what is being unpacked, to become a workspace
//!   <session id>/         0700
//!     .sandboxd.json      who it belongs to, for rebuilding a lost store
//!     workspace/          0755, mounted at the work directory
//! ```
//!
//! Untrusted code owns what lies in `workspace`, so nothing in there is ever
//! opened by name from here: removal goes down by directory descriptors.

pub mod archive;
mod remove;
mod root;
pub mod search;
mod sidecar;

#[cfg(test)]
mod attacks;
mod beneath;
mod digest;
mod discard;
mod edit;
mod expected;
mod homes;
mod incoming;
mod lines;
mod locks;
mod path;
mod placed;
mod read;
mod refused;
mod text;
mod watch;
mod write;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::id::{Nonce, SessionId};
pub use beneath::{
    Dir, Entry, Extent, Kind, Listing, Meta, Named, Opened, Owner, Unsupported, probe,
};
pub use digest::ContentDigest;
pub use edit::{Change, Edited, Times, replaced};
pub use expected::Expected;
pub use homes::HOMES_MAX;
pub use incoming::{INCOMING, Incoming, NotPlaced, OldFiles};
pub use lines::{Behind, Bounds, Cutter, End, SAMPLE_BYTES_MAX, Slice, Window, lines_of};
pub use path::{
    NAME_BYTES_MAX, NotAPath, PATH_BYTES_MAX, Place, RelPath, WireName, has_dot, is_absolute,
};
pub use placed::{Arrival, Old, Placed};
pub use read::{CHUNK_BYTES_MAX, Chunks};
pub use refused::FileError;
pub use remove::{Remaining, Remains};
use root::Root;
pub use root::{ROOT_MARK, ROOT_NOTE, Strange, is_noted};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
pub use sidecar::{Found, Life, Noted, SIDECAR, SIDECAR_BYTES_MAX, Sidecar};
pub use text::{Decoding, Family, Sample};
pub use watch::{Alteration, NotWatched, Watch};
pub use write::{Draft, Replacing, Survives};

/// The directory of a session that is mounted into its container.
pub const MOUNTED: &str = "workspace";
/// Where a directory goes before it is emptied.
pub const TRASH: &str = ".trash";

/// All workspaces of the service; cheap to clone. Its calls block.
#[derive(Clone, Debug)]
pub struct Workspaces(Arc<Root>);

/// What went wrong with a workspace.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}", path.display())]
pub struct WorkspaceError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl WorkspaceError {
    /// Returns whether the disk is full, or the quota used up.
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

impl Workspaces {
    /// Opens the root, which is made 0700 and marked the first time.
    ///
    /// Its mark is noted in the state directory. A directory without the noted mark is
    /// not the root: every call fails then, until it is back or another is accepted.
    pub fn open(path: &Path, state_dir: &Path) -> Result<Self, WorkspaceError> {
        Root::open(path, Some(state_dir.join(ROOT_NOTE))).map(|root| Self(Arc::new(root)))
    }

    /// Does work that blocks on a thread where that hurts nobody.
    pub async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let workspaces = self.clone();
        #[cfg(test)]
        if workspaces.0.takes_turns() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            return work(&workspaces);
        }
        match tokio::task::spawn_blocking(move || work(&workspaces)).await {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Has the work of [`Workspaces::apart`] done by the one thread of a test, so that it
    /// takes the same course each time.
    #[cfg(test)]
    pub(crate) fn take_turns(&self) {
        self.0.take_turns();
    }

    /// Looks whether the root is where it should be; returns whether that has changed
    /// since the last such look.
    pub fn check(&self, now: Timestamp) -> bool {
        self.0.check(now)
    }

    /// Returns what the last check found in place of the root.
    pub fn strange(&self) -> Option<Strange> {
        self.0.strange()
    }

    /// Takes the directory that is there for the root from now on, with what is in it.
    pub fn accept(&self) -> Result<(), WorkspaceError> {
        self.0.accept()
    }

    /// Returns the host path that is mounted into a session's container.
    pub fn mounted(&self, id: &SessionId) -> PathBuf {
        self.0.path.join(id.as_str()).join(MOUNTED)
    }

    /// Returns whether a session has a workspace.
    pub fn exists(&self, id: &SessionId) -> Result<bool, WorkspaceError> {
        let path = format!("{id}/{MOUNTED}");
        match rustix::fs::statat(&*self.0.dir()?, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir()),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(fault("look at the workspace", &self.mounted(id))(error)),
        }
    }

    /// Opens a session's workspace, for its files; nothing where it has none.
    pub fn enter(&self, id: &SessionId) -> Result<Option<Dir>, WorkspaceError> {
        let path = format!("{id}/{MOUNTED}");
        match Dir::enter(self.0.dir()?.as_fd(), &path) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(fault("open the workspace", &self.mounted(id))(error)),
        }
    }

    /// Makes a session's workspace where it is missing, and writes its sidecar.
    ///
    /// `owner` is the user that the sandbox runs as, where the service imposes
    /// one. Files that are there already stay as they are.
    pub fn ensure(&self, sidecar: &Sidecar, owner: Option<u32>) -> Result<(), WorkspaceError> {
        let path = self.mounted(&sidecar.id);
        let fault = |what| fault(what, &path);
        let home = self.home(&sidecar.id)?;
        if let Err(error) = sidecar::create(&home, sidecar) {
            // Nothing is left of a session that was never there. What is in use
            // has a workspace, and is not empty.
            match rustix::fs::unlinkat(&*self.0.dir()?, sidecar.id.as_str(), AtFlags::REMOVEDIR) {
                Ok(()) | Err(_) => {}
            }
            return Err(fault("write the sidecar beside")(error));
        }
        match rustix::fs::mkdirat(&home, MOUNTED, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(fault("make the workspace")(error)),
        }
        let dir = rustix::fs::openat(&home, MOUNTED, DIRECTORY, Mode::empty())
            .map_err(fault("open the workspace"))?;
        if let Some(uid) = owner {
            rustix::fs::fchown(&dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))
                .map_err(fault("hand the workspace to its user:"))?;
        }
        Ok(())
    }

    /// Returns whether a session's workspace is there and has nothing in it.
    pub fn is_unused(&self, id: &SessionId) -> Result<bool, WorkspaceError> {
        let path = self.mounted(id);
        let fault = |what| fault(what, &path);
        if !self.exists(id)? {
            return Ok(false);
        }
        let dir = rustix::fs::openat(&self.home(id)?, MOUNTED, DIRECTORY, Mode::empty())
            .map_err(fault("open the workspace"))?;
        remove::is_empty(&dir).map_err(fault("list the workspace"))
    }

    /// Removes a session's workspace provided that it is empty; a file that
    /// appeared meanwhile keeps it.
    pub fn remove_unused(&self, id: &SessionId) -> Result<(), WorkspaceError> {
        let path = self.mounted(id);
        let fault = |what| fault(what, &path);
        let home = self.home(id)?;
        match rustix::fs::unlinkat(&home, MOUNTED, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(()),
            Err(error) => return Err(fault("remove the empty workspace")(error)),
        }
        drop(home);
        self.remove(id).map(drop)
    }

    /// Removes everything a session has on disk; what is missing is no error.
    ///
    /// It is set aside first, so that a new workspace of the same id is never
    /// mixed with the remains of the old one. Links are removed, never followed. What
    /// cannot be removed stays in the trash, and is returned.
    pub fn remove(&self, id: &SessionId) -> Result<Remains, WorkspaceError> {
        let path = self.0.path.join(id.as_str());
        let fault = |what| fault(what, &path);
        let trash = self.trash()?;
        let aside = Nonce::random();
        match rustix::fs::renameat(&*self.0.dir()?, id.as_str(), &trash, aside.as_str()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Remains::default()),
            Err(error) => return Err(fault("set aside the workspace")(error)),
        }
        remove::remove_tree(&trash, aside.as_str()).map_err(fault("empty the workspace"))
    }

    /// Removes what an earlier run had set aside and not finished removing; returns what
    /// still cannot be removed.
    pub fn empty_trash(&self) -> Result<Remains, WorkspaceError> {
        let path = self.0.path.join(TRASH);
        remove::remove_all(&self.trash()?).map_err(fault("empty the trash", &path))
    }

    fn home(&self, id: &SessionId) -> Result<OwnedFd, WorkspaceError> {
        self.directory(id.as_str())
    }

    fn trash(&self) -> Result<OwnedFd, WorkspaceError> {
        self.directory(TRASH)
    }

    fn directory(&self, name: &str) -> Result<OwnedFd, WorkspaceError> {
        let path = self.0.path.join(name);
        let root = self.0.dir()?;
        match rustix::fs::mkdirat(&*root, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(fault("make", &path)(error)),
        }
        rustix::fs::openat(&*root, name, DIRECTORY, Mode::empty()).map_err(fault("open", &path))
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

fn fault(what: &'static str, path: &Path) -> impl Fn(Errno) -> WorkspaceError {
    let path = path.to_path_buf();
    move |error| WorkspaceError {
        what,
        path: path.clone(),
        source: error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;
    use crate::id::Alias;

    fn sidecar(id: &str) -> Sidecar {
        Sidecar {
            id: SessionId::parse(id).unwrap(),
            runtime: Alias::parse("bb").unwrap(),
            tenant: None,
            nonce: Nonce::random(),
            opened_at: None,
            order: None,
            life: Life::Open,
        }
    }

    fn workspaces() -> (tempfile::TempDir, Workspaces) {
        let dir = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&dir.path().join("ws"), dir.path()).unwrap();
        (dir, workspaces)
    }

    #[test]
    fn a_workspace_is_made_once_and_keeps_its_files() {
        let (_dir, workspaces) = workspaces();
        let sidecar = sidecar("a");
        assert!(!workspaces.exists(&sidecar.id).unwrap());
        workspaces.ensure(&sidecar, Some(1000)).unwrap();
        let mounted = workspaces.mounted(&sidecar.id);
        std::fs::write(mounted.join("f"), "kept").unwrap();
        workspaces.ensure(&sidecar, Some(1000)).unwrap();
        assert_eq!(std::fs::read(mounted.join("f")).unwrap(), b"kept");
        let meta = std::fs::metadata(&mounted).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.uid()), (0o755, 1000));
        let home = std::fs::metadata(mounted.parent().unwrap()).unwrap();
        assert_eq!(home.permissions().mode() & 0o777, 0o700);
        let text = std::fs::read_to_string(mounted.parent().unwrap().join(SIDECAR)).unwrap();
        assert!(text.contains(sidecar.nonce.as_str()));
    }

    #[test]
    fn removal_follows_no_link_and_leaves_nothing() {
        let (dir, workspaces) = workspaces();
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("precious"), "x").unwrap();
        let sidecar = sidecar("a");
        workspaces.ensure(&sidecar, None).unwrap();
        let mounted = workspaces.mounted(&sidecar.id);
        symlink(&outside, mounted.join("link")).unwrap();
        let mut deep = mounted.clone();
        for _ in 0..200 {
            deep.push("d");
            std::fs::create_dir(&deep).unwrap();
            std::fs::write(deep.join("f\n 'odd"), "x").unwrap();
        }
        std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o500)).unwrap();
        workspaces.remove(&sidecar.id).unwrap();
        assert!(!workspaces.exists(&sidecar.id).unwrap());
        assert!(outside.join("precious").exists());
        let left: Vec<_> = std::fs::read_dir(workspaces.0.path.join(TRASH))
            .unwrap()
            .collect();
        assert!(left.is_empty());
        workspaces.remove(&sidecar.id).unwrap();
    }

    #[test]
    fn an_unused_workspace_goes_and_a_used_one_stays() {
        let (_dir, workspaces) = workspaces();
        let (unused, used) = (sidecar("unused"), sidecar("used"));
        for sidecar in [&unused, &used] {
            workspaces.ensure(sidecar, None).unwrap();
        }
        std::fs::write(workspaces.mounted(&used.id).join("f"), "x").unwrap();
        assert!(workspaces.is_unused(&unused.id).unwrap());
        assert!(!workspaces.is_unused(&used.id).unwrap());
        for sidecar in [&unused, &used] {
            workspaces.remove_unused(&sidecar.id).unwrap();
        }
        assert!(!workspaces.exists(&unused.id).unwrap());
        assert!(workspaces.mounted(&used.id).join("f").exists());
    }

    #[test]
    fn remains_of_an_interrupted_removal_are_emptied_later() {
        let (_dir, workspaces) = workspaces();
        let trash = workspaces.0.path.join(TRASH);
        std::fs::create_dir_all(trash.join("old/a/b")).unwrap();
        std::fs::write(trash.join("old/a/f"), "x").unwrap();
        workspaces.empty_trash().unwrap();
        assert_eq!(std::fs::read_dir(trash).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_place_of_a_workspace_is_no_workspace() {
        let (dir, workspaces) = workspaces();
        let id = SessionId::parse("a").unwrap();
        std::fs::create_dir_all(dir.path().join("ws/a")).unwrap();
        symlink("/etc", dir.path().join("ws/a/workspace")).unwrap();
        assert!(!workspaces.exists(&id).unwrap());
        assert!(workspaces.ensure(&sidecar("a"), None).is_err());
    }
}
