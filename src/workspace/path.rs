//! Checks paths that clients write before anything is opened by them.
//!
//! A path is bytes, as the kernel has it. Components of `..` are never taken away as
//! text: what they lead to depends on links, so only the sandbox's own view can tell.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes that a path stays below: the kernel counts the NUL at its end too.
pub const PATH_BYTES_MAX: usize = 4_096;
/// Bytes of the longest component.
pub const NAME_BYTES_MAX: usize = 255;

/// Says why bytes are not a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPath {
    /// There are none.
    #[error("a path is not empty")]
    Empty,
    /// One of them is zero.
    #[error("embedded null byte")]
    Nul,
    /// There are too many.
    #[error("a path stays below {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// A component has too many.
    #[error("a name has at most {NAME_BYTES_MAX} bytes")]
    NameTooLong,
    /// A component climbs, where none may.
    #[error("climbs out through ..")]
    Climbs,
}

/// A path below the work directory, or the work directory itself.
///
/// It has no empty component, none of `.` or `..`, and no NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelPath(Vec<u8>);

/// Where a path leads that a client wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into the work directory: the workspace on the host has it.
    Inside(RelPath),
    /// Somewhere else in the sandbox, which alone can serve it.
    Outside,
    /// Through `..`: whether that is inside, the sandbox alone can tell.
    Climbs,
}

/// A name or path for the wire: text, and the bytes where the text does not have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireName {
    /// The text, with U+FFFD for what is not UTF-8.
    pub text: String,
    /// The bytes in base64, where they are not UTF-8.
    pub b64: Option<String>,
}

impl Place {
    /// Says where a path leads: an absolute one, or one that begins in the work directory.
    ///
    /// `//`, `.` and slashes at the end say nothing.
    ///
    /// # Errors
    /// No file has that path. An empty one is none; it is not the work directory.
    pub fn of(work_dir: &[u8], path: &[u8]) -> Result<Self, NotAPath> {
        check(path)?;
        if path.is_empty() {
            return Err(NotAPath::Empty);
        }
        let mut rest = components(path).peekable();
        if path.first() == Some(&b'/') {
            for expected in components(work_dir) {
                match rest.next() {
                    Some(found) if found == expected => {}
                    Some(b"..") => return Ok(Self::Climbs),
                    Some(_) | None => return Ok(Self::Outside),
                }
            }
        }
        match RelPath::collect(rest) {
            Ok(path) => Ok(Self::Inside(path)),
            Err(NotAPath::Climbs) => Ok(Self::Climbs),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether a path begins at the root.
pub fn is_absolute(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
}

/// Returns whether a path has a component of `.`, which the native routes hand back.
pub fn has_dot(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name == b".")
}

impl RelPath {
    /// Returns the work directory itself.
    pub const fn work_dir() -> Self {
        Self(Vec::new())
    }

    /// Reads a path of a stored workspace: absolute ones below the work directory begin
    /// there, others lose their first slash, and nothing at all is the work directory.
    ///
    /// # Errors
    /// It has a `..`, or is no path.
    pub fn stored(work_dir: &[u8], path: &[u8]) -> Result<Self, NotAPath> {
        if path.is_empty() {
            return Ok(Self::work_dir());
        }
        match Place::of(work_dir, path)? {
            Place::Inside(path) => Ok(path),
            Place::Outside => Self::collect(components(path)),
            Place::Climbs => Err(NotAPath::Climbs),
        }
    }

    /// Reads a path that is relative, with nothing in it to be taken away.
    ///
    /// # Errors
    /// It is absolute, has empty components, `.` or `..`, or is no path.
    pub fn parse(path: &[u8]) -> Result<Self, NotAPath> {
        check(path)?;
        if path.is_empty() || path.split(|byte| *byte == b'/').any(<[u8]>::is_empty) {
            return Err(NotAPath::Empty);
        }
        if has_dot(path) {
            return Err(NotAPath::Empty);
        }
        Self::collect(components(path))
    }

    /// Returns the path of a name in this directory.
    ///
    /// # Errors
    /// The name is no single component, or the path too long.
    pub fn child(&self, name: &[u8]) -> Result<Self, NotAPath> {
        if name.contains(&b'/') || name.is_empty() || name == b"." {
            return Err(NotAPath::Empty);
        }
        check(name)?;
        Self::collect(self.names().chain([name]))
    }

    /// Returns the bytes: names with slashes between them; none for the work directory.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether it is the work directory.
    pub fn is_work_dir(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names on the way, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        components(&self.0)
    }

    /// Returns the directory it is in and its name there; nothing for the work directory.
    pub fn split(&self) -> Option<(Self, &[u8])> {
        let name = self.names().last()?;
        let parent = self.0.len().saturating_sub(name.len() + 1);
        let parent = self.0.get(..parent).unwrap_or_default();
        Some((Self(parent.to_vec()), name))
    }

    /// Returns the directory it is in; nothing for the work directory.
    pub fn parent(&self) -> Option<Self> {
        self.split().map(|(parent, _)| parent)
    }

    /// Returns its last name; nothing for the work directory.
    pub fn name(&self) -> Option<&[u8]> {
        self.names().last()
    }

    /// Returns the text for the wire.
    pub fn wire(&self) -> WireName {
        WireName::of(&self.0)
    }

    fn collect<'a>(names: impl Iterator<Item = &'a [u8]>) -> Result<Self, NotAPath> {
        let mut bytes = Vec::new();
        for name in names {
            if name == b".." {
                return Err(NotAPath::Climbs);
            }
            if NAME_BYTES_MAX < name.len() {
                return Err(NotAPath::NameTooLong);
            }
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(name);
        }
        if PATH_BYTES_MAX <= bytes.len() {
            return Err(NotAPath::TooLong);
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_work_dir() {
            return f.write_str(".");
        }
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl WireName {
    /// Writes bytes for the wire.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self {
                text: text.to_owned(),
                b64: None,
            },
            Err(_) => Self {
                text: String::from_utf8_lossy(bytes).into_owned(),
                b64: Some(STANDARD.encode(bytes)),
            },
        }
    }

    /// Returns the bytes that a client means; nothing where its base64 is none.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match &self.b64 {
            Some(b64) => STANDARD.decode(b64).ok(),
            None => Some(self.text.clone().into_bytes()),
        }
    }
}

