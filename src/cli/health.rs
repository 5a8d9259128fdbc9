//! `sandboxctl health`.

use super::args::Output;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use crate::client::Client;

pub(super) async fn health(client: &Client, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    let health = client.health().await?;
    let of = |limit: Option<u64>| limit.map_or(String::new(), |limit| format!(" of {limit}"));
    match printer.output() {
        Output::Json => printer.json(&health)?,
        Output::Table => {
            let mut pairs = vec![
                ("Status", health.status.clone()),
                (
                    "Resident",
                    format!("{}{}", health.sessions, of(health.limit)),
                ),
                (
                    "Open",
                    format!("{}{}", health.open_sessions, of(health.open_limit)),
                ),
                ("Runtimes", health.runtimes.join(", ")),
            ];
            pairs.extend(
                health
                    .reasons
                    .iter()
                    .map(|reason| ("Reason", reason.clone())),
            );
            printer.pairs(&pairs)?;
        }
    }
    Ok(if health.status == "ok" {
        Exit::OK
    } else {
        Exit::FAILED
    })
}
