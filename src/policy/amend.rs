//! Changes a policy while the daemon runs: all of a change applies, or none of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Catalogue, Ceilings, InvalidPolicy, Policy, Terms};
use crate::id::Alias;
use crate::quantity::{ByteSize, Cpus};

/// What becomes of a value that may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It goes: no bound, or the service's default.
    Clear,
    /// It becomes this.
    Set(T),
}

/// A change to a policy: what clients of the service may change, and nothing else.
///
/// The allowlist, the network, the OCI runtime and the user are not here: changing
/// them is a deployment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amendment {
    /// The alias of the new default, as it was written.
    pub default_runtime: Option<String>,
    /// How many sessions there may be.
    pub capacity: CapacityChange,
    /// The service's own ceilings.
    pub ceilings: CeilingsChange,
    /// Idle time after which an open session is closed.
    pub idle_timeout: Option<Duration>,
    /// Time to live of workspaces.
    pub workspace_ttl: Change<Duration>,
    /// Time to live of stopped containers.
    pub container_ttl: Change<Duration>,
    /// Size of `/tmp`.
    pub tmpfs_size: Change<String>,
    /// The longest a command may run.
    pub execute_timeout: Option<Duration>,
    /// Bytes of the largest file that is read whole.
    pub max_read_bytes: Option<u64>,
    /// Ceilings of single runtimes, by alias as it was written.
    pub runtimes: BTreeMap<String, CeilingsChange>,
}

/// A change to [`super::Capacity`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityChange {
    /// Resident sandboxes.
    pub max_sessions: Change<u64>,
    /// Open sessions.
    pub max_open_sessions: Change<u64>,
    /// Open sessions of one tenant.
    pub max_sessions_per_tenant: Change<u64>,
    /// Idle time after which a session may give way.
    pub evict_idle_after: Change<Duration>,
}

/// A change to [`Ceilings`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CeilingsChange {
    /// Memory.
    pub mem_limit: Change<ByteSize>,
    /// Memory and swap together.
    pub memswap_limit: Change<ByteSize>,
    /// Processors.
    pub cpus: Change<Cpus>,
    /// Relative weight.
    pub cpu_shares: Change<u64>,
    /// Processes and threads.
    pub pids_limit: Change<u64>,
    /// What lies in a workspace.
    pub workspace_size: Change<ByteSize>,
}

/// Says why an amendment does not apply. The texts go to clients as they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The default is not in the allowlist.
    #[error("Unknown runtime '{wanted}'. The default has to be one of: {known}")]
    UnknownDefault {
        /// The alias asked for.
        wanted: String,
        /// The aliases there are.
        known: String,
    },
    /// Ceilings are for a runtime that is not in the allowlist.
    #[error(
        "Unknown runtime '{0}'. Ceilings can be changed for an allowed runtime; a new one is a \
         deployment change, because it names an image."
    )]
    UnknownRuntime(String),
    /// The terms would not be a policy.
    #[error(transparent)]
    Invalid(InvalidPolicy),
}

impl<T: Clone> Change<T> {
    fn apply(&self, value: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *value = None,
            Self::Set(new) => *value = Some(new.clone()),
        }
    }
}

/// Makes the policy that an amendment asks for; `policy` itself never changes.
///
/// # Errors
/// Everything that is wrong with it; at least one refusal.
pub fn amend(policy: &Policy, amendment: &Amendment) -> Result<Policy, Vec<Refusal>> {
    let mut terms = policy.terms().clone();
    terms.catalogue = catalogue(&terms.catalogue, amendment)?;
    amendment.ceilings.apply(&mut terms.ceilings);
    let capacity = &amendment.capacity;
    capacity
        .max_sessions
        .apply(&mut terms.capacity.max_sessions);
    capacity
        .max_open_sessions
        .apply(&mut terms.capacity.max_open_sessions);
    capacity
        .max_sessions_per_tenant
        .apply(&mut terms.capacity.max_sessions_per_tenant);
    capacity
        .evict_idle_after
        .apply(&mut terms.capacity.evict_idle_after);
    amend_scalars(&mut terms, amendment);
    Policy::new(terms, policy.home())
        .map_err(|faults| faults.into_iter().map(Refusal::Invalid).collect())
}

