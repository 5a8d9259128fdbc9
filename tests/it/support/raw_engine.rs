//! Speaks to an engine call by call, without a client of any kind between.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::http::{Response, read_response};

const SILENCE_MAX: Duration = Duration::from_mins(1);

/// An engine at a socket.
#[derive(Clone, Debug)]
pub(crate) struct RawEngine(PathBuf);

impl RawEngine {
    /// The real one.
    pub(crate) fn real() -> Self {
        Self::at(Path::new("/var/run/docker.sock"))
    }

    /// The one at a socket.
    pub(crate) fn at(socket: &Path) -> Self {
        Self(socket.to_owned())
    }

    /// Makes a call, such as `GET /v1.41/info`, with JSON, other text, or nothing.
    pub(crate) fn call(&self, call: &str, body: Option<&str>) -> Response {
        let stream = self.send(call, body);
        read_response(&mut BufReader::new(stream)).unwrap_or_else(|why| panic!("{call}: {why}"))
    }

    /// Makes a call of the version 1.41, and returns the status and the JSON of the reply.
    pub(crate) fn json(&self, call: &str, body: Option<&Value>) -> (u16, Value) {
        let (method, path) = call.split_once(' ').unwrap();
        let body = body.map(Value::to_string);
        let reply = self.call(&format!("{method} /v1.41{path}"), body.as_deref());
        (reply.status, reply.json().unwrap_or_default())
    }

    /// Follows the events of the containers with a label until one is destroyed.
    pub(crate) fn events_until_destroy(&self, label: &str) -> JoinHandle<Vec<Value>> {
        let filters = format!(
            "%7B%22label%22%3A%5B%22{}%22%5D%7D",
            label.replace('=', "%3D")
        );
        let stream = self.send(&format!("GET /v1.41/events?filters={filters}"), None);
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        // Only when it has begun, nothing is missed.
        while !lines.next().unwrap().is_empty() {}
        thread::spawn(move || {
            let mut seen = Vec::new();
            for line in lines {
                if let Ok(event @ Value::Object(_)) = serde_json::from_str(&line) {
                    let is_last = event["Action"] == "destroy";
                    seen.push(event);
                    if is_last {
                        break;
                    }
                }
            }
            seen
        })
    }

    fn send(&self, call: &str, body: Option<&str>) -> UnixStream {
        let mut stream = UnixStream::connect(&self.0).unwrap();
        stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
        let body = body.unwrap_or_default();
        let text = format!(
            "{call} HTTP/1.1\r\nhost: docker\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }
}
