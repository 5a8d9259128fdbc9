//! Lists what holds the service back, and lets go of it.

use super::{Control, Refusal, unwritten};
use crate::cause::chain;
use crate::reconcile::{Holds, Kept, Released, Standing};
use crate::session::Hold;
use crate::wire::holds::{HoldInfo, HoldList};

impl Control {
    /// Lists the holds that stand.
    pub fn list_holds(&self) -> HoldList {
        let standing = self.holds().standing();
        HoldList {
            holds: standing.into_iter().map(on_wire).collect(),
        }
    }

    /// Lets go of a hold; of a rebuild not before there is something to confirm.
    pub async fn release(&self, name: &str) -> Result<(), Refusal> {
        let none = || Refusal::NoHold(name.chars().take(80).collect());
        let hold = Hold::parse(name).ok_or_else(none)?;
        match hold {
            Hold::StoreRebuilt => self.knows_containers()?,
            Hold::EngineChanged | Hold::WorkspaceRootChanged => {}
        }
        let released = self.holds().release(hold).await;
        let released = released.map_err(|kept| match kept {
            Kept::Store(error) => unwritten(&error),
            Kept::Disk(error) if error.is_no_space() => Refusal::NoSpace(chain(&error)),
            Kept::Disk(error) => Refusal::EngineFailed(chain(&error)),
        });
        match released? {
            Released::Yes => Ok(()),
            Released::NotHeld => Err(none()),
        }
    }

    pub(super) fn holds(&self) -> Holds {
        Holds {
            books: self.0.books.clone(),
            engine: self.0.loop_.engine.clone(),
            workspaces: self.0.host.workspaces.clone(),
        }
    }
}

fn on_wire(standing: Standing) -> HoldInfo {
    HoldInfo {
        name: standing.hold.as_str().to_owned(),
        since: standing.since.secs_f64(),
        detail: standing.detail,
        remedy: standing.remedy,
    }
}
