//! Runs programs that somebody waits for, each once under its id.

use super::request::Run;
use super::{Control, Refusal};
use crate::id::{RunId, SessionId};
use crate::wire::runs::RunResponse;

impl Control {
    /// Runs a program and waits for it. Dropping the future stops it.
    pub async fn run(&self, id: &SessionId, run: Run) -> Result<RunResponse, Refusal> {
        let _ = run;
        Err(std::future::ready(Refusal::NeedsAgent("a run", id.clone())).await)
    }

    /// Stops a run; without effect where there is none, and nothing is woken.
    pub async fn stop_run(&self, id: &SessionId, run: &RunId) -> Result<(), Refusal> {
        let _ = run;
        Err(std::future::ready(Refusal::NeedsAgent("a run", id.clone())).await)
    }
}
