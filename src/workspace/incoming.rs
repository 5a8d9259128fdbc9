//! Fills a directory beside the workspaces, and puts it in the place of one at once.
//!
//! ```text
//! <root>/.incoming/<nonce>/   filled while nobody sees it
//!           │  one rename, or an exchange with the old workspace
//!           ▼
//! <root>/<session id>/workspace/      the old one goes by the trash
//! ```
//!
//! What an earlier run left half filled goes by the trash as well.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;

use super::beneath::own;
use super::remove::Remains;
use super::{
    DIRECTORY, Dir, MOUNTED, Owner, Sidecar, WorkspaceError, Workspaces, fault, remove, sidecar,
};
use crate::id::{Nonce, SessionId};

/// Where directories are filled.
pub const INCOMING: &str = ".incoming";

/// A directory that is being filled, to become a workspace. Dropped, it goes to the trash.
#[derive(Debug)]
pub struct Incoming {
    workspaces: Workspaces,
    beside: OwnedFd,
    name: Nonce,
    dir: Dir,
}

/// What becomes of files that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldFiles {
    /// They stay, and nothing takes their place.
    Refuse,
    /// They go as what is new takes their place.
    Replace,
}

/// Why what was filled did not take its place; the old files are as they were.
#[derive(Debug, thiserror::Error)]
pub enum NotPlaced {
    /// There are files in its place.
    #[error("put it in the place of files that are there")]
    NotEmpty,
    /// The host could not do it.
    #[error(transparent)]
    Failed(#[from] WorkspaceError),
}

impl Workspaces {
    /// Makes an empty directory to be filled, which belongs to `owner`.
    pub fn incoming(&self, owner: Option<Owner>) -> Result<Incoming, WorkspaceError> {
        let beside = self.directory(INCOMING)?;
        let name = Nonce::random();
        let path = self.0.path.join(INCOMING);
        let fault = |what| fault(what, &path);
        rustix::fs::mkdirat(&beside, name.as_str(), Mode::from_raw_mode(0o755))
            .map_err(fault("make a directory in"))?;
        let made = rustix::fs::openat(&beside, name.as_str(), DIRECTORY, Mode::empty())
            .map_err(fault("open what was made in"))?;
        // Whatever the umask of the service is.
        rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))
            .and_then(|()| own(std::os::fd::AsFd::as_fd(&made), owner))
            .map_err(fault("hand what was made to its user in"))?;
        Ok(Incoming {
            workspaces: self.clone(),
            beside,
            name,
            dir: Dir::held(made),
        })
    }

    /// Sends to the trash what an earlier run left half filled; nothing may be under way.
    pub fn abandon_incoming(&self) -> Result<(), WorkspaceError> {
        let path = self.0.path.join(INCOMING);
        let (root, trash) = (self.0.dir()?, self.trash()?);
        match rustix::fs::renameat(&*root, INCOMING, &trash, Nonce::random().as_str()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(fault("set aside", &path)(error)),
        }
    }
}

impl Incoming {
    /// Returns the directory to be filled.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Becomes the workspace of a session; nobody may use that or make one meanwhile.
    ///
    /// With a sidecar, that is written where there is none yet. Returns what could not be
    /// removed of the files that were there.
    pub fn take_place(
        &self,
        id: &SessionId,
        sidecar: Option<&Sidecar>,
        old: OldFiles,
    ) -> Result<Remains, NotPlaced> {
        let path = self.workspaces.mounted(id);
        let fault = |what| fault(what, &path);
        let home = self
            .workspaces
            .home_at(id)
            .map_err(fault("make room for"))?;
        if let Some(sidecar) = sidecar.filter(|_| !sidecar::is_there(&home)) {
            sidecar::create(&home, sidecar).map_err(fault("write the sidecar beside"))?;
        }
        match old {
            OldFiles::Refuse => match self.rename(&home) {
                Ok(()) => Ok(Remains::default()),
                Err(Errno::NOTEMPTY | Errno::EXIST) => Err(NotPlaced::NotEmpty),
                Err(error) => Err(fault("put in place")(error).into()),
            },
            OldFiles::Replace => self.replace(&home).map_err(|error| match error {
                Replaced::Rename(error) => fault("put in place")(error).into(),
                Replaced::Root(error) => error.into(),
            }),
        }
    }

    fn rename(&self, home: &OwnedFd) -> Result<(), Errno> {
        rustix::fs::renameat(&self.beside, self.name.as_str(), home, MOUNTED)
    }

