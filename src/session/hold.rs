//! Names what holds the service back from acting on its own.

use crate::wire::holds::{ENGINE_CHANGED, STORE_REBUILT, WORKSPACE_ROOT_CHANGED};

/// Why nothing is removed on the service's own initiative until somebody says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// The store was lost, and its records were made anew from what was left on the host.
    StoreRebuilt,
    /// Another engine than the one with the containers answers.
    EngineChanged,
    /// Another directory than the one with the workspaces is in its place: what it shows
    /// of them is unknown, until that one is back or an operator accepts the other.
    WorkspaceRootChanged,
}

/// Whether the service may remove, close and reap on its own initiative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sweeps {
    /// It may, as its policy says.
    #[default]
    On,
    /// Only what a caller asks for is ended.
    Off,
}

impl Hold {
    /// All there are.
    pub const ALL: [Self; 3] = [
        Self::StoreRebuilt,
        Self::EngineChanged,
        Self::WorkspaceRootChanged,
    ];

    /// Returns the stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StoreRebuilt => STORE_REBUILT,
            Self::EngineChanged => ENGINE_CHANGED,
            Self::WorkspaceRootChanged => WORKSPACE_ROOT_CHANGED,
        }
    }

    /// Finds a hold by its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hold| hold.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_found_by_its_name_and_by_no_other() {
        for hold in Hold::ALL {
            assert_eq!(Hold::parse(hold.as_str()), Some(hold));
        }
        assert_eq!(Hold::parse("Store_Rebuilt"), None);
    }
}
