//! The language in which files are worked on.
//!
//! It is spoken over the input and the output of a run of [`PROGRAM`], which is the agent's
//! own program: so its rights are those of every command, what blocks it blocks nobody
//! else, and it is ended like any run. Requests are answered in their order, each with
//! what is said at it; the program ends with its input.
//!
//! ```text
//! length: u32 LE (of what follows) | kind: u8 | fields
//! ```
//!
//! Paths are bytes as the system has them; relative ones begin in the run's directory.

mod coding;

/// The version of this language; an agent without it says 0.
pub const VERSION: u32 = 1;
/// The program of such a run with its arguments, as the agent starts it: its own, whatever
/// has its name by now.
pub const PROGRAM: [&str; 2] = ["/proc/self/exe", "files"];

/// Bytes of a path.
pub const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a path that a walk finds: its directories are held, so it may be longer than
/// what the system takes at once.
pub const FOUND_BYTES_MAX: usize = 64 << 10;
/// Bytes of a file in one frame.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;
/// Levels of directories below the start that a walk goes down.
pub const DEPTH_MAX: u32 = 512;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Opens a regular file, which is the one that is read from then on; `Meta`.
    Open {
        /// The file.
        path: Vec<u8>,
        /// Whether a link at the end is followed.
        links: Links,
        /// Bytes that it may have; a larger one is not opened.
        most: u64,
    },
    /// Reads the open file; `Bytes` as often as needed, and `Done`.
    Range {
        /// Where the reading begins.
        from: u64,
        /// Bytes at most; fewer where the file ends before.
        most: u64,
        /// Where it ends early.
        until: Until,
    },
    /// Reads lines of the open file, which has UTF-8, and counts all; `Bytes` of those
    /// lines with their ends, as often as needed, and `Counted`.
    ///
    /// Lines end with LF, CR, CR LF, VT, FF, FS, GS, RS, NEL, U+2028 or U+2029; an ending
    /// at the end of the file begins no further line.
    Lines {
        /// Where the first line begins.
        from: u64,
        /// Lines that are passed over.
        offset: u64,
        /// Lines that are wanted.
        limit: u64,
        /// Bytes that are read at most.
        most: u64,
    },
    /// Says what is at a path; `Meta`.
    Stat {
        /// The path.
        path: Vec<u8>,
        /// Whether a link at the end is followed.
        links: Links,
    },
    /// Begins to list a directory, of which `More` tells; `Done`.
    List {
        /// The directory.
        path: Vec<u8>,
    },
    /// Begins to walk below a directory, in the order of the paths; `Done`.
    Walk {
        /// The directory.
        path: Vec<u8>,
        /// Whether what is hidden is found.
        hidden: bool,
        /// Levels of directories below it, at most [`DEPTH_MAX`].
        depth: u32,
    },
    /// Goes on with a listing or a walk; `Entry` and `Left`, at most so many together, and
    /// `Page`.
    More {
        /// How many.
        entries: u32,
    },
    /// Begins to replace a file, or to make one; `Done`.
    ///
    /// It happens with `Commit`. Nothing is left of it where the input ends before.
    Draft {
        /// The file.
        path: Vec<u8>,
        /// Whether directories above it are made.
        parents: bool,
    },
    /// Appends to what the file will have, at most [`CHUNK_BYTES_MAX`]; not answered.
    Data(Vec<u8>),
    /// Puts the file in its place; `Meta`.
    Commit {
        /// What has to be there until then; anything where `None`.
        expected: Option<Tag>,
    },
}

/// Whether a link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// It is.
    Followed,
    /// It is a link.
    Kept,
}

/// Where a reading ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Nowhere.
    End,
    /// With the chunk that has the first zero byte: the file is no text.
    Zero,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// It was not done, or not to its end; nothing more is said at it.
    Failed(Trouble),
    /// It was done.
    Done,
    /// What is there.
    Meta(Meta),
    /// Some of a file, at most [`CHUNK_BYTES_MAX`].
    Bytes(Vec<u8>),
    /// The end of lines.
    Counted {
        /// Lines of the file, as far as it was read.
        lines: u64,
        /// Whether that is all of it.
        whole: bool,
    },
    /// Something in a directory, or below one.
    Entry(Entry),
    /// Something below a directory that was left out.
    Left {
        /// Its path below the start.
        path: Vec<u8>,
        /// Why.
        why: Trouble,
    },
    /// The end of a part of a listing or a walk.
    Page(Page),
}

/// What follows a part of a listing or a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// There is more.
    More,
    /// That was all.
    Last,
    /// That was all but what lies too deep.
    TooDeep,
    /// That was all but names for which there was no memory.
    TooMany,
}

/// What kind of thing is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Other,
}

/// Tells the content of a file from others that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The number of its file system.
    pub device: u64,
    /// Its own.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Seconds of its last change.
    pub modified_secs: i64,
    /// And nanoseconds.
    pub modified_nanos: u32,
    /// Seconds of the last change of its inode.
    pub changed_secs: i64,
    /// And nanoseconds.
    pub changed_nanos: u32,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its kind.
    pub kind: Kind,
    /// Its permission bits.
    pub mode: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Tells its content from others.
    pub tag: Tag,
}

/// Something in a directory, or below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in a listing; in a walk its path below the start.
    pub path: Vec<u8>,
    /// Its kind.
    pub kind: Kind,
    /// Bytes; not told by a walk.
    pub size: u64,
    /// What it says, where it is a link in a listing and that can be read.
    pub target: Option<Vec<u8>>,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The system has refused it, with this number.
    Errno(u32),
    /// It is a directory.
    IsDirectory,
    /// It is a FIFO, a socket or a device.
    Special,
    /// It has so many bytes, which is too much.
    TooLarge(u64),
    /// It is not the expected file.
    Changed,
    /// It belongs to the kernel, and is no file that somebody made.
    Kernel,
    /// The request has no sense there.
    Bad,
}
