//! Starts the first process of a run.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::CapabilitySet;

use crate::protocol::COOKIE;
use crate::protocol::message::{Start, Streams, What, Why};
use crate::system::{self, Terminal};
use crate::user::{self, User};

/// What a child gets as its three streams.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Its standard input; nothing where `None`.
    pub(crate) input: Option<OwnedFd>,
    /// Its standard output.
    pub(crate) out: OwnedFd,
    /// Its standard error.
    pub(crate) err: OwnedFd,
}

/// Why a program was not started, in the words and with the code of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotStarted {
    /// 127 for what is not there, else 126.
    pub(crate) code: i32,
    /// A line for standard error.
    pub(crate) words: String,
    /// The kernel has refused another process.
    pub(crate) is_full: bool,
}

/// A request that is no request.
pub(crate) type Refused = (Why, String);

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What a terminal is taken for where the request does not say.
const TERM: &str = "xterm-256color";
/// Bytes of a file of users or groups.
const USERS_BYTES_MAX: u64 = 4 << 20;

/// Checks what can be known before anything is made.
///
/// # Errors
/// Says what is wrong with the request, or with its user.
pub(crate) fn check(start: &Start) -> Result<Option<User>, Refused> {
    let bad = |text: &str| Err((Why::Bad, text.to_owned()));
    let words: &[String] = match &start.what {
        What::Argv(argv) if argv.is_empty() => return bad("there is no program to run"),
        What::Argv(argv) => argv,
        What::Shell(text) => std::slice::from_ref(text),
    };
    let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
    if !start.env.keys().all(is_name) {
        return bad("a variable has no name, or one with `=` or a zero byte in it");
    }
    let texts = words.iter().chain(start.env.values()).chain(&start.cwd);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return bad("a word, a variable or the directory has a zero byte in it");
    }
    start.user.as_deref().map(find_user).transpose()
}

fn find_user(wanted: &str) -> Result<User, Refused> {
    let found = user::find(wanted, &text("/etc/passwd"), &text("/etc/group"));
    let user = found.map_err(|why| (Why::User, why))?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let identity = &user.identity;
    if (identity.uid, identity.gid) == (uid.as_raw(), gid.as_raw()) || may_become_others() {
        return Ok(user);
    }
    let own = uid.as_raw();
    let text = format!("the sandbox runs as user {own}, which may not become {wanted:?}");
    Err((Why::User, text))
}

fn may_become_others() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

fn text(path: &str) -> String {
    let mut text = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        file.take(USERS_BYTES_MAX).read_to_end(&mut text).ok();
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Starts the program; the child is a leader of a session, and nobody waits for it yet.
pub(crate) fn spawn(start: &Start, user: Option<&User>, ends: Ends) -> Result<Pid, NotStarted> {
    let base = directory(start)?;
    let (program, name, arguments) = match &start.what {
        What::Shell(text) => ("/bin/sh", "/bin/sh", vec!["-c".to_owned(), text.clone()]),
        What::Argv(argv) => {
            let (name, rest) = argv
                .split_first()
                .map_or(("", [].as_slice()), |(name, rest)| (name, rest));
            (name, name, rest.to_vec())
        }
    };
    let path = find_program(program, &search_path(start), &base)?;
    let mut command = Command::new(path);
    command
        .arg0(name)
        .args(arguments)
        .envs(&start.env)
        .env(COOKIE, &start.run);
    if let Some(cwd) = &start.cwd {
        command.current_dir(cwd);
    }
    if let Some(user) = user.filter(|_| !start.env.contains_key("HOME")) {
        command.env("HOME", &user.home);
    }
    let is_terminal = matches!(start.streams, Streams::Tty(_));
    if is_terminal && !start.env.contains_key("TERM") && std::env::var_os("TERM").is_none() {
        command.env("TERM", TERM);
    }
    command
        .stdin(ends.input.map_or_else(Stdio::null, Stdio::from))
        .stdout(ends.out)
        .stderr(ends.err);
    let identity = user
        .filter(|user| !is_own(user))
        .map(|user| user.identity.clone());
    let terminal = if is_terminal {
        Terminal::Yes
    } else {
        Terminal::No
    };
    system::prepare(&mut command, identity, terminal);
    match command.spawn() {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(error) => Err(not_started(name, &error)),
    }
}

fn is_own(user: &User) -> bool {
    // Without the right to become others the groups stay as they are, too.
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    (user.identity.uid, user.identity.gid) == (uid.as_raw(), gid.as_raw()) && !may_become_others()
}

fn directory(start: &Start) -> Result<PathBuf, NotStarted> {
    let Some(cwd) = &start.cwd else {
        return Ok(PathBuf::from("."));
    };
    let refused = |why: &str| NotStarted {
        code: 126,
        words: format!("sandboxd: {cwd}: {why}\n"),
        is_full: false,
    };
    match fs::metadata(cwd) {
        Ok(found) if found.is_dir() => Ok(PathBuf::from(cwd)),
        Ok(_) => Err(refused("is no directory")),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(refused("no such directory")),
        Err(error) => Err(refused(&words_of(&error))),
    }
}

fn search_path(start: &Start) -> OsString {
    let given = start.env.get("PATH").map(OsString::from);
    let path = given.or_else(|| std::env::var_os("PATH"));
    path.unwrap_or_else(|| OsString::from(PATH))
}

/// Finds a program as a shell does: the first that can be run, in the run's directory.
fn find_program(name: &str, path: &OsString, base: &Path) -> Result<PathBuf, NotStarted> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let mut is_there = false;
    for dir in path.clone().into_vec().split(|byte| *byte == b':') {
        let dir = PathBuf::from(OsString::from_vec(dir.to_vec()));
        let candidate = if dir.as_os_str().is_empty() {
            Path::new(".").join(name)
        } else {
            dir.join(name)
        };
        let Ok(found) = fs::metadata(base.join(&candidate)) else {
            continue;
        };
        if !name.is_empty() && found.is_file() {
            if found.permissions().mode() & 0o111 != 0 {
                return Ok(candidate);
            }
            is_there = true;
        }
    }
    let errno = if is_there {
        Errno::ACCESS
    } else {
        Errno::NOENT
    };
    Err(not_started(name, &io::Error::from(errno)))
}

