//! Looks at the token key, the workspace root, free space and control groups; blocks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::look::Place;
use super::seen::{Home, KeySeen, Look, Presence, RootSeen, Space};
use crate::clock::Timestamp;
use crate::id::SessionId;
use crate::secret::{TOKEN_KEY_BYTES, TokenKey};

/// What the disk answered.
pub(super) struct Answers {
    pub(super) key: Look<Option<KeySeen>>,
    pub(super) root: Option<Look<RootSeen>>,
    pub(super) spaces: Vec<(&'static str, PathBuf, Look<Space>)>,
}

impl Answers {
    /// Says of everything that it was not seen.
    pub(super) fn none(place: &Place, why: &str) -> Self {
        let unseen = |what, path: &Path| (what, path.to_owned(), Err(why.to_owned()));
        Self {
            key: Err(why.to_owned()),
            root: place.workspace_root.as_ref().map(|_| Err(why.to_owned())),
            spaces: file_systems(place)
                .into_iter()
                .map(|(what, path)| unseen(what, path))
                .collect(),
        }
    }
}

/// Looks at all of it.
pub(super) fn look(place: &Place) -> Answers {
    let spaces = file_systems(place).into_iter();
    let spaces = spaces.map(|(what, path)| (what, path.to_owned(), space(path)));
    Answers {
        key: key(&place.key_file).map_err(|error| error.to_string()),
        root: place
            .workspace_root
            .as_deref()
            .map(|path| root(path, &place.state_dir)),
        spaces: spaces.collect(),
    }
}

fn file_systems(place: &Place) -> Vec<(&'static str, &Path)> {
    let mut found = vec![("the state directory", place.state_dir.as_path())];
    if let Some(root) = &place.workspace_root {
        found.push(("the workspaces", root));
    }
    found
}

fn key(path: &Path) -> io::Result<Option<KeySeen>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mode = file.metadata()?.mode() & 0o7777;
    let mut bytes = zeroize::Zeroizing::new(Vec::new());
    let one_more = u64::try_from(TOKEN_KEY_BYTES).unwrap_or(u64::MAX) + 1;
    file.take(one_more).read_to_end(&mut bytes)?;
    Ok(Some(KeySeen {
        path: path.to_owned(),
        id: TokenKey::from_bytes(&bytes).map(|key| key.id()),
        mode,
    }))
}

fn space(path: &Path) -> Look<Space> {
    let stat = rustix::fs::statvfs(path).map_err(|error| error.to_string())?;
    Ok(Space {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        free_files: (stat.f_files != 0).then_some(stat.f_favail),
    })
}

fn root(path: &Path, state_dir: &Path) -> Look<RootSeen> {
    let note = state_dir.join(crate::workspace::ROOT_NOTE);
    let looked =
        crate::workspace::is_noted(path, &note).and_then(|noted| Ok((noted, list_root(path)?)));
    let (noted, seen) = looked.map_err(|error| format!("list {}: {error}", path.display()))?;
    Ok(RootSeen {
        // Nothing was noted by a daemon that never ran.
        is_other: noted == Some(false),
        ..seen
    })
}

fn list_root(path: &Path) -> io::Result<RootSeen> {
    let mut seen = RootSeen::default();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Links are not followed: nobody but us makes anything in the root.
        let is_dir = entry.file_type()?.is_dir();
        if is_dir && name == crate::workspace::TRASH {
            seen.trash = list_trash(&entry.path())?;
            continue;
        }
        if name == crate::workspace::ROOT_MARK || name == crate::workspace::INCOMING {
            continue;
        }
        match SessionId::parse(&name) {
            Ok(id) if is_dir => {
                seen.homes.insert(id, home(&entry.path())?);
            }
            Ok(_) | Err(_) => {
                seen.strange.insert(name);
            }
        }
    }
    Ok(seen)
}

fn home(path: &Path) -> io::Result<Home> {
    let presence = |name: &str, is_right: fn(&fs::Metadata) -> bool| match fs::symlink_metadata(
        path.join(name),
    ) {
        Ok(found) if is_right(&found) => Ok(Presence::There),
        Ok(_) => Ok(Presence::Absent),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Presence::Absent),
        Err(error) => Err(error),
    };
    Ok(Home {
        workspace: presence(crate::workspace::MOUNTED, fs::Metadata::is_dir)?,
        sidecar: presence(crate::workspace::SIDECAR, fs::Metadata::is_file)?,
    })
}

fn list_trash(path: &Path) -> io::Result<BTreeMap<String, Timestamp>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let since = match fs::symlink_metadata(entry.path()) {
            Ok(meta) => Timestamp::from_secs(u64::try_from(meta.ctime()).unwrap_or(0)),
            // It went while it was looked at.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        found.insert(entry.file_name().to_string_lossy().into_owned(), since);
    }
    Ok(found)
}
