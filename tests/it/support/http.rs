//! A blocking HTTP/1.1 client with deadlines and bounds, one connection a request.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

const CONNECT_MAX: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(90);
const HEADERS_MAX: usize = 100;
const LINE_BYTES_MAX: u64 = 16 << 10;
const BODY_BYTES_MAX: u64 = 64 << 20;

/// The header that carries a token.
pub(crate) const TOKEN_HEADER: &str = "x-sandbox-token";

/// A server on the loopback interface, spoken to with one token or none.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    port: u16,
    token: Option<String>,
}

/// One request, before the token is added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// Such as `GET`.
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// In the order in which they are sent.
    pub(crate) headers: Vec<(String, String)>,
    /// Sent with its length when there is one.
    pub(crate) body: Option<Vec<u8>>,
}

/// A whole reply.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// Such as 200.
    pub(crate) status: u16,
    /// Names in lower case, in the order in which they came.
    pub(crate) headers: Vec<(String, String)>,
    /// Without its transfer coding.
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Returns the first header of that name, given in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON, or `None` where it is not.
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl Http {
    /// Names a server by its port.
    pub(crate) fn new(port: u16, token: &str) -> Self {
        let token = Some(token.to_owned());
        Self { port, token }
    }

    /// Returns the same server, spoken to with another token or with none.
    pub(crate) fn with_token(&self, token: Option<&str>) -> Self {
        Self {
            port: self.port,
            token: token.map(str::to_owned),
        }
    }

    /// Sends a `GET`.
    pub(crate) fn get(&self, path: &str) -> io::Result<Response> {
        self.send(&Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            ..Request::default()
        })
    }

    /// Sends a `DELETE`.
    pub(crate) fn delete(&self, path: &str) -> io::Result<Response> {
        self.send(&Request {
            method: "DELETE".to_owned(),
            path: path.to_owned(),
            ..Request::default()
        })
    }

    /// Sends a request and reads the whole reply.
    pub(crate) fn send(&self, request: &Request) -> io::Result<Response> {
        let stream = self.begin(request)?;
        read_response(&mut BufReader::new(stream))
    }

    /// Sends a request; dropping the stream hangs up before the reply.
    pub(crate) fn begin(&self, request: &Request) -> io::Result<TcpStream> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        stream.set_nodelay(true)?;
        stream.write_all(&self.encode(request))?;
        Ok(stream)
    }

    fn encode(&self, request: &Request) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: close\r\n",
            request.method, request.path, self.port
        );
        let token = self.token.iter().map(|token| (TOKEN_HEADER, token));
        let given = request.headers.iter().map(|(name, value)| (&**name, value));
        for (name, value) in token.chain(given) {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if let Some(body) = &request.body {
            write!(head, "content-length: {}\r\n", body.len()).unwrap();
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(request.body.iter().flatten());
        bytes
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(invalid(
            "the reply ends within a line, or the line is too long",
        ));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| invalid("a header is not UTF-8"))
}

/// Reads a whole reply.
pub(crate) fn read_response(from: &mut impl BufRead) -> io::Result<Response> {
    let status_line = read_line(from)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| invalid(&format!("not a status line: {status_line:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| invalid(&format!("not a header: {line:?}")))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        if HEADERS_MAX < headers.len() {
            return Err(invalid("too many headers"));
        }
    }
    let mut response = Response {
        status,
        headers,
        body: Vec::new(),
    };
    response.body = read_body(from, &response)?;
    Ok(response)
}

fn read_body(from: &mut impl BufRead, head: &Response) -> io::Result<Vec<u8>> {
    if matches!(head.status, 100..=199 | 204 | 304) {
        return Ok(Vec::new());
    }
    if head.header("transfer-encoding") == Some("chunked") {
        return read_chunks(from);
    }
    let mut body = Vec::new();
    match head.header("content-length") {
        Some(length) => {
            let length: u64 = length
                .parse()
                .map_err(|_| invalid("a length that is no number"))?;
            if BODY_BYTES_MAX < length {
                return Err(invalid("the body is too long"));
            }
            body.resize(usize::try_from(length).unwrap(), 0);
            from.read_exact(&mut body)?;
        }
        None => {
            from.take(BODY_BYTES_MAX).read_to_end(&mut body)?;
        }
    }
    Ok(body)
}

fn read_chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(from)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16).map_err(|_| invalid("not a chunk length"))?;
        let total = u64::try_from(body.len()).unwrap() + length;
        if BODY_BYTES_MAX < total {
            return Err(invalid("the body is too long"));
        }
        let start = body.len();
        body.resize(usize::try_from(total).unwrap(), 0);
        from.read_exact(&mut body[start..])?;
        if !read_line(from)?.is_empty() {
            return Err(invalid("a chunk is longer than it says"));
        }
        if length == 0 {
            return Ok(body);
        }
    }
}

#[test]
fn a_chunked_reply_reads_like_one_with_a_length() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    let plain = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    let until_close = "HTTP/1.1 200 OK\r\n\r\nabc";
    for reply in [chunked, plain, until_close] {
        let response = read_response(&mut reply.as_bytes()).unwrap();
        assert_eq!((response.status, response.text()), (200, "abc".to_owned()));
    }
}

#[test]
fn a_reply_that_is_cut_short_is_an_error() {
    for reply in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "ICY 200 OK\r\n\r\n",
    ] {
        assert!(read_response(&mut reply.as_bytes()).is_err(), "{reply:?}");
    }
}
