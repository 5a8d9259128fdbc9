//! Reads requests and replies off a socket, whole.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

const HEAD_BYTES_MAX: usize = 64 << 10;
const BODY_BYTES_MAX: usize = 64 << 20;

/// A whole request, byte for byte.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Its head, the empty line included.
    pub(crate) head: String,
    /// Its body.
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// Returns its first line.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Returns a header by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns it as it came.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone().into_bytes();
        bytes.extend(&self.body);
        bytes
    }
}

/// Reads a request; `None` is the orderly end of the connection before one began.
pub(crate) fn read_request(from: &mut UnixStream) -> std::io::Result<Option<Received>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if from.read(&mut byte)? == 0 {
            return if head.is_empty() {
                Ok(None)
            } else {
                Err(ErrorKind::UnexpectedEof.into())
            };
        }
        if HEAD_BYTES_MAX < head.len() {
            return Err(ErrorKind::InvalidData.into());
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).map_err(|_| ErrorKind::InvalidData)?;
    let mut request = Received {
        head,
        body: Vec::new(),
    };
    let length = request.header("content-length").map(str::parse);
    let length: usize = length
        .transpose()
        .map_err(|_| ErrorKind::InvalidData)?
        .unwrap_or(0);
    if BODY_BYTES_MAX < length {
        return Err(ErrorKind::InvalidData.into());
    }
    request.body.resize(length, 0);
    from.read_exact(&mut request.body)?;
    Ok(Some(request))
}

/// Waits until the other side ends a connection, and drops what it says meanwhile.
pub(crate) fn received_until_closed(mut from: &UnixStream) {
    let mut piece = [0; 1024];
    while matches!(from.read(&mut piece), Ok(1..)) {}
}

/// Ends a connection; one that has ended is as good.
pub(crate) fn cut(stream: &UnixStream) {
    drop(stream.shutdown(Shutdown::Both));
}