fn amend_scalars(terms: &mut Terms, amendment: &Amendment) {
    amendment
        .workspace_ttl
        .apply(&mut terms.lifetimes.workspace_ttl);
    amendment
        .container_ttl
        .apply(&mut terms.lifetimes.container_ttl);
    amendment.tmpfs_size.apply(&mut terms.interior.tmpfs_size);
    let lifetimes = &mut terms.lifetimes;
    lifetimes.idle_timeout = amendment.idle_timeout.unwrap_or(lifetimes.idle_timeout);
    let limits = &mut terms.limits;
    limits.execute_timeout = amendment.execute_timeout.unwrap_or(limits.execute_timeout);
    limits.max_read_bytes = amendment.max_read_bytes.unwrap_or(limits.max_read_bytes);
}

fn catalogue(present: &Catalogue, amendment: &Amendment) -> Result<Catalogue, Vec<Refusal>> {
    let mut refusals = Vec::new();
    let known = |text: &str| Alias::parse(text).ok().filter(|a| present.get(a).is_some());
    let mut default = present.default_alias().clone();
    if let Some(wanted) = &amendment.default_runtime {
        match known(wanted) {
            Some(alias) => default = alias,
            None => refusals.push(Refusal::UnknownDefault {
                wanted: wanted.clone(),
                known: present.aliases(),
            }),
        }
    }
    let mut runtimes: BTreeMap<_, _> = present
        .iter()
        .map(|(alias, runtime)| (alias.clone(), runtime.clone()))
        .collect();
    for (text, change) in &amendment.runtimes {
        match known(text).and_then(|alias| runtimes.get_mut(&alias)) {
            Some(runtime) => change.apply(&mut runtime.ceilings),
            None => refusals.push(Refusal::UnknownRuntime(text.clone())),
        }
    }
    if refusals.is_empty() {
        Ok(Catalogue::new(runtimes, default).expect("the default is one of the same aliases"))
    } else {
        Err(refusals)
    }
}

impl CeilingsChange {
    fn apply(&self, ceilings: &mut Ceilings) {
        self.mem_limit.apply(&mut ceilings.mem_limit);
        self.memswap_limit.apply(&mut ceilings.memswap_limit);
        self.cpus.apply(&mut ceilings.cpus);
        self.cpu_shares.apply(&mut ceilings.cpu_shares);
        self.pids_limit.apply(&mut ceilings.pids_limit);
        self.workspace_size.apply(&mut ceilings.workspace_size);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Home, sample};
    use super::*;

    fn refused(amendment: &Amendment) -> Vec<String> {
        let refusals = amend(&sample::policy(), amendment).unwrap_err();
        refusals.iter().map(ToString::to_string).collect()
    }

    fn pids(change: Change<u64>) -> CeilingsChange {
        CeilingsChange {
            pids_limit: change,
            ..CeilingsChange::default()
        }
    }

    #[test]
    fn an_empty_amendment_changes_nothing() {
        let policy = sample::policy();
        assert_eq!(amend(&policy, &Amendment::default()), Ok(policy));
    }

