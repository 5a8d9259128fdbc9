//! Works on files for the daemon, as a run of its own: reads requests, and answers them.

mod draft;
mod lines;
mod list;
mod read;
mod talk;
mod walk;

use std::ffi::CStr;

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;

use crate::protocol::files::{Ask, Kind, Meta, Page, Say, Tag, Trouble};
use draft::Draft;
use list::Listing;
use read::Opened;
use talk::{Over, Talk};
use walk::Walk;

/// The name that a list of processes shows.
const NAME: &CStr = c"sandbox-files";

/// What was begun and not done yet.
#[derive(Debug, Default)]
struct Desk {
    open: Option<Opened>,
    course: Option<Course>,
    /// Kept where it went wrong, to be told once it is to be put in its place.
    draft: Option<Result<Draft, Trouble>>,
}

/// A listing or a walk under way.
#[derive(Debug)]
enum Course {
    Listing(Listing),
    Walk(Walk),
}

/// Serves until the input ends, or the process is to.
///
/// # Errors
/// The streams are no pipes to talk over.
pub(crate) fn serve() -> Result<(), String> {
    let mut talk = Talk::begin().map_err(|error| format!("talk over the streams: {error}"))?;
    // Else it would have the name of the link by which it was started.
    rustix::thread::set_name(NAME).ok();
    // What is made is as a command of a plain shell makes it.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let mut desk = Desk::default();
    // Whatever ends it, nothing is left of a draft: it is dropped here.
    while let Ok(ask) = talk.hear() {
        if desk.obey(ask, &mut talk).is_err() {
            break;
        }
    }
    Ok(())
}

impl Desk {
    fn obey(&mut self, ask: Ask, talk: &mut Talk) -> Result<(), Over> {
        let done = match ask {
            Ask::Open { path, links, most } => {
                self.open = None;
                let opened = Opened::open(&path, links, most);
                opened.map(|opened| {
                    let meta = opened.meta;
                    self.open = Some(opened);
                    Say::Meta(meta)
                })
            }
            Ask::Range { from, most, until } => match &self.open {
                Some(open) => open.range(from, most, until, talk)?.map(|()| Say::Done),
                None => Err(Trouble::Bad),
            },
            Ask::Lines {
                from,
                offset,
                limit,
                most,
            } => match &self.open {
                Some(open) => open.lines(from, (offset, limit), most, talk)?,
                None => Err(Trouble::Bad),
            },
            Ask::Stat { path, links } => read::stat(&path, links).map(Say::Meta),
            Ask::List { path } => self.begin(Listing::begin(&path).map(Course::Listing)),
            Ask::Walk {
                path,
                hidden,
                depth,
            } => self.begin(Walk::begin(&path, hidden, depth).map(Course::Walk)),
            Ask::More { entries } => match &mut self.course {
                Some(course) => course.go_on(entries, talk)?.map(Say::Page),
                None => Err(Trouble::Bad),
            },
            Ask::Draft { path, parents } => {
                // One at a time: what was begun before is given up.
                self.draft = None;
                let draft = Draft::begin(&path, parents);
                let done = draft.as_ref().map(|_| Say::Done).map_err(|why| *why);
                self.draft = Some(draft);
                done
            }
            Ask::Data(bytes) => {
                self.append(&bytes);
                return Ok(());
            }
            Ask::Commit { expected } => match self.draft.take() {
                Some(Ok(draft)) => draft.commit(expected).map(Say::Meta),
                Some(Err(why)) => Err(why),
                None => Err(Trouble::Bad),
            },
        };
        talk.say(&done.unwrap_or_else(Say::Failed))
    }

    fn begin(&mut self, course: Result<Course, Trouble>) -> Result<Say, Trouble> {
        self.course = None;
        self.course = Some(course?);
        Ok(Say::Done)
    }

    fn append(&mut self, bytes: &[u8]) {
        if let Some(Ok(draft)) = &mut self.draft
            && let Err(why) = draft.append(bytes)
        {
            self.draft = Some(Err(why));
        }
    }
}

impl Course {
    fn go_on(&mut self, entries: u32, talk: &mut Talk) -> Result<Result<Page, Trouble>, Over> {
        for _ in 0..entries {
            let next = match self {
                Self::Listing(listing) => listing.next(),
                Self::Walk(walk) => Ok(walk.next()),
            };
            match next {
                Err(why) => return Ok(Err(why)),
                Ok(Some(say)) => talk.say(&say)?,
                Ok(None) => return Ok(Ok(self.end())),
            }
        }
        Ok(Ok(Page::More))
    }

    fn end(&self) -> Page {
        match self {
            Self::Listing(_) => Page::Last,
            Self::Walk(walk) => walk.end(),
        }
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ISDIR => Self::IsDirectory,
            errno => Self::Errno(errno.raw_os_error().unsigned_abs()),
        }
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}

fn kind_of(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

#[expect(
    clippy::useless_conversion,
    reason = "the fields have other types on other machines"
)]
fn meta_of(stat: &Stat) -> Meta {
    Meta {
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        tag: Tag {
            device: stat.st_dev.into(),
            inode: stat.st_ino.into(),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified_secs: stat.st_mtime.into(),
            modified_nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or_default(),
            changed_secs: stat.st_ctime.into(),
            changed_nanos: u32::try_from(stat.st_ctime_nsec).unwrap_or_default(),
        },
    }
}
