//! Finds out which sessions have a directory in the workspace root.

use std::io;

use rustix::fs::Mode;
use rustix::io::Errno;

use super::sidecar::{self, Sidecar};
use super::{DIRECTORY, WorkspaceError, Workspaces};
use crate::id::SessionId;

/// So many directories of the root are looked at; more are left out of listings.
pub const HOMES_MAX: usize = 1_000_000;

impl Workspaces {
    /// Lists the ids that directories of the root are named after, sorted.
    ///
    /// Not all of these need have a workspace.
    pub fn homes(&self) -> Result<Vec<SessionId>, WorkspaceError> {
        let failed = |source: io::Error| WorkspaceError {
            what: "list the workspace root",
            path: self.0.path.clone(),
            source,
        };
        // The root has to prove that it is one.
        drop(self.0.dir()?);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.0.path)
            .map_err(failed)?
            .take(HOMES_MAX)
        {
            let entry = entry.map_err(failed)?;
            let id = entry
                .file_name()
                .to_str()
                .and_then(|name| SessionId::parse(name).ok());
            match (id, entry.file_type()) {
                (Some(id), Ok(kind)) if kind.is_dir() => found.push(id),
                // It went meanwhile, or is none of ours.
                (Some(_) | None, _) => {}
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Reads the sidecar of a session; nothing where there is none that can be used.
    pub fn sidecar(&self, id: &SessionId) -> Result<Option<Sidecar>, WorkspaceError> {
        Ok(sidecar::sidecar_in(&*self.0.dir()?, id).unwrap_or_default())
    }

    /// Returns the user of a session's workspace, and its group; nothing where it has none.
    pub fn owner(&self, id: &SessionId) -> Result<Option<super::Owner>, WorkspaceError> {
        let Some(dir) = self.enter(id)? else {
            return Ok(None);
        };
        let meta = dir.meta().map_err(|error| WorkspaceError {
            what: "look at the workspace",
            path: self.mounted(id),
            source: io::Error::other(error.to_string()),
        })?;
        Ok(Some(meta.owner))
    }

    /// Returns whether the workspace of a session is this directory still.
    pub fn is_still(&self, id: &SessionId, dir: &super::Dir) -> bool {
        let now = match self.enter(id) {
            Ok(Some(now)) => now.meta(),
            Ok(None) | Err(_) => return false,
        };
        match (now, dir.meta()) {
            (Ok(now), Ok(then)) => now.identity == then.identity,
            (Err(_), _) | (_, Err(_)) => false,
        }
    }

    /// Opens the directory of a session, made where it is missing.
    pub(super) fn home_at(&self, id: &SessionId) -> Result<std::os::fd::OwnedFd, Errno> {
        let root = self.0.dir().map_err(|_| Errno::NODEV)?;
        match rustix::fs::mkdirat(&*root, id.as_str(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        rustix::fs::openat(&*root, id.as_str(), DIRECTORY, Mode::empty())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_directories_of_sessions_are_listed_in_the_order_of_their_ids() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("ws");
        let workspaces = Workspaces::open(&root, dir.path()).unwrap();
        for name in ["b", "a.1", "c", "-no", ".trash", "with blank"] {
            std::fs::create_dir_all(root.join(name).join("workspace")).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        symlink(root.join("a.1"), root.join("link")).unwrap();
        let homes = workspaces.homes().unwrap();
        let names: Vec<&str> = homes.iter().map(SessionId::as_str).collect();
        assert_eq!(names, ["a.1", "b", "c"]);
        assert!(workspaces.sidecar(&homes[0]).unwrap().is_none());
        let held = workspaces.enter(&homes[1]).unwrap().unwrap();
        assert!(workspaces.is_still(&homes[1], &held));
        std::fs::rename(root.join("b"), root.join("was-b")).unwrap();
        assert!(!workspaces.is_still(&homes[1], &held));
        std::fs::create_dir_all(root.join("b/workspace")).unwrap();
        assert!(
            !workspaces.is_still(&homes[1], &held),
            "another of its name"
        );
    }
}
