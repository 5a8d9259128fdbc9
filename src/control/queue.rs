//! Lines up openings that wait at a ceiling, first come first served.
//!
//! Who waits at a ceiling of the service goes before everybody who came later, and who
//! waits at the ceiling of a tenant before those of that tenant alone. Only whose turn it
//! is asks for a place, so that many who wait cost no more than one.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Control, Refusal};
use crate::id::Tenant;
use crate::news::{Listener, News};

/// How often whose turn it is asks although nothing was written: that a session has been
/// idle for long enough to give way is written nowhere.
const TICK: Duration = Duration::from_secs(1);
/// How long changes are gathered before somebody asks again.
const GATHER: Duration = Duration::from_millis(10);

/// How long an opening waits at a ceiling.
#[derive(Clone, Debug)]
pub struct Patience {
    /// So long, and at most as the operator allows; nothing refuses at once.
    pub longest: Duration,
    /// Ends all waiting.
    pub stopping: CancellationToken,
}

/// The openings that wait; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// A std mutex: held for a look into a small map, never across an await.
    waiting: Mutex<Waiting>,
    /// Told when somebody leaves.
    left: News,
}

#[derive(Debug, Default)]
struct Waiting {
    arrivals: u64,
    /// By arrival.
    places: BTreeMap<u64, Stand>,
}

#[derive(Debug)]
struct Stand {
    tenant: Option<Tenant>,
    /// At which ceiling.
    refused: Refusal,
}

/// A place in the line; dropping it gives it up.
#[derive(Debug)]
pub(super) struct Place {
    line: Line,
    number: u64,
}

impl Default for Line {
    fn default() -> Self {
        Self(Arc::new(Shared {
            waiting: Mutex::default(),
            left: News::default(),
        }))
    }
}

impl Line {
    /// Returns the refusal of somebody who goes before: before a place, or before all who
    /// have none.
    pub(super) fn before(&self, place: Option<&Place>, tenant: Option<&Tenant>) -> Option<Refusal> {
        let number = place.map_or(u64::MAX, |place| place.number);
        let waiting = self.waiting();
        let mut earlier = waiting.places.range(..number).map(|(_, stand)| stand);
        earlier
            .find(|stand| stand.goes_before(tenant))
            .map(|stand| match &stand.refused {
                // Who waits to wake a session is not named to others.
                Refusal::ResidentCeiling { limit, used, .. } => Refusal::ResidentCeiling {
                    waking: None,
                    limit: *limit,
                    used: *used,
                },
                other => other.clone(),
            })
    }

