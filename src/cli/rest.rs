//! `sandboxctl hibernate` and `wake`.

use super::args::Sessions;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::removal::each;
use crate::client::Client;

pub(super) async fn hibernate(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Sessions,
) -> Result<Exit, Failure> {
    each(printer, &args.ids, "hibernated", async |id| {
        client.hibernate(id).await.map(drop)
    })
    .await
}

pub(super) async fn wake(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Sessions,
) -> Result<Exit, Failure> {
    each(printer, &args.ids, "woken", async |id| {
        client.wake(id).await.map(drop)
    })
    .await
}
