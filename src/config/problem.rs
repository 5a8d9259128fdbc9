//! Says what is wrong with a configuration, one line a problem.

use std::fmt;
use std::path::PathBuf;

use super::runtimes::Fault;
use super::settings::Setting;
use super::syntax::{printable, quoted};
use crate::policy::InvalidPolicy;
use crate::policy::catalogue::InvalidCatalogue;

/// The most problems that are shown.
pub const PROBLEMS_SHOWN_MAX: usize = 100;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The environment.
    Environment,
    /// The variable of another program.
    Neighbour(&'static str),
    /// A file that another setting names, or a credential of systemd.
    Credential(PathBuf),
    /// A flag.
    CommandLine(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment => f.write_str("environment"),
            Self::Neighbour(name) => write!(f, "environment ({name})"),
            Self::Credential(path) => write!(f, "{}", path.display()),
            Self::CommandLine(flag) => write!(f, "--{flag}"),
        }
    }
}

/// A setting as the operator wrote it: `--port`, `file:3: SANDBOXD_PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The variable.
    pub name: &'static str,
    /// Where it was written.
    pub origin: Origin,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default | Origin::Environment => f.write_str(self.name),
            Origin::Neighbour(name) => f.write_str(name),
            Origin::CommandLine(flag) => write!(f, "--{flag}"),
            origin @ (Origin::File { .. } | Origin::Credential(_)) => {
                write!(f, "{origin}: {}", self.name)
            }
        }
    }
}

/// One thing that keeps the daemon from starting. No variant holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no service token.
    #[error(
        "SANDBOXD_TOKEN is required. It authorises opening a session, and a session can run \
         commands on this host — generate a long random value."
    )]
    NoToken,
    /// The service token cannot be sent in a header.
    #[error(
        "{0} has white space at an end, a line break or a character beyond ASCII, which no HTTP \
         header carries: use visible ASCII characters only"
    )]
    BadToken(Place),
    /// A text is not what its setting takes.
    #[error(
        "{place}={} is not valid: {why}; write {accepts}, as in {example}",
        quoted(text)
    )]
    NotValid {
        /// Where.
        place: Place,
        /// The text.
        text: String,
        /// What is wrong with it.
        why: String,
        /// What would be right.
        accepts: String,
        /// For example.
        example: &'static str,
    },
    /// A text is neither yes nor no.
    #[error(
        "{place}={} is not a boolean. Use one of 0, 1, false, no, off, on, true, yes.",
        quoted(text)
    )]
    NotBoolean {
        /// Where.
        place: Place,
        /// The text.
        text: String,
    },
    /// A text is empty that must not be.
    #[error("{place} must not be empty; write {accepts}, as in {example}, or leave it out")]
    Empty {
        /// Where.
        place: Place,
        /// What would be right.
        accepts: String,
        /// For example.
        example: &'static str,
    },
    /// A file that a setting names cannot be read.
    #[error("{place}={} cannot be read: {why}", quoted(&path.display().to_string()))]
    Unreadable {
        /// Where.
        place: Place,
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A line of the configuration file is not a setting.
    #[error("{}:{line}: {why}; write NAME=VALUE, or # and a comment", path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// The allowlist does not parse.
    #[error("{place} {fault}")]
    Runtimes {
        /// Where.
        place: Place,
        /// What is wrong.
        fault: Fault,
    },
    /// The default is not in the allowlist.
    #[error("{place}: {fault}")]
    Catalogue {
        /// Where.
        place: Place,
        /// What is wrong.
        fault: InvalidCatalogue,
    },
    /// Settings contradict one another or the engine's bounds.
    #[error("{place}: {fault}")]
    Policy {
        /// Where the one to change first is.
        place: Place,
        /// What is wrong.
        fault: InvalidPolicy,
    },
    /// The store would lie among the workspaces.
    #[error(
        "{place}={} lies in the workspace root {}: a session could be given it as its files; \
         choose a directory outside",
        quoted(&dir.display().to_string()),
        quoted(&root.display().to_string())
    )]
    DirInWorkspaces {
        /// Where.
        place: Place,
        /// The directory.
        dir: PathBuf,
        /// `workspace_root`.
        root: PathBuf,
    },
}

impl Problem {
    /// Makes the problem of a text that a setting does not take.
    pub(super) fn not_valid(setting: &Setting, place: Place, text: &str, why: String) -> Self {
        Self::NotValid {
            place,
            text: text.to_owned(),
            why,
            accepts: setting.kind.accepts(),
            example: setting.example,
        }
    }
}

/// Everything that keeps the daemon from starting; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    /// Writes a line for each problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, problem) in self.0.iter().take(PROBLEMS_SHOWN_MAX).enumerate() {
            let lead = if nth == 0 { "" } else { "\n" };
            // What an operator wrote as an alias or a path may hold anything.
            write!(f, "{lead}{}", printable(&problem.to_string()))?;
        }
        match self.0.len().saturating_sub(PROBLEMS_SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}
