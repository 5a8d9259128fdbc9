//! Writes and reads what is said of files as frames.

use super::super::field::{Fields, put_bytes};
use super::super::frame::{BadFrame, HEAD_BYTES, seal};
use super::{
    Ask, CHUNK_BYTES_MAX, DEPTH_MAX, Entry, FOUND_BYTES_MAX, Kind, Links, Meta, PATH_BYTES_MAX,
    Page, Say, Tag, Trouble, Until,
};

macro_rules! bytes_of {
    ($out:ident, $($field:expr),+) => {
        $($out.extend_from_slice(&$field.to_le_bytes());)+
    };
}

impl Ask {
    /// Appends it as a frame to what is to be sent.
    ///
    /// # Errors
    /// Where a path or data is longer than it may be; nothing is appended then.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), BadFrame> {
        if !self.is_sound() {
            return Err(BadFrame::Payload);
        }
        let start = begin(out);
        self.fields(out);
        seal(out, start)
    }

    fn is_sound(&self) -> bool {
        match self {
            Self::Open { path, .. }
            | Self::Stat { path, .. }
            | Self::List { path }
            | Self::Draft { path, .. } => is_path(path),
            Self::Walk { path, depth, .. } => is_path(path) && *depth <= DEPTH_MAX,
            Self::Data(bytes) => bytes.len() <= CHUNK_BYTES_MAX,
            Self::Range { .. } | Self::Lines { .. } | Self::More { .. } | Self::Commit { .. } => {
                true
            }
        }
    }

    fn fields(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open { path, links, most } => {
                out.extend([1, links.code()]);
                bytes_of!(out, most);
                put_bytes(path, out);
            }
            Self::Range { from, most, until } => {
                out.extend([2, u8::from(*until == Until::Zero)]);
                bytes_of!(out, from, most);
            }
            Self::Lines {
                from,
                offset,
                limit,
                most,
            } => {
                out.push(3);
                bytes_of!(out, from, offset, limit, most);
            }
            Self::Stat { path, links } => {
                out.extend([4, links.code()]);
                put_bytes(path, out);
            }
            Self::List { path } => named(5, path, out),
            Self::Walk {
                path,
                hidden,
                depth,
            } => {
                out.extend([6, u8::from(*hidden)]);
                bytes_of!(out, depth);
                put_bytes(path, out);
            }
            Self::More { entries } => {
                out.push(7);
                bytes_of!(out, entries);
            }
            Self::Draft { path, parents } => {
                out.extend([8, u8::from(*parents)]);
                put_bytes(path, out);
            }
            Self::Data(bytes) => named(9, bytes, out),
            Self::Commit { expected } => {
                out.extend([10, u8::from(expected.is_some())]);
                if let Some(tag) = expected {
                    tag.put(out);
                }
            }
        }
    }

    /// Reads the kind and the payload of a frame.
    pub fn parse(body: &[u8]) -> Result<Self, BadFrame> {
        let mut fields = Fields::of(body);
        let kind = fields.byte().ok_or(BadFrame::Length(0))?;
        if !(1..=10).contains(&kind) {
            return Err(BadFrame::Kind(kind));
        }
        Self::read(kind, &mut fields)
            .and_then(|ask| fields.end(ask))
            .ok_or(BadFrame::Payload)
    }

    fn read(kind: u8, fields: &mut Fields<'_>) -> Option<Self> {
        Some(match kind {
            1 => {
                let (links, most) = (Links::of(fields.flag()?), fields.u64()?);
                let path = path(fields)?;
                Self::Open { path, links, most }
            }
            2 => Self::Range {
                until: if fields.flag()? {
                    Until::Zero
                } else {
                    Until::End
                },
                from: fields.u64()?,
                most: fields.u64()?,
            },
            3 => Self::Lines {
                from: fields.u64()?,
                offset: fields.u64()?,
                limit: fields.u64()?,
                most: fields.u64()?,
            },
            4 => {
                let links = Links::of(fields.flag()?);
                let path = path(fields)?;
                Self::Stat { path, links }
            }
            6 => Self::Walk {
                hidden: fields.flag()?,
                depth: fields.u32().filter(|depth| *depth <= DEPTH_MAX)?,
                path: path(fields)?,
            },
            7 => Self::More {
                entries: fields.u32()?,
            },
            8 => Self::Draft {
                parents: fields.flag()?,
                path: path(fields)?,
            },
            9 => Self::Data(fields.bytes(CHUNK_BYTES_MAX)?),
            10 => Self::Commit {
                expected: if fields.flag()? {
                    Some(Tag::read(fields)?)
                } else {
                    None
                },
            },
            _ => Self::List {
                path: path(fields)?,
            },
        })
    }
}

