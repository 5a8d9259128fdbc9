//! `sandboxctl doctor`.

use super::args::Output;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use crate::client::Client;

pub(super) async fn doctor(client: &Client, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    let report = client.doctor().await?;
    match printer.output() {
        Output::Json => printer.json(&report)?,
        Output::Table => {
            for line in report.to_string().lines() {
                printer.line(line)?;
            }
        }
    }
    Ok(match report.verdict.as_str() {
        "ok" | "warn" => Exit::OK,
        "unknown" => Exit::UNREACHABLE,
        _ => Exit::FAILED,
    })
}
