//! `sandboxctl backup`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::args::{Backup, Output};
use super::copy::{Aside, local};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use crate::client::{Client, ReplyPieces};
use crate::wire::backup::{self, Header};

/// Writes a backup to a file, or to standard output where none is named.
pub(super) async fn backup(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Backup,
) -> Result<Exit, Failure> {
    let mut pieces = client.backup(args.key()).await?;
    let Some(to) = args.file() else {
        while let Some(piece) = pieces.next().await? {
            printer.raw_bytes(&piece)?;
        }
        return Ok(Exit::OK);
    };
    let header = save(pieces, to).await?;
    match printer.output() {
        Output::Json => {
            let path = to.display().to_string();
            printer.json(&serde_json::json!({
                "path": path,
                "taken_at": header.taken_at.secs_f64(),
                "commit": header.commit,
                "sessions": header.counts.sessions,
            }))?;
        }
        Output::Table => printer.line(&format!(
            "{} sessions as of {}",
            header.counts.sessions, header.taken_at
        ))?,
    }
    Ok(Exit::OK)
}

/// Writes a backup beside its place, checks it, and puts it there when it is on the disk.
async fn save(mut pieces: ReplyPieces, to: &Path) -> Result<Header, Failure> {
    let unwritten = |source| local("write", to, source);
    let aside = Aside::beside(to);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(aside.path())
        .map_err(unwritten)?;
    while let Some(piece) = pieces.next().await? {
        file.write_all(&piece).map_err(unwritten)?;
    }
    file.sync_all().map_err(unwritten)?;
    let written = fs::read(aside.path()).map_err(unwritten)?;
    let sound = backup::open(&written);
    let sound = sound.map_err(|damage| local("check", to, io::Error::other(damage)))?;
    fs::rename(aside.path(), to).map_err(unwritten)?;
    let dir = to.parent().filter(|dir| *dir != Path::new(""));
    File::open(dir.unwrap_or(Path::new(".")))
        .and_then(|dir| dir.sync_all())
        .map_err(unwritten)?;
    Ok(sound.header)
}