fn not_started(name: &str, error: &io::Error) -> NotStarted {
    let is_full = error.raw_os_error() == Some(Errno::AGAIN.raw_os_error());
    NotStarted {
        code: if error.kind() == ErrorKind::NotFound {
            127
        } else {
            126
        },
        words: format!("sandboxd: {name}: {}\n", words_of(error)),
        is_full,
    }
}

fn words_of(error: &io::Error) -> String {
    let Some(errno) = Errno::from_io_error(error) else {
        return error.to_string();
    };
    let words = match errno {
        Errno::NOENT => "not found",
        Errno::ACCESS => "permission denied",
        Errno::PERM => "not permitted",
        Errno::ISDIR => "is a directory",
        Errno::NOTDIR => "part of its path is no directory",
        Errno::NOEXEC => "no program of this machine",
        Errno::TOOBIG => "its arguments and environment are too long",
        Errno::AGAIN => "not started: the sandbox has as many processes as it may",
        Errno::NOMEM => "not started: no memory is left",
        Errno::MFILE | Errno::NFILE => "not started: too many files are open",
        _ => return error.to_string(),
    };
    words.to_owned()
}

/// Returns the words for a run whose streams could not be made.
pub(crate) fn no_streams(errno: Errno) -> NotStarted {
    let error = io::Error::from(errno);
    NotStarted {
        code: 126,
        words: format!(
            "sandboxd: its streams could not be made: {}\n",
            words_of(&error)
        ),
        is_full: false,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use super::find_program;

    fn find(name: &str, path: &str) -> Result<PathBuf, (i32, String)> {
        find_program(name, &OsString::from(path), Path::new("/"))
            .map_err(|why| (why.code, why.words))
    }

    #[test]
    fn a_program_is_found_by_the_path_of_its_run() {
        assert_eq!(find("sh", "/nowhere:/bin"), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(find("sh", "bin"), Ok(PathBuf::from("bin/sh")));
        assert_eq!(find("./x", ""), Ok(PathBuf::from("./x")));
    }

    #[test]
    fn what_cannot_be_run_has_the_code_and_the_words_of_a_shell() {
        let not_found = |name: &str| (127, format!("sandboxd: {name}: not found\n"));
        assert_eq!(find("nosuch", "/bin"), Err(not_found("nosuch")));
        assert_eq!(find("", "/bin"), Err(not_found("")));
        let denied = (126, "sandboxd: passwd: permission denied\n".to_owned());
        assert_eq!(find("passwd", "/etc"), Err(denied));
    }
}
