//! A server that gives prepared replies, one a connection, for tests of the tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::JoinHandle;

/// A server that ends after its last reply.
#[derive(Debug)]
pub(crate) struct Scripted {
    /// Where it listens.
    pub(crate) port: u16,
    served: JoinHandle<Vec<String>>,
}

impl Scripted {
    /// Serves `replies`, each a status and a JSON body, in this order.
    pub(crate) fn start(replies: &[(u16, &str)]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let replies: Vec<String> = replies
            .iter()
            .map(|(status, body)| {
                let length = body.len();
                format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {length}\r\n\r\n{body}")
            })
            .collect();
        let served = std::thread::spawn(move || {
            let mut requests = Vec::new();
            for reply in replies {
                let (stream, _) = listener.accept().unwrap();
                requests.push(answer(stream, &reply));
            }
            requests
        });
        Self { port, served }
    }

    /// Waits until every reply was given and returns the requests: first line and body.
    pub(crate) fn requests(self) -> Vec<String> {
        self.served.join().unwrap()
    }
}

fn answer(stream: TcpStream, reply: &str) -> String {
    let mut reader = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    reader.read_line(&mut request).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(reply.as_bytes()).unwrap();
    format!("{} {}", request.trim(), String::from_utf8(body).unwrap())
        .trim()
        .to_owned()
}
