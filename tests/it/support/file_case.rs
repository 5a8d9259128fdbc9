//! A session whose files are sent and taken in.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::api::{Api, WORKSPACES, settings};
use super::daemon::Daemon;
use super::http::{Request, Response};

/// A daemon with a session `s`, whose files are used.
pub(crate) struct FileCase {
    pub(crate) daemon: Daemon,
    pub(crate) api: Api,
}

impl FileCase {
    /// Starts a daemon with a session `s`.
    pub(crate) fn new(changes: &[(&str, &str)]) -> Self {
        let daemon = Daemon::start(&settings(&[&[WORKSPACES], changes].concat()));
        let api = Api::of(&daemon);
        api.open_id("s");
        Self { daemon, api }
    }

    /// Returns where a file of the session is on the host.
    pub(crate) fn host(&self, name: &str) -> PathBuf {
        self.daemon.dir().join("ws/s/workspace").join(name)
    }

    /// Makes a request about a file by a query that names it.
    pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request {
        Request {
            method: method.to_owned(),
            path: format!("/sessions/s/file?{path}"),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: None,
        }
    }

    /// Asks for a file.
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let request = Self::request("GET", path, headers);
        self.api.http().send(&request).unwrap()
    }

    /// Puts a file.
    pub(crate) fn put(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut request = Self::request("PUT", path, headers);
        request.body = Some(body.to_vec());
        self.api.http().send(&request).unwrap()
    }

    /// Begins a request and returns the stream behind the head of its reply, with the head.
    pub(crate) fn begin(&self, method: &str, path: &str) -> (BufReader<TcpStream>, String) {
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            ..Request::default()
        };
        let mut stream = BufReader::new(self.api.http().begin(&request).unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        (stream, head)
    }
}

/// Returns the digits of a SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut digits = String::new();
    for byte in Sha256::digest(bytes) {
        write!(digits, "{byte:02x}").unwrap();
    }
    digits
}

/// Makes bytes that differ from place to place.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    let byte = |n: usize| u8::try_from((n * 7 + n / 251) % 256).unwrap();
    (0..length).map(byte).collect()
}

/// Returns the code of a refusal.
pub(crate) fn code(reply: &Response) -> Value {
    reply
        .json()
        .map_or(Value::Null, |body| body["code"].clone())
}
