//! Removes a whole tree from a workspace while its sandbox may be at work in it.
//!
//! It is set aside outside of what the sandbox sees, by one rename, and emptied there. A
//! process that is at work in the tree goes with it, and gets no further: the kernel lets
//! nobody climb out of a directory that has left its mount (Linux 4.3 or later, which is
//! older than what the openings here need).

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::beneath::{Dir, Kind};
use super::path::RelPath;
use super::refused::FileError;
use super::{Remains, Workspaces, remove};
use crate::id::Nonce;

impl Workspaces {
    /// Removes what is at a path of a workspace: a file, a link itself, or a tree.
    ///
    /// Nothing of a tree is left in the workspace in any case; what could not be removed is
    /// in the trash, and returned.
    ///
    /// # Errors
    /// The work directory itself is refused as [`FileError::IsDirectory`].
    pub fn discard(&self, dir: &Dir, path: &RelPath) -> Result<Remains, FileError> {
        if path.is_work_dir() {
            return Err(FileError::IsDirectory);
        }
        let (parent, name) = dir.open_parent(path)?;
        if parent.stat(&name)?.kind != Kind::Dir {
            match rustix::fs::unlinkat(parent.fd(), name.as_bytes(), AtFlags::empty()) {
                // It became a directory meanwhile, which goes like any.
                Err(Errno::ISDIR) => {}
                other => return Ok(other.map(|()| Remains::default())?),
            }
        }
        let trash = self.trash().map_err(|error| FileError::Io(error.source))?;
        let aside = Nonce::random();
        rustix::fs::renameat(parent.fd(), name.as_bytes(), &trash, aside.as_str())?;
        Ok(remove::remove_tree(&trash, aside.as_str())?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::beneath::tests::path;
    use super::super::{Life, Sidecar, TRASH};
    use super::*;
    use crate::id::{Alias, SessionId};

    #[test]
    fn a_tree_goes_whole_and_no_link_in_it_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&temp.path().join("ws"), temp.path()).unwrap();
        let sidecar = Sidecar {
            id: SessionId::parse("a").unwrap(),
            runtime: Alias::parse("bb").unwrap(),
            tenant: None,
            nonce: Nonce::random(),
            opened_at: None,
            order: None,
            life: Life::Open,
        };
        assert!(workspaces.enter(&sidecar.id).unwrap().is_none());
        workspaces.ensure(&sidecar, None).unwrap();
        let dir = workspaces.enter(&sidecar.id).unwrap().unwrap();
        let mounted = workspaces.mounted(&sidecar.id);
        let outside = temp.path().join("outside");
        std::fs::create_dir_all(mounted.join("t/a/b")).unwrap();
        std::fs::write(mounted.join("t/a/f"), "").unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("f"), "").unwrap();
        symlink(&outside, mounted.join("t/l")).unwrap();
        symlink(&outside, mounted.join("l")).unwrap();
        workspaces.discard(&dir, &path("t")).unwrap();
        workspaces.discard(&dir, &path("l")).unwrap();
        assert!(dir.names(9).unwrap().entries.is_empty());
        assert!(outside.join("f").exists());
        let trash = temp.path().join("ws").join(TRASH);
        assert_eq!(std::fs::read_dir(trash).unwrap().count(), 0);
        let refused = |asked: &RelPath| workspaces.discard(&dir, asked).unwrap_err();
        assert!(matches!(refused(&path("t")), FileError::NotFound));
        assert!(matches!(
            refused(&RelPath::work_dir()),
            FileError::IsDirectory
        ));
    }
}