    fn replace(&self, home: &OwnedFd) -> Result<Remains, Replaced> {
        let name = self.name.as_str();
        let exchanged =
            rustix::fs::renameat_with(&self.beside, name, home, MOUNTED, RenameFlags::EXCHANGE);
        match exchanged {
            Ok(()) => self.remove_aside().map_err(Replaced::Root),
            Err(Errno::NOENT) => {
                self.rename(home)?;
                Ok(Remains::default())
            }
            // A file system that cannot exchange: the old one goes first, and comes back
            // where the new one cannot follow.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let trash = self.workspaces.trash().map_err(Replaced::Root)?;
                let aside = Nonce::random();
                rustix::fs::renameat(home, MOUNTED, &trash, aside.as_str())?;
                if let Err(error) = self.rename(home) {
                    rustix::fs::renameat(&trash, aside.as_str(), home, MOUNTED)?;
                    return Err(error.into());
                }
                Ok(remove::remove_tree(&trash, aside.as_str())?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what has this one's name by now.
    fn remove_aside(&self) -> Result<Remains, WorkspaceError> {
        let path = self.workspaces.0.path.join(INCOMING);
        let fault = |what| fault(what, &path);
        let trash = self.workspaces.trash()?;
        let name = self.name.as_str();
        match rustix::fs::renameat(&self.beside, name, &trash, name) {
            Ok(()) => remove::remove_tree(&trash, name).map_err(fault("remove what was in")),
            Err(Errno::NOENT) => Ok(Remains::default()),
            Err(error) => Err(fault("set aside what is in")(error)),
        }
    }

    /// Removes it with everything that was put in.
    pub fn discard(self) -> Result<Remains, WorkspaceError> {
        self.remove_aside()
    }
}

impl Drop for Incoming {
    /// Where it was neither put in place nor removed, it is set aside at least.
    fn drop(&mut self) {
        let Ok(trash) = self.workspaces.trash() else {
            return;
        };
        let name = self.name.as_str();
        match rustix::fs::renameat(&self.beside, name, &trash, name) {
            // It is not there any more, as is the rule; or it waits for the next start.
            Ok(()) | Err(_) => {}
        }
    }
}

enum Replaced {
    Rename(Errno),
    Root(WorkspaceError),
}

impl From<Errno> for Replaced {
    fn from(error: Errno) -> Self {
        Self::Rename(error)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::id::Alias;
    use crate::workspace::{Life, RelPath, SIDECAR, TRASH};

    struct Ground {
        temp: tempfile::TempDir,
        workspaces: Workspaces,
        id: SessionId,
    }

    fn ground() -> Ground {
        let temp = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&temp.path().join("ws"), temp.path()).unwrap();
        let id = SessionId::parse("a").unwrap();
        Ground {
            temp,
            workspaces,
            id,
        }
    }

    impl Ground {
        fn filled(&self, name: &str) -> Incoming {
            let incoming = self.workspaces.incoming(None).unwrap();
            let path = RelPath::parse(name.as_bytes()).unwrap();
            incoming.dir().make_dirs(&path, None).unwrap();
            incoming
        }

        fn names(&self) -> Vec<String> {
            let read = std::fs::read_dir(self.workspaces.mounted(&self.id));
            let names = read.unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn left_in(&self, name: &str) -> usize {
            let path: PathBuf = self.temp.path().join("ws").join(name);
            std::fs::read_dir(path).map_or(0, Iterator::count)
        }
    }

    #[test]
    fn what_was_filled_takes_the_place_of_nothing_or_of_what_is_empty_and_of_no_files() {
        let ground = ground();
        let sidecar = Sidecar {
            id: ground.id.clone(),
            runtime: Alias::parse("bb").unwrap(),
            tenant: None,
            nonce: Nonce::random(),
            opened_at: None,
            order: None,
            life: Life::Open,
        };
        let place = |incoming: Incoming, old| incoming.take_place(&ground.id, None, old);
        let first = ground.filled("first");
        first
            .take_place(&ground.id, Some(&sidecar), OldFiles::Refuse)
            .unwrap();
        assert_eq!(ground.names(), ["first"]);
        assert!(ground.temp.path().join("ws/a").join(SIDECAR).exists());
        let refused = place(ground.filled("second"), OldFiles::Refuse);
        assert!(matches!(refused, Err(NotPlaced::NotEmpty)));
        assert_eq!(ground.names(), ["first"], "the old files are as they were");
        let remains = place(ground.filled("third"), OldFiles::Replace).unwrap();
        assert!(remains.is_empty());
        assert_eq!(ground.names(), ["third"]);
        assert_eq!(ground.left_in(INCOMING), 0);
        ground.workspaces.empty_trash().unwrap();
        assert_eq!(ground.left_in(TRASH), 0);
        std::fs::remove_dir(ground.workspaces.mounted(&ground.id).join("third")).unwrap();
        place(ground.filled("fourth"), OldFiles::Refuse).unwrap();
        assert_eq!(ground.names(), ["fourth"]);
    }

    #[test]
    fn what_does_not_take_its_place_leaves_nothing() {
        let ground = ground();
        ground.filled("x").discard().unwrap();
        assert_eq!((ground.left_in(INCOMING), ground.left_in(TRASH)), (0, 0));
        drop(ground.filled("x"));
        assert_eq!((ground.left_in(INCOMING), ground.left_in(TRASH)), (0, 1));
        // The daemon is killed in the middle, and starts again.
        std::mem::forget(ground.filled("x"));
        assert_eq!(ground.left_in(INCOMING), 1);
        ground.workspaces.abandon_incoming().unwrap();
        assert_eq!(ground.left_in(INCOMING), 0);
        ground.workspaces.empty_trash().unwrap();
        assert_eq!(ground.left_in(TRASH), 0);
        ground.workspaces.abandon_incoming().unwrap();
    }
}
