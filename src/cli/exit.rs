//! Turns the ending of a command into an exit status.

use std::process::ExitCode;

use crate::client::Error;

/// An exit status of `sandboxctl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// Done.
    pub const OK: Self = Self(0);
    /// Failed, degraded, or failed in part.
    pub const FAILED: Self = Self(1);
    /// Used wrongly, or not confirmed.
    pub const USAGE: Self = Self(2);
    /// There is no such thing, or no longer.
    pub const NOT_FOUND: Self = Self(3);
    /// The token is missing, wrong or unreadable.
    pub const AUTHENTICATION: Self = Self(4);
    /// Something is in the way.
    pub const CONFLICT: Self = Self(5);
    /// A ceiling is reached.
    pub const CEILING: Self = Self(6);
    /// No connection, or no reply in time.
    pub const UNREACHABLE: Self = Self(7);
    /// Interrupted by the user, as a shell has it.
    pub const INTERRUPTED: Self = Self(130);
    /// `exec` itself failed, or nobody knows how its command ended.
    pub const EXEC_FAILED: Self = Self(125);

    /// Returns the status as a number.
    pub fn code(self) -> u8 {
        self.0
    }

    /// Passes on how a command in a sandbox ended.
    ///
    /// A code that no process can end with counts as not known.
    pub(super) fn of_command(code: i64) -> Self {
        u8::try_from(code).map_or(Self::EXEC_FAILED, Self)
    }

    /// Tells how a call that did not succeed ends the program.
    pub(super) fn of_error(error: &Error) -> Self {
        match error {
            Error::Unreachable { .. } | Error::Timeout { .. } => Self::UNREACHABLE,
            Error::Refused { status, .. } => Self::of_status(*status),
            Error::Malformed { .. } | Error::TooLarge { .. } => Self::FAILED,
            Error::Token => Self::AUTHENTICATION,
        }
    }

    /// Tells how a refusal ends the program.
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::AUTHENTICATION,
            404 | 410 => Self::NOT_FOUND,
            408 | 504 => Self::UNREACHABLE,
            409 => Self::CONFLICT,
            429 => Self::CEILING,
            _ => Self::FAILED,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_exit_code() {
        for status in 300..600 {
            let expected = match status {
                404 | 410 => 3,
                401 | 403 => 4,
                409 => 5,
                429 => 6,
                408 | 504 => 7,
                _ => 1,
            };
            assert_eq!(Exit::of_status(status).code(), expected, "{status}");
        }
    }

    #[test]
    fn a_command_passes_its_own_code() {
        for code in 0..=255 {
            assert_eq!(i64::from(Exit::of_command(code).code()), code);
        }
        for impossible in [-1, 256, i64::MIN, i64::MAX] {
            assert_eq!(Exit::of_command(impossible), Exit::EXEC_FAILED);
        }
    }
}
