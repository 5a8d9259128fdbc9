//! Keeps the tickets by which browsers open a `WebSocket`, since they send no header.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::api::auth::SessionCaller;
use crate::api::error::Failure;
use crate::api::reply;
use crate::clock::Timestamp;
use crate::id::{Nonce, SessionId};
use crate::wire::ttys::TicketCreated;

/// Tickets at once; the oldest go where there are more.
const TICKETS_MAX: usize = 4096;
/// Tickets of one session at once, so that none crowds out another.
const SESSION_TICKETS_MAX: usize = 32;
/// How long a ticket is good.
const TICKET_LIFE: Duration = Duration::from_secs(30);
const TICKET_BYTES: usize = 32;

/// The tickets that are good.
#[derive(Debug, Default)]
pub(super) struct Tickets(
    // A std mutex: it is held for a look into a bounded map, and never across an await.
    Mutex<BTreeMap<Digest, Ticket>>,
);

/// What is kept of a ticket in place of its text.
type Digest = [u8; 32];

#[derive(Debug)]
struct Ticket {
    session: SessionId,
    /// Which opening of it: a later session of the same id is another one.
    opening: Nonce,
    expires_at: Timestamp,
}

impl Tickets {
    /// Makes a ticket for one WebSocket of a session.
    pub(super) fn issue(
        &self,
        session: &SessionId,
        opening: Nonce,
        now: Timestamp,
    ) -> TicketCreated {
        let mut bytes = Zeroizing::new([0; TICKET_BYTES]);
        getrandom::fill(&mut *bytes).expect("the kernel gives random bytes");
        let ticket = URL_SAFE_NO_PAD.encode(*bytes);
        let expires_at = now.plus(TICKET_LIFE);
        let kept = Ticket {
            session: session.clone(),
            opening,
            expires_at,
        };
        let mut tickets = self.tickets();
        tickets.retain(|_, kept| now < kept.expires_at);
        make_room(&mut tickets, SESSION_TICKETS_MAX, |kept| {
            kept.session == *session
        });
        make_room(&mut tickets, TICKETS_MAX, |_| true);
        tickets.insert(digest(ticket.as_bytes()), kept);
        drop(tickets);
        TicketCreated {
            ticket,
            expires_at: expires_at.secs_f64(),
        }
    }

    /// Takes a ticket, and tells whether it was good for this opening of this session.
    ///
    /// It is good no more, whatever it was presented for.
    pub(super) fn redeem(
        &self,
        presented: &[u8],
        session: &SessionId,
        opening: &Nonce,
        now: Timestamp,
    ) -> bool {
        let taken = self.tickets().remove(&digest(presented));
        taken.is_some_and(|ticket| {
            ticket.session == *session && ticket.opening == *opening && now < ticket.expires_at
        })
    }

    fn tickets(&self) -> MutexGuard<'_, BTreeMap<Digest, Ticket>> {
        // A look into a map leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the oldest of some tickets until there is room for one more of them.
fn make_room(
    tickets: &mut BTreeMap<Digest, Ticket>,
    most: usize,
    counts: impl Fn(&Ticket) -> bool,
) {
    while most <= tickets.values().filter(|kept| counts(kept)).count() {
        let counted = tickets.iter().filter(|(_, kept)| counts(kept));
        let oldest = counted.min_by_key(|(_, kept)| kept.expires_at);
        let Some(digest) = oldest.map(|(digest, _)| *digest) else {
            return;
        };
        tickets.remove(&digest);
    }
}

fn digest(ticket: &[u8]) -> Digest {
    Sha256::digest(ticket).into()
}

pub(super) async fn create(caller: SessionCaller) -> Result<Response<Body>, Failure> {
    let ticket = std::future::ready(caller.ticket()).await?;
    Ok(reply::json(&ticket))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    fn later(secs: f64) -> Timestamp {
        NOW.plus(Duration::from_secs_f64(secs))
    }

    #[test]
    fn a_ticket_is_good_once() {
        let (tickets, opening) = (Tickets::default(), Nonce::random());
        let made = tickets.issue(&id("a"), opening.clone(), NOW);
        let redeem = || tickets.redeem(made.ticket.as_bytes(), &id("a"), &opening, NOW);
        assert_eq!((redeem(), redeem()), (true, false));
        let kept = format!("{tickets:?}");
        assert!(!kept.contains(&made.ticket));
    }

    #[test]
    fn a_ticket_is_good_for_thirty_seconds() {
        let (tickets, opening) = (Tickets::default(), Nonce::random());
        for (after, good) in [(0.0, true), (29.9, true), (30.0, false), (90.0, false)] {
            let made = tickets.issue(&id("a"), opening.clone(), NOW);
            assert_eq!(made.expires_at.to_bits(), 1_030f64.to_bits());
            let ticket = made.ticket.as_bytes();
            let redeemed = tickets.redeem(ticket, &id("a"), &opening, later(after));
            assert_eq!(redeemed, good, "{after}");
        }
    }

    #[test]
    fn a_ticket_is_good_for_its_own_session_and_opening_and_spent_by_any_other() {
        let (tickets, opening) = (Tickets::default(), Nonce::random());
        for (session, nonce) in [("b", opening.clone()), ("a", Nonce::random())] {
            let made = tickets.issue(&id("a"), opening.clone(), NOW);
            let ticket = made.ticket.as_bytes();
            assert!(!tickets.redeem(ticket, &id(session), &nonce, NOW));
            assert!(!tickets.redeem(ticket, &id("a"), &opening, NOW));
        }
        assert!(!tickets.redeem(b"", &id("a"), &opening, NOW));
    }

    #[test]
    fn tickets_are_bounded_and_no_session_crowds_out_another() {
        let (tickets, opening) = (Tickets::default(), Nonce::random());
        let other = tickets.issue(&id("b"), opening.clone(), NOW);
        let made: Vec<_> = (0..=SESSION_TICKETS_MAX)
            .map(|n| {
                let now = later(f64::from(u32::try_from(n).unwrap()) / 10.0);
                tickets.issue(&id("a"), opening.clone(), now)
            })
            .collect();
        assert_eq!(tickets.tickets().len(), SESSION_TICKETS_MAX + 1);
        let redeem =
            |ticket: &str, session| tickets.redeem(ticket.as_bytes(), &id(session), &opening, NOW);
        assert!(!redeem(&made[0].ticket, "a"), "the oldest gave way");
        assert!(redeem(&made[1].ticket, "a"));
        assert!(redeem(&other.ticket, "b"));
        for n in 0..TICKETS_MAX + 10 {
            tickets.issue(&id(&format!("s{n}")), opening.clone(), NOW);
        }
        assert_eq!(tickets.tickets().len(), TICKETS_MAX);
    }
}