    /// Joins the line after a refusal; `None` where as many wait as may.
    fn join(&self, tenant: Option<&Tenant>, refused: Refusal, length_max: usize) -> Option<Place> {
        let mut waiting = self.waiting();
        if length_max <= waiting.places.len() {
            return None;
        }
        waiting.arrivals += 1;
        let number = waiting.arrivals;
        let tenant = tenant.cloned();
        waiting.places.insert(number, Stand { tenant, refused });
        Some(Place {
            line: self.clone(),
            number,
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stand {
    fn goes_before(&self, tenant: Option<&Tenant>) -> bool {
        match &self.refused {
            Refusal::TenantCeiling { .. } => self.tenant.as_ref() == tenant,
            _ => true,
        }
    }
}

impl Place {
    /// Notes at which ceiling it waits now.
    fn refused_again(&self, refused: Refusal) {
        let mut waiting = self.line.waiting();
        let Some(stand) = waiting.places.get_mut(&self.number) else {
            return;
        };
        let before = std::mem::replace(&mut stand.refused, refused);
        let moved = discriminant(&before) != discriminant(&stand.refused);
        drop(waiting);
        if moved {
            // Those of other tenants may go ahead of it now.
            self.line.0.left.tell();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.line.waiting().places.remove(&self.number);
        self.line.0.left.tell();
    }
}

/// An opening on its way to a place.
#[derive(Debug)]
pub(super) struct Queuing {
    patience: Patience,
    deadline: Instant,
    length_max: usize,
    place: Option<Place>,
    /// Changes of the store, and of the line, since the last attempt.
    changes: (Listener, Listener),
}

impl Queuing {
    /// Returns its place in the line, where it has one.
    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Notes that it has what it waited for.
    pub(super) fn leave(&mut self) {
        self.place = None;
    }

    /// Begins an attempt: what changes from now on is a reason for another.
    pub(super) fn begin_attempt(&mut self) {
        self.changes.0.skip();
        self.changes.1.skip();
    }
}

impl Control {
    /// Readies an opening for a line that it may have to join.
    pub(super) fn queuing(&self, patience: Patience) -> Queuing {
        let limits = &self.0.policy.get().limits;
        Queuing {
            deadline: Instant::now() + patience.longest.min(limits.open_wait_max),
            length_max: limits.open_queue_max,
            patience,
            place: None,
            changes: (self.0.books.store.changes(), self.0.line.0.left.listen()),
        }
    }

    /// Waits after a refusal until another attempt is due; gives the refusal back where
    /// there is nothing to wait for, or no time left.
    pub(super) async fn line_up(
        &self,
        queuing: &mut Queuing,
        tenant: Option<&Tenant>,
        refused: Refusal,
    ) -> Result<(), Refusal> {
        match refused {
            Refusal::OpenCeiling { .. }
            | Refusal::TenantCeiling { .. }
            | Refusal::ResidentCeiling { .. } => {}
            other => return Err(other),
        }
        if queuing.deadline <= Instant::now() {
            return Err(refused);
        }
        if let Some(place) = &queuing.place {
            place.refused_again(refused.clone());
            // That was no news to itself.
            queuing.changes.1.skip();
        } else {
            let line = &self.0.line;
            let place = line.join(tenant, refused.clone(), queuing.length_max);
            queuing.place = Some(place.ok_or_else(|| refused.clone())?);
        }
        loop {
            tokio::select! {
                biased;
                () = queuing.patience.stopping.cancelled() => return Err(Refusal::ShuttingDown),
                () = sleep_until(queuing.deadline) => return Err(refused),
                () = queuing.changes.0.changed() => sleep(GATHER).await,
                () = queuing.changes.1.changed() => {}
                () = sleep(TICK) => {}
            }
            if self.0.line.before(queuing.place(), tenant).is_none() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH_MAX: usize = 3;

    fn full() -> Refusal {
        Refusal::OpenCeiling { limit: 1, used: 1 }
    }

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    fn tenant_full(name: &str) -> Refusal {
        Refusal::TenantCeiling {
            tenant: tenant(name),
            limit: 1,
            used: 1,
        }
    }

    #[test]
    fn who_came_first_goes_first_and_nobody_passes_by_the_line() {
        let line = Line::default();
        let first = line.join(None, full(), LENGTH_MAX).unwrap();
        let second = line.join(None, full(), LENGTH_MAX).unwrap();
        assert_eq!(line.before(Some(&first), None), None);
        assert_eq!(line.before(Some(&second), None), Some(full()));
        assert_eq!(line.before(None, Some(&tenant("t"))), Some(full()));
        drop(first);
        assert_eq!(line.before(Some(&second), None), None);
        drop(second);
        assert_eq!(line.before(None, None), None);
    }

    #[test]
    fn a_tenant_at_its_own_ceiling_holds_up_nobody_else() {
        let line = Line::default();
        let (t, u) = (tenant("t"), tenant("u"));
        let first = line.join(Some(&t), tenant_full("t"), LENGTH_MAX).unwrap();
        let second = line.join(Some(&t), tenant_full("t"), LENGTH_MAX).unwrap();
        for other in [None, Some(&u)] {
            assert_eq!(line.before(None, other), None);
        }
        assert_eq!(line.before(Some(&second), Some(&t)), Some(tenant_full("t")));
        assert_eq!(line.before(None, Some(&t)), Some(tenant_full("t")));
        // Once the tenant has room, and the service has none, it is in everybody's way.
        first.refused_again(full());
        assert_eq!(line.before(None, Some(&u)), Some(full()));
    }

    #[test]
    fn a_line_has_a_bound_and_who_leaves_makes_room() {
        let line = Line::default();
        let join = || line.join(None, full(), 2);
        let (first, _second) = (join().unwrap(), join().unwrap());
        assert!(join().is_none());
        drop(first);
        assert!(join().is_some());
        assert!(line.join(None, full(), 0).is_none(), "no line at all");
    }

    #[test]
    fn those_who_wait_wake_one_another_only_where_one_may_go_ahead() {
        let line = Line::default();
        let first = line.join(None, full(), LENGTH_MAX).unwrap();
        let left = line.0.left.listen();
        first.refused_again(Refusal::OpenCeiling { limit: 1, used: 2 });
        assert!(!left.is_behind(), "it waits as before");
        first.refused_again(tenant_full("t"));
        assert!(left.is_behind());
    }

    #[test]
    fn those_who_wait_are_told_when_somebody_leaves() {
        let line = Line::default();
        let first = line.join(None, full(), LENGTH_MAX).unwrap();
        let left = line.0.left.listen();
        assert!(!left.is_behind());
        drop(first);
        assert!(left.is_behind());
    }
}
