//! The language that the daemon and the agent speak; both sides compile these files.
//!
//! A frame is a length, a kind and a payload ([`frame`]). Requests and answers are
//! JSON ([`message`]), so that either side can be older than the other; output and
//! input travel as bytes ([`output`], [`frame::Input`]). Files are worked on by a run of
//! the agent's own program, whose input and output are frames too ([`files`]). Nothing in
//! here trusts the other side: every length has a bound that is checked before memory is
//! taken.

mod field;
pub mod files;
pub mod frame;
pub mod message;
pub mod output;

/// The version of the language, in the first frame of each side.
///
/// Fields may be added to messages under one version; what an older side cannot
/// ignore needs another.
pub const VERSION: u32 = 1;

/// Where the agent's program is mounted in a container.
pub const PROGRAM: &str = "/.sandboxd/sandbox-agent";
/// Where the directory with the daemon's socket is mounted in a container.
pub const HOST_DIR: &str = "/.sandboxd/host";
/// The name of the daemon's socket in that directory.
pub const HOST_SOCKET: &str = "agent.sock";
/// The memory file system of the agent's own socket in a container.
pub const OWN_DIR: &str = "/.sandboxd/run";
/// The name of the agent's own socket, for the bridge.
pub const OWN_SOCKET: &str = "bridge.sock";
/// The variable that marks every process of a run: its value is the run's id.
pub const COOKIE: &str = "SANDBOXD_RUN";
/// Requests for output that wait in an agent at once.
pub const FETCHES_MAX: usize = 1024;
/// Pieces of input that wait for one run at once.
pub const PIECES_MAX: usize = 8;
