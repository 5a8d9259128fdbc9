//! Fills the state directory of a daemon that does not run, for `scripts/bench/size.py`.
//!
//! usage: `fill_store STATE_DIR COUNT [running] [parked] [closed]`, the kinds in turn;
//! without any, parked and closed.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be set up has to end"
)]

use std::path::Path;

#[path = "../tests/it/support/records.rs"]
mod records;

use records::{Was, fill};

fn main() -> Result<(), String> {
    let usage = "usage: fill_store STATE_DIR COUNT [running] [parked] [closed]";
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or(usage)?;
    let count = arguments.next().and_then(|count| count.parse().ok());
    let count = count.ok_or(usage)?;
    let mut were = Vec::new();
    for kind in arguments {
        were.push(match kind.as_str() {
            "running" => Was::Running,
            "parked" => Was::Parked,
            "closed" => Was::Closed,
            _ => return Err(usage.to_owned()),
        });
    }
    if were.is_empty() {
        were = vec![Was::Parked, Was::Closed];
    }
    fill(Path::new(&dir), count, &were);
    Ok(())
}