    #[test]
    fn every_part_of_an_amendment_applies() {
        let hour = Duration::from_hours(1);
        let amendment = Amendment {
            default_runtime: Some("node".to_owned()),
            capacity: CapacityChange {
                max_sessions: Change::Clear,
                max_open_sessions: Change::Set(9),
                max_sessions_per_tenant: Change::Set(2),
                evict_idle_after: Change::Set(hour),
            },
            ceilings: CeilingsChange {
                mem_limit: Change::Set(ByteSize::parse("96m").unwrap()),
                memswap_limit: Change::Set(ByteSize::parse("1g").unwrap()),
                cpus: Change::Clear,
                cpu_shares: Change::Set(7),
                pids_limit: Change::Keep,
                workspace_size: Change::Set(ByteSize::parse("2g").unwrap()),
            },
            idle_timeout: Some(hour),
            workspace_ttl: Change::Set(hour),
            container_ttl: Change::Set(hour),
            tmpfs_size: Change::Clear,
            execute_timeout: Some(hour),
            max_read_bytes: Some(1),
            runtimes: BTreeMap::from([("python".to_owned(), pids(Change::Set(50)))]),
        };
        let mut wanted = sample::terms();
        wanted.capacity.max_sessions = None;
        wanted.capacity.max_open_sessions = Some(9);
        wanted.capacity.max_sessions_per_tenant = Some(2);
        wanted.capacity.evict_idle_after = Some(hour);
        wanted.ceilings.mem_limit = Some(ByteSize::parse("96m").unwrap());
        wanted.ceilings.memswap_limit = Some(ByteSize::parse("1g").unwrap());
        wanted.ceilings.cpus = None;
        wanted.ceilings.cpu_shares = Some(7);
        wanted.ceilings.workspace_size = Some(ByteSize::parse("2g").unwrap());
        wanted.lifetimes.idle_timeout = hour;
        wanted.lifetimes.workspace_ttl = Some(hour);
        wanted.lifetimes.container_ttl = Some(hour);
        wanted.interior.tmpfs_size = None;
        wanted.limits.execute_timeout = hour;
        wanted.limits.max_read_bytes = 1;
        let python = Alias::parse("python").unwrap();
        let mut runtimes: BTreeMap<_, _> = wanted
            .catalogue
            .iter()
            .map(|(alias, runtime)| (alias.clone(), runtime.clone()))
            .collect();
        runtimes.get_mut(&python).unwrap().ceilings.pids_limit = Some(50);
        wanted.catalogue = Catalogue::new(runtimes, Alias::parse("node").unwrap()).unwrap();
        let amended = amend(&sample::policy(), &amendment).unwrap();
        assert_eq!(amended.terms(), &wanted);
    }

    #[test]
    fn a_cleared_ceiling_of_a_runtime_is_the_services_again() {
        let amendment = |change| Amendment {
            runtimes: BTreeMap::from([("node".to_owned(), pids(change))]),
            ..Amendment::default()
        };
        let policy = amend(&sample::policy(), &amendment(Change::Set(3))).unwrap();
        let policy = amend(&policy, &amendment(Change::Clear)).unwrap();
        assert_eq!(policy, sample::policy());
    }

    #[test]
    fn unknown_runtimes_are_refused_all_at_once_in_the_documented_words() {
        let amendment = Amendment {
            default_runtime: Some("nope".to_owned()),
            runtimes: BTreeMap::from([("gone".to_owned(), CeilingsChange::default())]),
            ..Amendment::default()
        };
        assert_eq!(
            refused(&amendment),
            [
                "Unknown runtime 'nope'. The default has to be one of: coding, node, python",
                "Unknown runtime 'gone'. Ceilings can be changed for an allowed runtime; a new \
                 one is a deployment change, because it names an image.",
            ]
        );
    }

    #[test]
    fn an_amendment_that_contradicts_what_stays_is_refused_whole() {
        let policy = Policy::new(sample::terms(), Home::Container).unwrap();
        let amendment = Amendment {
            capacity: CapacityChange {
                max_sessions_per_tenant: Change::Set(1),
                max_open_sessions: Change::Set(5),
                evict_idle_after: Change::Set(Duration::ZERO),
                ..CapacityChange::default()
            },
            ..Amendment::default()
        };
        let refusals = amend(&policy, &amendment).unwrap_err();
        assert_eq!(
            refusals,
            [
                Refusal::Invalid(InvalidPolicy::EvictionLosesFiles),
                Refusal::Invalid(InvalidPolicy::OpenBelowResident {
                    open: 5,
                    resident: 20
                }),
            ]
        );
        assert_eq!(policy.terms(), &sample::terms());
    }
}
