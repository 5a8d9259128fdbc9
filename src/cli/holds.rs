//! `sandboxctl release`.

use super::args::{Output, Release};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::removal::confirm;
use crate::client::Client;
use crate::wire::holds::ENGINE_CHANGED;

pub(super) async fn release(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Release,
) -> Result<Exit, Failure> {
    if !args.yes {
        let name = &args.name;
        let question = if name == ENGINE_CHANGED {
            format!("let go of {name}, and start sessions anew on the engine that answers?")
        } else {
            format!("let go of {name}, and have idle, expired and surplus things removed again?")
        };
        confirm(printer, &question)?;
    }
    client.release(&args.name).await?;
    match printer.output() {
        Output::Table => printer.line(&args.name)?,
        Output::Json => printer.json(&serde_json::json!({ "released": args.name }))?,
    }
    Ok(Exit::OK)
}
