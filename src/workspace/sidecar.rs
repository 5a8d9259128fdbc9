//! Says beside each workspace whose it is, for rebuilding a lost store.
//!
//! The file lies outside of what is mounted, so no sandbox reaches it. It is read as
//! if one did: without following links, up to a bound, and only where it names the
//! directory that it lies in.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{DIRECTORY, WorkspaceError, Workspaces, fault};
use crate::clock::Timestamp;
use crate::id::{Alias, Nonce, SessionId, Tenant};

/// The file's name.
pub const SIDECAR: &str = ".sandboxd.json";
/// Bytes of the largest sidecar that is read.
pub const SIDECAR_BYTES_MAX: usize = 4 * 1024;
/// The version that this build writes; those before had none.
const VERSION: u32 = 1;

/// What the sidecar file of a session says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// The session.
    pub id: SessionId,
    /// The alias it was opened on.
    pub runtime: Alias,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// What its token is derived from.
    pub nonce: Nonce,
    /// When it was opened; not known of a file without version.
    #[serde(default)]
    pub opened_at: Option<Timestamp>,
    /// Its place in the order of opening; not known of a file without version.
    #[serde(default)]
    pub order: Option<u64>,
    /// Whether the session is open; not known of a file without version.
    #[serde(default)]
    pub life: Life,
}

/// Whether a session is open, as its sidecar has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// The file is of a version that did not say.
    #[default]
    Unknown,
    /// It is open, asleep or not.
    Open,
    /// It was closed then.
    ClosedAt(Timestamp),
}

/// Whether a sidecar had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It was.
    Now,
    /// It said so already, or there is no workspace beside which to say it.
    Before,
}

/// What became of reading one directory of the root.
#[derive(Debug)]
pub enum Found {
    /// A sidecar of the session that the directory is named after.
    Sidecar(Box<Sidecar>),
    /// Something else, which is left alone.
    Unusable {
        /// The directory, as text.
        name: String,
        /// What is wrong.
        why: String,
    },
}

#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    #[serde(flatten)]
    sidecar: &'a Sidecar,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    v: u32,
}

impl Sidecar {
    /// Returns the bytes of the file.
    fn encode(&self) -> Vec<u8> {
        let written = Written {
            v: VERSION,
            sidecar: self,
        };
        serde_json::to_vec(&written).expect("a sidecar has only string keys")
    }

    /// Reads the bytes of the file in the directory of a session.
    fn decode(id: &SessionId, bytes: &[u8]) -> Result<Self, String> {
        // The version comes first: the rest of a newer file need not have our shape.
        let version: Version = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if VERSION < version.v {
            return Err(format!(
                "it has version {}, and this build knows version {VERSION}",
                version.v
            ));
        }
        let sidecar: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if sidecar.id == *id {
            Ok(sidecar)
        } else {
            Err(format!("it names session {}", sidecar.id))
        }
    }
}

impl Workspaces {
    /// Writes what is known of a session beside its workspace, where it has one.
    ///
    /// On a full disk the file is overwritten in place, for which there is room.
    pub fn note(&self, sidecar: &Sidecar) -> Result<Noted, WorkspaceError> {
        let path = self.0.path.join(sidecar.id.as_str());
        let fault = |what| fault(what, &path);
        let home = match rustix::fs::openat(
            &*self.0.dir()?,
            sidecar.id.as_str(),
            DIRECTORY,
            Mode::empty(),
        ) {
            Ok(home) => home,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Noted::Before),
            Err(error) => return Err(fault("open")(error)),
        };
        let text = sidecar.encode();
        let found = found(&home);
        if found.as_ref() == Some(&text) {
            return Ok(Noted::Before);
        }
        match (replace(&home, &text), found) {
            (Err(Errno::NOSPC | Errno::DQUOT), Some(found)) => overwrite(&home, &text, found.len()),
            (written, _) => written,
        }
        .map(|()| Noted::Now)
        .map_err(fault("write the sidecar in"))
    }

    /// Reads the sidecars of all sessions that have a workspace.
    ///
    /// What cannot be used is told and left alone; directories that no session can
    /// be named after are none of ours.
    ///
    /// # Errors
    /// The root cannot be listed.
    pub fn sidecars(&self) -> Result<Vec<Found>, WorkspaceError> {
        let failed = |source: io::Error| WorkspaceError {
            what: "list the workspace root",
            path: self.0.path.clone(),
            source,
        };
        let root = self.0.dir()?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.0.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(id) = name.to_str().and_then(|name| SessionId::parse(name).ok()) else {
                continue;
            };
            match sidecar_in(&root, &id) {
                Ok(Some(sidecar)) => found.push(Found::Sidecar(Box::new(sidecar))),
                Ok(None) => {}
                Err(why) => found.push(Found::Unusable {
                    name: id.to_string(),
                    why,
                }),
            }
        }
        Ok(found)
    }
}

