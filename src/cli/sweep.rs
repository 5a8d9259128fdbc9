//! `sandboxctl sweep`.

use super::args::{Output, Sweep};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::text::instant;
use crate::client::Client;
use crate::wire::sweep::{SweepItem, SweepReport};

pub(super) async fn sweep(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Sweep,
) -> Result<Exit, Failure> {
    let report = client.sweep(args.asked()).await?;
    match printer.output() {
        Output::Json => printer.json(&report)?,
        Output::Table => {
            let names = [
                "WHAT",
                "KIND",
                "SESSION",
                "REASON",
                "SINCE",
                "AT",
                "WAITS FOR",
            ];
            let rows = report.items.iter().map(row).collect();
            printer.table(printer.headers(), &names, rows)?;
        }
    }
    for note in notes(&report) {
        printer.note(&note);
    }
    Ok(Exit::OK)
}

fn row(item: &SweepItem) -> Vec<String> {
    let dash = || "-".to_owned();
    // Whose it is: where it is nobody's, the container is all there is to name it by.
    let container = item.container.as_ref();
    let container = container.map(|id| id.chars().take(12).collect());
    let whose = item.session_id.clone().or(container);
    vec![
        item.what.clone(),
        item.kind.clone(),
        whose.unwrap_or_else(dash),
        item.reason.clone(),
        instant(item.since),
        instant(item.at),
        item.waits_for.clone().unwrap_or_else(dash),
    ]
}

fn notes(report: &SweepReport) -> Vec<String> {
    let mut notes = Vec::new();
    if report.more {
        notes.push("the list was cut; there is more".to_owned());
    }
    for hold in &report.holds {
        notes.push(format!(
            "the hold {hold} keeps everything else from being taken"
        ));
    }
    if 0 < report.strays_held_back {
        notes.push(format!(
            "{} containers belong to no session, and are kept since they are so many at once",
            report.strays_held_back
        ));
    }
    notes
}
