//! `sandboxctl release`.

use super::args::{Output, Release};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::removal::confirm;
use crate::client::Client;
use crate::wire::holds::{ENGINE_CHANGED, WORKSPACE_ROOT_CHANGED};

pub(super) async fn release(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Release,
) -> Result<Exit, Failure> {
    if !args.yes {
        let name = &args.name;
        let then = match name.as_str() {
            ENGINE_CHANGED => "start sessions anew on the engine that answers",
            WORKSPACE_ROOT_CHANGED => "go on with the workspaces of the directory that is there",
            _ => "have idle, expired and surplus things removed again",
        };
        let question = format!("let go of {name}, and {then}?");
        confirm(printer, &question)?;
    }
    client.release(&args.name).await?;
    match printer.output() {
        Output::Table => printer.line(&args.name)?,
        Output::Json => printer.json(&serde_json::json!({ "released": args.name }))?,
    }
    Ok(Exit::OK)
}