impl Say {
    /// Appends it as a frame to what is to be sent.
    ///
    /// # Errors
    /// Where something in it is longer than it may be; nothing is appended then.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), BadFrame> {
        let start = begin(out);
        match self {
            Self::Failed(why) => {
                out.push(1);
                why.put(out);
            }
            Self::Done => out.push(2),
            Self::Meta(meta) => {
                out.extend([3, meta.kind.code()]);
                bytes_of!(out, meta.mode, meta.uid, meta.gid);
                meta.tag.put(out);
            }
            Self::Bytes(bytes) => named(4, bytes, out),
            Self::Counted { lines, whole } => {
                out.extend([5, u8::from(*whole)]);
                bytes_of!(out, lines);
            }
            Self::Entry(entry) => {
                let target = entry.target.as_ref();
                out.extend([6, entry.kind.code(), u8::from(target.is_some())]);
                bytes_of!(out, entry.size);
                put_bytes(&entry.path, out);
                if let Some(target) = target {
                    put_bytes(target, out);
                }
            }
            Self::Left { path, why } => {
                out.push(7);
                why.put(out);
                put_bytes(path, out);
            }
            Self::Page(page) => out.extend([8, page.code()]),
        }
        seal(out, start)
    }

    /// Reads the kind and the payload of a frame.
    pub fn parse(body: &[u8]) -> Result<Self, BadFrame> {
        let mut fields = Fields::of(body);
        let kind = fields.byte().ok_or(BadFrame::Length(0))?;
        if !(1..=8).contains(&kind) {
            return Err(BadFrame::Kind(kind));
        }
        Self::read(kind, &mut fields)
            .and_then(|say| fields.end(say))
            .ok_or(BadFrame::Payload)
    }

    fn read(kind: u8, fields: &mut Fields<'_>) -> Option<Self> {
        Some(match kind {
            1 => Self::Failed(Trouble::read(fields)?),
            2 => Self::Done,
            3 => Self::Meta(Meta {
                kind: Kind::read(fields)?,
                mode: fields.u32()?,
                uid: fields.u32()?,
                gid: fields.u32()?,
                tag: Tag::read(fields)?,
            }),
            4 => Self::Bytes(fields.bytes(CHUNK_BYTES_MAX)?),
            5 => Self::Counted {
                whole: fields.flag()?,
                lines: fields.u64()?,
            },
            6 => {
                let (kind, has_target) = (Kind::read(fields)?, fields.flag()?);
                Self::Entry(Entry {
                    kind,
                    size: fields.u64()?,
                    path: found(fields)?,
                    target: if has_target {
                        Some(fields.bytes(PATH_BYTES_MAX)?)
                    } else {
                        None
                    },
                })
            }
            7 => Self::Left {
                why: Trouble::read(fields)?,
                path: fields.bytes(FOUND_BYTES_MAX)?,
            },
            _ => Self::Page(match fields.byte()? {
                0 => Page::More,
                1 => Page::Last,
                2 => Page::TooDeep,
                3 => Page::TooMany,
                _ => return None,
            }),
        })
    }
}

fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    start
}

fn named(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_bytes(bytes, out);
}

/// Reads a path for the system.
fn path(fields: &mut Fields<'_>) -> Option<Vec<u8>> {
    fields.bytes(PATH_BYTES_MAX).filter(|path| is_path(path))
}

fn is_path(path: &[u8]) -> bool {
    !path.is_empty() && path.len() <= PATH_BYTES_MAX && !path.contains(&0)
}

/// Reads a path that was found below a directory: names, none of which leads elsewhere.
fn found(fields: &mut Fields<'_>) -> Option<Vec<u8>> {
    let path = fields.bytes(FOUND_BYTES_MAX)?;
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    path.split(|byte| *byte == b'/')
        .all(is_name)
        .then_some(path)
}

impl Links {
    fn code(self) -> u8 {
        u8::from(self == Self::Kept)
    }

    fn of(kept: bool) -> Self {
        if kept { Self::Kept } else { Self::Followed }
    }
}

impl Page {
    fn code(self) -> u8 {
        match self {
            Self::More => 0,
            Self::Last => 1,
            Self::TooDeep => 2,
            Self::TooMany => 3,
        }
    }
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::File => 0,
            Self::Dir => 1,
            Self::Link => 2,
            Self::Other => 3,
        }
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        match fields.byte()? {
            0 => Some(Self::File),
            1 => Some(Self::Dir),
            2 => Some(Self::Link),
            3 => Some(Self::Other),
            _ => None,
        }
    }
}

impl Tag {
    fn put(&self, out: &mut Vec<u8>) {
        bytes_of!(out, self.device, self.inode, self.size);
        bytes_of!(out, self.modified_secs, self.modified_nanos);
        bytes_of!(out, self.changed_secs, self.changed_nanos);
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            device: fields.u64()?,
            inode: fields.u64()?,
            size: fields.u64()?,
            modified_secs: fields.i64()?,
            modified_nanos: fields.u32()?,
            changed_secs: fields.i64()?,
            changed_nanos: fields.u32()?,
        })
    }
}

impl Trouble {
    fn put(self, out: &mut Vec<u8>) {
        let (kind, number) = match self {
            Self::Errno(errno) => (0, u64::from(errno)),
            Self::IsDirectory => (1, 0),
            Self::Special => (2, 0),
            Self::TooLarge(bytes) => (3, bytes),
            Self::Changed => (4, 0),
            Self::Kernel => (5, 0),
            Self::Bad => (6, 0),
        };
        out.push(kind);
        out.extend_from_slice(&u64::to_le_bytes(number));
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        match (fields.byte()?, fields.u64()?) {
            (0, errno) => u32::try_from(errno).ok().map(Self::Errno),
            (1, 0) => Some(Self::IsDirectory),
            (2, 0) => Some(Self::Special),
            (3, bytes) => Some(Self::TooLarge(bytes)),
            (4, 0) => Some(Self::Changed),
            (5, 0) => Some(Self::Kernel),
            (6, 0) => Some(Self::Bad),
            _ => None,
        }
    }
}
