//! Sees to it that there are descriptors for everything that may go on at once.
//!
//! Connections are what there is most of and what anybody can open, so they are held to
//! what the calls to the engine, the commands and the store leave of the limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

use crate::api::SHED_MAX;

/// Descriptors of the daemon itself, with room to spare: the store, the log, the port, the
/// runtime, looks into `/proc`, and removals of workspaces.
const OWN_MAX: usize = 48;
/// Connections that are served whatever the limit is.
const CONNECTIONS_MIN: usize = 8;

/// What may be open at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Connections of clients.
    pub(super) connections: usize,
    /// Commands, each with a stream of the engine beside its client's connection, unless
    /// it goes over the stream of an agent.
    pub(super) commands: usize,
    /// Further calls to the engine.
    pub(super) calls: usize,
    /// Places of agents, and their streams.
    pub(super) agents: usize,
}

impl Wanted {
    /// Descriptors that are no client's, no command's and no agent's.
    fn fixed(self) -> usize {
        OWN_MAX + SHED_MAX + self.calls
    }

    /// Descriptors with which nothing has to be held back.
    fn total(self) -> usize {
        self.fixed()
            .saturating_add(crate::control::files::DESCRIPTORS_MAX)
            .saturating_add(self.agents)
            .saturating_add(self.commands)
            .saturating_add(self.connections)
    }

    /// Returns how many connections a limit has room for.
    fn connections_within(self, limit: usize) -> usize {
        let free = limit.saturating_sub(self.fixed());
        // A command goes by an agent or by the engine: where not all fit, the one has what
        // the other leaves. Every command under way has a connection as well, and an agent
        // that finds no descriptor dials again.
        let beside = self.commands.max(self.agents).min(free.div_ceil(2));
        (free - beside).clamp(CONNECTIONS_MIN, self.connections.max(CONNECTIONS_MIN))
    }
}

/// Raises the limit as far as it may be and has to be, and returns for how many
/// connections there are descriptors.
pub(super) fn connections(wanted: Wanted) -> usize {
    let total = wanted.total();
    let limit = raise(total);
    if limit.is_none_or(|limit| total <= limit) {
        return wanted.connections;
    }
    let limit = limit.unwrap_or(total);
    let connections = wanted.connections_within(limit);
    if wanted.connections <= connections {
        return connections;
    }
    warn!(
        limit,
        needed = total,
        connections,
        "the limit of open files is too low for what is configured, so fewer connections are served: raise it to what is needed (LimitNOFILE= of the unit, or ulimit -n), or lower SANDBOXD_MAX_CONNECTIONS={}, SANDBOXD_MAX_RUNNING_COMMANDS={}, SANDBOXD_MAX_WORKERS={} or SANDBOXD_MAX_SESSIONS, whose agents take {}",
        wanted.connections,
        wanted.commands,
        wanted.calls,
        wanted.agents,
    );
    connections
}

/// Raises the soft limit towards `total`, and returns it; `None` where there is none.
fn raise(total: usize) -> Option<usize> {
    let held = getrlimit(Resource::Nofile);
    let current = held.current?;
    let total = u64::try_from(total).unwrap_or(u64::MAX);
    let reachable = held.maximum.unwrap_or(total).min(total);
    if reachable <= current {
        return Some(as_count(current));
    }
    let raised = Rlimit {
        current: Some(reachable),
        maximum: held.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Some(as_count(reachable)),
        Err(cause) => {
            debug!(%cause, "the limit of open files could not be raised");
            Some(as_count(current))
        }
    }
}

fn as_count(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Wanted = Wanted {
        connections: 1024,
        commands: 256,
        calls: 32,
        agents: 60,
    };

    #[test]
    fn connections_get_what_calls_and_commands_leave_and_never_all() {
        let fixed = DEFAULTS.fixed();
        for (limit, connections) in [
            (DEFAULTS.total(), 1024),
            (DEFAULTS.total() + 1, 1024),
            (1024, 1024 - fixed - 256),
            // As many commands as connections, where there is not room for all.
            (fixed + 100, 50),
            (128, 16),
            (0, CONNECTIONS_MIN),
        ] {
            assert_eq!(DEFAULTS.connections_within(limit), connections, "{limit}");
        }
    }

    #[test]
    fn whatever_connections_a_limit_leaves_there_are_descriptors_for_their_commands() {
        let least = DEFAULTS.fixed() + 2 * CONNECTIONS_MIN;
        for limit in least..2 * DEFAULTS.total() {
            let connections = DEFAULTS.connections_within(limit);
            let commands = DEFAULTS.commands.min(connections);
            assert!(
                DEFAULTS.fixed() + connections + commands <= limit,
                "{limit}"
            );
        }
    }

    #[test]
    fn agents_cost_no_connection_where_commands_by_the_engine_would_take_as_much() {
        let without = Wanted {
            agents: 0,
            ..DEFAULTS
        };
        for limit in 0..2 * DEFAULTS.total() {
            let connections = DEFAULTS.connections_within(limit);
            assert_eq!(connections, without.connections_within(limit), "{limit}");
        }
    }

    #[test]
    fn many_agents_have_their_descriptors_and_leave_as_many_to_connections() {
        let many = Wanted {
            agents: 3000,
            ..DEFAULTS
        };
        assert_eq!(many.total() - DEFAULTS.total(), 3000 - DEFAULTS.agents);
        for limit in [1024, 4096, many.total()] {
            let connections = many.connections_within(limit);
            let free = limit - many.fixed();
            assert!(
                connections + many.agents.min(free.div_ceil(2)) <= free,
                "{limit}"
            );
        }
        let unbounded = Wanted {
            agents: usize::MAX,
            ..DEFAULTS
        };
        assert_eq!(unbounded.total(), usize::MAX);
    }
}
