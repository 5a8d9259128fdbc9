//! `sandboxctl cp`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::mpsc::{Sender, channel};

use super::args::{self, Output, Place};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use crate::client::{Client, ReplyPieces};
use crate::id::{RequestId, SessionId};

/// Bytes that are read of a local file at a time.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Pieces that wait to be sent.
const PIECES_MAX: usize = 1;

/// Copies one file.
pub(super) async fn copy(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Copy,
) -> Result<Exit, Failure> {
    match (&args.source, &args.target) {
        (Place::Session { id, path }, Place::Local(to)) => {
            let pieces = client.download(id, path).await?;
            let name = path.rsplit('/').find(|name| !name.is_empty());
            save(printer, pieces, &landing(to, name.unwrap_or_default())).await
        }
        (Place::Session { id, path }, Place::Standard) => {
            let mut pieces = client.download(id, path).await?;
            while let Some(piece) = pieces.next().await? {
                printer.raw_bytes(&piece)?;
            }
            Ok(Exit::OK)
        }
        (Place::Local(from), Place::Session { id, path }) => {
            let unread = |source| local("read", from, source);
            let mut file = File::open(from).map_err(unread)?;
            let meta = file.metadata().map_err(unread)?;
            if meta.is_dir() {
                return Err(unread(io::ErrorKind::IsADirectory.into()));
            }
            // What is no regular file says zero.
            let bytes = meta.is_file().then_some(meta.len());
            let mut sending = Sending {
                client,
                to: (id, path),
                bytes,
            };
            sending.send(printer, Some(&mut file), from).await
        }
        (Place::Standard, Place::Session { id, path }) => {
            printer.ask_nobody();
            let mut sending = Sending {
                client,
                to: (id, path),
                bytes: None,
            };
            sending.send(printer, None, Path::new("-")).await
        }
        (Place::Session { .. }, Place::Session { .. })
        | (Place::Local(_) | Place::Standard, Place::Local(_) | Place::Standard) => {
            Err(Failure::Ends)
        }
    }
}

/// An upload on its way.
struct Sending<'c> {
    client: &'c Client,
    to: (&'c SessionId, &'c str),
    bytes: Option<u64>,
}

impl Sending<'_> {
    /// Sends a file, or standard input where there is none.
    async fn send(
        &mut self,
        printer: &mut Printer<'_>,
        file: Option<&mut File>,
        from: &Path,
    ) -> Result<Exit, Failure> {
        let (sender, pieces) = channel(PIECES_MAX);
        let upload = self.client.upload(self.to.0, self.to.1, pieces, self.bytes);
        let mut stdin;
        let source: &mut dyn Read = if let Some(file) = file {
            file
        } else {
            stdin = printer.stdin();
            &mut stdin
        };
        let (uploaded, fed) = tokio::join!(upload, feed(source, sender));
        // What could not be read is why the upload broke off.
        fed.map_err(|source| local("read", from, source))?;
        let uploaded = uploaded?;
        match printer.output() {
            Output::Json => printer.json(&uploaded)?,
            Output::Table => {}
        }
        Ok(Exit::OK)
    }
}

/// Passes on what is read; reading blocks the one thread there is, on which nothing else
/// has to be done than to send what was read before.
async fn feed(source: &mut dyn Read, pieces: Sender<io::Result<Bytes>>) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES_MAX];
    loop {
        let piece = match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n_read) => buffer.get(..n_read).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let told = io::Error::new(error.kind(), error.to_string());
                // The other end is told of it too, unless it is gone.
                drop(pieces.send(Err(told)).await);
                return Err(error);
            }
        };
        // Where nobody takes it any more, the reply says why.
        if pieces
            .send(Ok(Bytes::copy_from_slice(piece)))
            .await
            .is_err()
        {
            return Ok(());
        }
    }
}

/// Says where a file lands.
fn landing(to: &Path, name: &str) -> PathBuf {
    if to.is_dir() {
        to.join(name)
    } else {
        to.to_path_buf()
    }
}

/// Writes a file beside its place, and puts it there when it is whole.
async fn save(
    printer: &mut Printer<'_>,
    mut pieces: ReplyPieces,
    to: &Path,
) -> Result<Exit, Failure> {
    let unwritten = |source| local("write", to, source);
    // A device or a pipe has no place that could be taken.
    let is_special = fs::metadata(to).is_ok_and(|meta| !meta.is_file());
    let aside = if is_special {
        None
    } else {
        Some(Aside::beside(to))
    };
    let path = aside.as_ref().map_or(to, |aside| &aside.0);
    let file = OpenOptions::new()
        .write(true)
        .create(!is_special)
        .create_new(!is_special)
        .open(path);
    let mut file = file.map_err(unwritten)?;
    let mut n_bytes = 0_u64;
    while let Some(piece) = pieces.next().await? {
        file.write_all(&piece).map_err(unwritten)?;
        n_bytes += u64::try_from(piece.len()).unwrap_or(0);
    }
    if let Some(aside) = &aside {
        fs::rename(&aside.0, to).map_err(unwritten)?;
    }
    match printer.output() {
        Output::Json => {
            let path = to.display().to_string();
            printer.json(&serde_json::json!({ "path": path, "size": n_bytes }))?;
        }
        Output::Table => {}
    }
    Ok(Exit::OK)
}

/// A file that is not in its place yet; dropped before, it goes.
pub(super) struct Aside(PathBuf);

impl Aside {
    pub(super) fn beside(to: &Path) -> Self {
        let name = format!(".sandboxctl-{}.tmp", RequestId::random());
        Self(to.with_file_name(name))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        match fs::remove_file(&self.0) {
            // It is in its place, or nobody is there who could do more.
            Ok(()) | Err(_) => {}
        }
    }
}

pub(super) fn local(what: &'static str, path: &Path, source: io::Error) -> Failure {
    Failure::LocalFile {
        what,
        path: path.display().to_string(),
        source,
    }
}