/// Reads one sidecar; nothing where the session has no directory of its own.
pub(super) fn sidecar_in(root: &OwnedFd, id: &SessionId) -> Result<Option<Sidecar>, String> {
    let home = match rustix::fs::openat(root, id.as_str(), DIRECTORY, Mode::empty()) {
        Ok(home) => home,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(io::Error::from(error).to_string()),
    };
    match read(&home, SIDECAR) {
        Ok(Some(bytes)) => Sidecar::decode(id, &bytes).map(Some),
        Ok(None) => Err("it is not a plain file of a few kilobytes".to_owned()),
        Err(Errno::NOENT) => Err("it is missing".to_owned()),
        Err(error) => Err(io::Error::from(error).to_string()),
    }
}

/// Reads a plain file of bounded size; nothing where it is something else.
fn read(home: &OwnedFd, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(home, name, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if !kind.is_file() {
        return Ok(None);
    }
    let mut bytes = vec![0; SIDECAR_BYTES_MAX + 1];
    let mut n_read = 0;
    while let Some(rest) = bytes.get_mut(n_read..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(&file, rest)? {
            0 => break,
            n => n_read += n,
        }
    }
    if SIDECAR_BYTES_MAX < n_read {
        return Ok(None);
    }
    bytes.truncate(n_read);
    Ok(Some(bytes))
}

/// Returns what the sidecar holds, where it can be read.
fn found(home: &OwnedFd) -> Option<Vec<u8>> {
    read(home, SIDECAR).ok().flatten()
}

/// Returns whether something has the sidecar's name.
pub(super) fn is_there(home: &OwnedFd) -> bool {
    rustix::fs::statat(home, SIDECAR, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Overwrites a sidecar of so many bytes, at no moment with the end of the old one
/// behind the new one: that would be no JSON.
fn overwrite(home: &OwnedFd, text: &[u8], bytes: usize) -> Result<(), Errno> {
    let mut padded = text.to_vec();
    padded.resize(bytes.max(text.len()), b' ');
    write(home, SIDECAR, &padded, OFlags::empty())
}

/// Replaces the sidecar whole, so that a reader never sees half of one, also not after
/// a loss of power: its bytes are on the disk before it has its name.
fn replace(home: &OwnedFd, text: &[u8]) -> Result<(), Errno> {
    let temporary = format!("{SIDECAR}.tmp");
    let written = write(home, &temporary, text, OFlags::CREATE | OFlags::TRUNC)
        .and_then(|()| rustix::fs::renameat(home, &temporary, home, SIDECAR));
    if written.is_err() {
        match rustix::fs::unlinkat(home, &temporary, AtFlags::empty()) {
            // The first error is the one that tells.
            Ok(()) | Err(_) => {}
        }
    }
    written
}

fn write(home: &OwnedFd, name: &str, text: &[u8], how: OFlags) -> Result<(), Errno> {
    let file = rustix::fs::openat(
        home,
        name,
        OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | how,
        Mode::RUSR | Mode::WUSR,
    )?;
    let mut rest = text;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::ftruncate(&file, u64::try_from(text.len()).unwrap_or(u64::MAX))?;
    rustix::fs::fdatasync(&file)
}

/// Writes the sidecar of a workspace, unless it is there as it should be.
pub(super) fn create(home: &OwnedFd, sidecar: &Sidecar) -> Result<(), Errno> {
    let text = sidecar.encode();
    if found(home).as_ref() == Some(&text) {
        return Ok(());
    }
    replace(home, &text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use expect_test::expect_file;

    use super::*;

    fn sidecar(id: &str) -> Sidecar {
        Sidecar {
            id: SessionId::parse(id).unwrap(),
            runtime: Alias::parse("py").unwrap(),
            tenant: Some(Tenant::parse("acme").unwrap()),
            nonce: Nonce::parse("000102030405060708090a0b0c0d0e0f").unwrap(),
            opened_at: Some(Timestamp::from_secs(1_700_000_000)),
            order: Some(7),
            life: Life::Open,
        }
    }

    fn golden(name: &str) -> PathBuf {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/store");
        dir.join(name)
    }

    #[test]
    fn a_sidecar_is_written_as_version_1_has_it_and_one_without_version_is_read() {
        let open = sidecar("a");
        let mut closed = sidecar("a");
        closed.life = Life::ClosedAt(Timestamp::from_secs(1_700_000_100));
        for (name, value) in [("sidecar.json", &open), ("sidecar-closed.json", &closed)] {
            let text = String::from_utf8(value.encode()).unwrap();
            expect_file![golden(name)].assert_eq(&format!("{text}\n"));
            let kept = std::fs::read(golden(name)).unwrap();
            assert_eq!(Sidecar::decode(&open.id, &kept).unwrap(), *value);
        }
        let first = std::fs::read(golden("sidecar-unversioned.json")).unwrap();
        let read = Sidecar::decode(&open.id, &first).unwrap();
        assert_eq!((read.life, read.order), (Life::Unknown, None));
        assert_eq!(read.nonce, open.nonce);
    }

    #[test]
    fn a_damaged_or_hostile_sidecar_is_told_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&dir.path().join("ws"), dir.path()).unwrap();
        let home = |id: &str| dir.path().join("ws").join(id);
        workspaces.ensure(&sidecar("good"), None).unwrap();
        let bytes = sidecar("good").encode();
        let file = |id: &str, bytes: &[u8]| {
            std::fs::create_dir(home(id)).unwrap();
            std::fs::write(home(id).join(SIDECAR), bytes).unwrap();
        };
        file("other-id", &bytes);
        file("half", &bytes[..40]);
        file("newer", br#"{"v":2,"shape":"of tomorrow"}"#);
        file("huge", &vec![b' '; SIDECAR_BYTES_MAX + 1]);
        std::fs::create_dir_all(home("none")).unwrap();
        std::fs::create_dir_all(home("dir").join(SIDECAR)).unwrap();
        std::fs::create_dir(home("link")).unwrap();
        symlink(home("good").join(SIDECAR), home("link").join(SIDECAR)).unwrap();
        symlink(home("good"), home("linked")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(home("none").join(SIDECAR))
            .status();
        assert!(made.unwrap().success());
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for found in workspaces.sidecars().unwrap() {
            match found {
                Found::Sidecar(sidecar) => good.push(sidecar.id.to_string()),
                Found::Unusable { name, .. } => bad.push(name),
            }
        }
        bad.sort_unstable();
        assert_eq!(good, ["good"]);
        assert_eq!(
            bad,
            ["dir", "half", "huge", "link", "newer", "none", "other-id"]
        );
        assert!(home("other-id").join(SIDECAR).exists(), "it was left alone");
    }

    #[test]
    fn a_sidecar_that_is_overwritten_by_a_shorter_one_can_be_read_at_every_moment() {
        let dir = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&dir.path().join("ws"), dir.path()).unwrap();
        let mut sidecar = sidecar("a");
        sidecar.life = Life::ClosedAt(Timestamp::from_secs(1_700_000_100));
        workspaces.ensure(&sidecar, None).unwrap();
        let path = dir.path().join("ws/a").join(SIDECAR);
        let before = std::fs::read(&path).unwrap().len();
        sidecar.life = Life::Open;
        let home = workspaces.home(&sidecar.id).unwrap();
        overwrite(&home, &sidecar.encode(), before).unwrap();
        // Cut to its length by nobody: the process may end first.
        assert_eq!(std::fs::read(&path).unwrap().len(), before);
        let found = sidecar_in(&workspaces.0.dir().unwrap(), &sidecar.id).unwrap();
        assert_eq!(found.unwrap(), sidecar);
        workspaces.note(&sidecar).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), sidecar.encode());
    }

    #[test]
    fn a_note_changes_the_sidecar_and_makes_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&dir.path().join("ws"), dir.path()).unwrap();
        let mut sidecar = sidecar("a");
        workspaces.note(&sidecar).unwrap();
        assert!(!dir.path().join("ws/a").exists());
        workspaces.ensure(&sidecar, None).unwrap();
        sidecar.life = Life::ClosedAt(Timestamp::from_secs(5));
        workspaces.note(&sidecar).unwrap();
        let read = sidecar_in(&workspaces.0.dir().unwrap(), &sidecar.id)
            .unwrap()
            .unwrap();
        assert_eq!(read, sidecar);
    }
}
