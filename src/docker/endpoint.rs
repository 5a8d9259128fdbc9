//! Names the unix socket on which an engine listens.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Bytes of the longest path that a unix socket can have.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The absolute path of an engine's unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

/// Says why a text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// It is neither a unix address nor an absolute path.
    #[error(
        "{0:?} is not the address of a local engine: write unix:///path/to/docker.sock \
         or the absolute path alone"
    )]
    NotLocal(String),
    /// The path is longer than the operating system accepts.
    #[error("{0:?} is longer than the {SOCKET_PATH_BYTES_MAX} bytes of a socket's path")]
    TooLong(String),
}

impl Endpoint {
    /// Parses `unix:///path` or an absolute path; any other scheme is refused.
    ///
    /// Does not look whether anything is there.
    pub fn parse(text: &str) -> Result<Self, InvalidEndpoint> {
        let shown = || text.chars().take(200).collect();
        let path = text.strip_prefix("unix://").unwrap_or(text);
        let plain = !path.chars().any(char::is_control);
        if !path.starts_with('/') || path.ends_with('/') || !plain {
            return Err(InvalidEndpoint::NotLocal(shown()));
        }
        if SOCKET_PATH_BYTES_MAX < path.len() {
            return Err(InvalidEndpoint::TooLong(shown()));
        }
        Ok(Self(path.to_owned()))
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        Self::parse(text)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_local_socket_is_an_endpoint() {
        for good in ["unix:///run/docker.sock", "/run/docker.sock"] {
            let endpoint = Endpoint::parse(good).unwrap();
            assert_eq!(endpoint.path(), Path::new("/run/docker.sock"));
            assert_eq!(endpoint.to_string(), "unix:///run/docker.sock");
        }
        for bad in [
            "",
            "/",
            "unix://",
            "unix://run/docker.sock",
            "run/docker.sock",
            "tcp://127.0.0.1:2375",
            "ssh://host",
            "npipe:////./pipe/docker",
            "http://host/",
            "/run/a\nb",
        ] {
            let refused = Endpoint::parse(bad).unwrap_err();
            assert!(
                refused.to_string().contains("unix:///path/to/docker.sock"),
                "{refused}"
            );
        }
        let long = format!("/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
        assert_eq!(
            Endpoint::parse(&long),
            Err(InvalidEndpoint::TooLong(long.clone()))
        );
    }
}
