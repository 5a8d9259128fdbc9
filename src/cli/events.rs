//! `sandboxctl events`.

use std::time::Duration;

use super::args::Output;
use super::exit::Exit;
use super::failure::Failure;
use super::paging::{Columns, look, tell_gap};
use super::printer::{Headers, Printer};
use super::text::instant;
use crate::client::Client;
use crate::id::SessionId;
use crate::wire::events::SessionEvent;

/// How long following rests between two looks.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// Events that following takes at a look.
const LOOK_MAX: u32 = 200;

const COLUMNS: Columns<SessionEvent> = Columns {
    names: [
        "SEQ  ",
        "TIME                    ",
        "OP        ",
        "RESULT",
        "TOOK     ",
        "DETAIL      ",
        "TARGET",
    ],
    row,
};

/// Shows one page.
pub(super) async fn show(
    client: &Client,
    printer: &mut Printer<'_>,
    id: &SessionId,
    (after, limit): (Option<u64>, Option<u32>),
) -> Result<Exit, Failure> {
    let page = client.events(id, after.unwrap_or_default(), limit).await?;
    match printer.output() {
        Output::Json => printer.json(&page)?,
        Output::Table => COLUMNS.print(printer, printer.headers(), &page.events)?,
    }
    Ok(Exit::OK)
}

/// Shows what is there and what comes, until the session is gone.
///
/// The first look must succeed. After it the service may be away for as long as
/// it takes: nothing that it keeps is missed or shown twice.
pub(super) async fn follow(
    client: &Client,
    printer: &mut Printer<'_>,
    (id, after): (&SessionId, Option<u64>),
    poll: Duration,
) -> Result<Exit, Failure> {
    let mut after = after.unwrap_or_default();
    let mut page = client.events(id, after, None).await?;
    COLUMNS.print(printer, printer.headers(), &page.events)?;
    loop {
        let latest_before = page.latest_seq;
        after = page.events.last().map_or(after, |event| event.seq);
        if page.events.len() < usize::try_from(LOOK_MAX).unwrap_or(usize::MAX) {
            tokio::time::sleep(poll).await;
        }
        let from = async |after| client.events(id, after, Some(LOOK_MAX)).await;
        page = look(printer, poll, async || from(after).await).await?;
        if page.latest_seq < latest_before {
            printer.note("the session was opened anew, and its log begins again");
            page = look(printer, poll, async || from(0).await).await?;
        } else {
            tell_gap(printer, after, page.first_seq);
        }
        COLUMNS.print(printer, Headers::Hidden, &page.events)?;
    }
}

fn row(event: &SessionEvent) -> Vec<String> {
    let result = if event.ok { "ok" } else { "failed" };
    let took = format!("{:.1}ms", event.duration_ms);
    // Widths that most events keep to, so that the columns of what is followed
    // stay where they are.
    vec![
        format!("{:<5}", event.seq),
        format!("{:<24}", instant(event.at)),
        format!("{:<10}", event.op),
        format!("{result:<6}"),
        format!("{took:<9}"),
        format!("{:<12}", event.detail),
        event.target.clone(),
    ]
}
