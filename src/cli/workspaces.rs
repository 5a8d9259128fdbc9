//! `sandboxctl workspaces`, `export` and `import`.

use std::io::{self, BufRead};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::args::{Export, Import, Output, Workspaces};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::text::{bytes, instant};
use crate::client::{Client, WorkspaceListOptions};
use crate::wire::workspaces::{WorkspaceInfo, WorkspaceList};

/// Pages that one listing asks for.
const PAGES_MAX: usize = 1_000;
/// Pieces of an archive that were read and not yet sent.
const PIECES_MAX: usize = 2;

pub(super) async fn list(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Workspaces,
) -> Result<Exit, Failure> {
    let mut all = WorkspaceList::default();
    let mut options = WorkspaceListOptions::default();
    for _ in 0..PAGES_MAX {
        let page = client.workspaces(&options).await?;
        all.workspaces.extend(page.workspaces);
        all.next.clone_from(&page.next);
        options.cursor = page.next;
        if options.cursor.is_none() {
            break;
        }
    }
    match printer.output() {
        _ if args.quiet => {
            for workspace in &all.workspaces {
                printer.line(&workspace.session_id)?;
            }
        }
        Output::Json => printer.json(&all)?,
        Output::Table => {
            let names = [
                "ID",
                "SESSION",
                "RUNTIME",
                "TENANT",
                "SIZE",
                "FILES",
                "LAST USED",
            ];
            let rows = all.workspaces.iter().map(row).collect();
            printer.table(printer.headers(), &names, rows)?;
        }
    }
    if all.next.is_some() {
        printer.note("the list was cut; there are more workspaces");
    }
    Ok(Exit::OK)
}

fn row(workspace: &WorkspaceInfo) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let size = workspace.bytes.map(bytes);
    let size = match workspace.limit {
        None => or_dash(size),
        Some(limit) => format!("{} / {}", or_dash(size), bytes(limit)),
    };
    vec![
        workspace.session_id.clone(),
        if workspace.open { "open" } else { "closed" }.to_owned(),
        or_dash(workspace.runtime.clone()),
        or_dash(workspace.tenant.clone()),
        size,
        or_dash(workspace.files.map(|files| files.to_string())),
        or_dash(workspace.last_used.map(instant)),
    ]
}

pub(super) async fn export(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Export,
) -> Result<Exit, Failure> {
    let mut pieces = client.export(&args.id, args.format.into()).await?;
    while let Some(piece) = pieces.next().await? {
        printer.raw_bytes(&piece)?;
    }
    Ok(Exit::OK)
}

pub(super) async fn import(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Import,
) -> Result<Exit, Failure> {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let options = args.options();
    let importing = client.import(&args.id, &options, receiver);
    // A refusal ends it before everything was sent, which is then of no interest.
    let (imported, _) = tokio::join!(importing, send(printer.stdin(), sender));
    let imported = imported?;
    match printer.output() {
        Output::Json => printer.json(&imported)?,
        Output::Table => printer.line(&imported.session_id)?,
    }
    if 0 < imported.n_skipped {
        let n_skipped = imported.n_skipped;
        printer.note(&format!(
            "{n_skipped} devices, pipes and sockets were left out"
        ));
    }
    Ok(Exit::OK)
}

/// Sends what is read until its end, or until nobody takes it any more.
async fn send(input: &mut dyn BufRead, sender: mpsc::Sender<io::Result<Bytes>>) -> Option<()> {
    loop {
        // It blocks the one thread there is, which has nothing to send before.
        let piece = match input.fill_buf() {
            Ok([]) => return Some(()),
            Ok(read) => Bytes::copy_from_slice(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                sender.send(Err(error)).await.ok()?;
                return None;
            }
        };
        input.consume(piece.len());
        sender.send(Ok(piece)).await.ok()?;
    }
}