fn check(path: &[u8]) -> Result<(), NotAPath> {
    if path.contains(&0) {
        return Err(NotAPath::Nul);
    }
    if PATH_BYTES_MAX <= path.len() {
        return Err(NotAPath::TooLong);
    }
    Ok(())
}

/// Returns the components of a path that say something.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORK: &[u8] = b"/workspace";

    fn inside(path: &str) -> Place {
        Place::Inside(RelPath(path.as_bytes().to_vec()))
    }

    #[test]
    fn a_path_is_inside_outside_or_climbs() {
        for (path, expected) in [
            ("/workspace/a/b", inside("a/b")),
            ("/workspace", inside("")),
            ("/workspace/", inside("")),
            (".", inside("")),
            ("/workspace//a/./b/", inside("a/b")),
            ("a/b", inside("a/b")),
            ("./a", inside("a")),
            ("...", inside("...")),
            ("/workspaces/a", Place::Outside),
            ("/", Place::Outside),
            ("/etc/passwd", Place::Outside),
            ("/etc/../workspace/a", Place::Outside),
            ("/../workspace/a", Place::Climbs),
            ("/workspace/../etc", Place::Climbs),
            ("/workspace/a/../b", Place::Climbs),
            ("..", Place::Climbs),
            ("a/..", Place::Climbs),
        ] {
            assert_eq!(Place::of(WORK, path.as_bytes()), Ok(expected), "{path}");
        }
        assert_eq!(Place::of(WORK, b""), Err(NotAPath::Empty));
        assert_eq!(Place::of(WORK, b"a\0b"), Err(NotAPath::Nul));
        let name = "n".repeat(NAME_BYTES_MAX);
        assert_eq!(Place::of(WORK, name.as_bytes()), Ok(inside(&name)));
        let longer = Place::of(WORK, format!("{name}n").as_bytes());
        assert_eq!(longer, Err(NotAPath::NameTooLong));
        let long = "a/".repeat(PATH_BYTES_MAX / 2);
        assert_eq!(Place::of(WORK, long.as_bytes()), Err(NotAPath::TooLong));
    }

    #[test]
    fn a_path_of_a_stored_workspace_loses_its_first_slash() {
        let stored = |path: &[u8]| RelPath::stored(WORK, path).map(|path| path.to_string());
        assert_eq!(stored(b""), Ok(".".to_owned()));
        assert_eq!(stored(b"/workspace/src"), Ok("src".to_owned()));
        assert_eq!(stored(b"/etc/passwd"), Ok("etc/passwd".to_owned()));
        assert_eq!(stored(b"src/../r.md"), Err(NotAPath::Climbs));
        assert_eq!(stored(b"/etc/../r.md"), Err(NotAPath::Climbs));
    }

    #[test]
    fn a_path_is_split_and_joined() {
        let path = RelPath::parse(b"a/b/c").unwrap();
        let (parent, name) = path.split().unwrap();
        assert_eq!((parent.as_bytes(), name), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(parent.child(name), Ok(path));
        let top = RelPath::parse(b"a").unwrap();
        assert_eq!(top.parent(), Some(RelPath::work_dir()));
        assert_eq!(RelPath::work_dir().split(), None);
        for bad in [&b"/a"[..], b"a/", b"a//b", b"./a", b"..", b"", b"a/../b"] {
            assert!(RelPath::parse(bad).is_err(), "{bad:?}");
        }
        for bad in [&b"a/b"[..], b"", b".", b"..", b"a\0"] {
            assert!(RelPath::work_dir().child(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_client_writes_a_path_inside_has_plain_names_alone(
            path in proptest::collection::vec(
                proptest::sample::select(b"/./.a\xff\0w".to_vec()), 0..64),
            work_dir in proptest::sample::select(vec![&b"/w"[..], b"/", b"/a/w"]),
        ) {
            let found = [
                Place::of(work_dir, &path).ok().and_then(|place| match place {
                    Place::Inside(path) => Some(path),
                    Place::Outside | Place::Climbs => None,
                }),
                RelPath::stored(work_dir, &path).ok(),
                RelPath::parse(&path).ok(),
            ];
            for path in found.into_iter().flatten() {
                prop_assert!(!path.as_bytes().starts_with(b"/"));
                for name in path.as_bytes().split(|byte| *byte == b'/') {
                    prop_assert!(path.is_work_dir() || !name.is_empty());
                    prop_assert!(name != b"." && name != b".." && !name.contains(&0));
                }
                prop_assert_eq!(path.names().count() == 0, path.is_work_dir());
            }
        }

        #[test]
        fn names_survive_the_wire(name in proptest::collection::vec(any::<u8>(), 0..32)) {
            prop_assert_eq!(WireName::of(&name).bytes(), Some(name));
        }
    }
}
