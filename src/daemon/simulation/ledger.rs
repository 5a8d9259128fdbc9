//! What callers were told, and what must therefore never happen.
//!
//! The ledger knows nothing of the daemon. It hears what callers ask and what they are
//! told, sees each change of a record on the disk and each call that reaches the engine,
//! and writes down every breach of a promise.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::engine::{Container, Containers};
use crate::id::{Nonce, SessionId};
use crate::policy::{Capacity, Lifetimes, Persist};
use crate::session::record::{Closed, Purge, Reason, Record};

/// How much earlier something was decided than it is seen on the disk, at most, as the
/// runtime has it: a commit waits for the one before it, and each takes two seconds at most.
/// The host's clocks may have gone on by more: it may sleep meanwhile.
const COMMIT_MAX: Duration = Duration::from_secs(5);

/// What an operator has set, as far as promises depend on it.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) capacity: Capacity,
    pub(super) lifetimes: Lifetimes,
    /// Where workspaces are, if the service keeps any.
    pub(super) root: Option<PathBuf>,
}

/// What a caller asks of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    Open,
    Close,
    Purge,
    Rest,
    Use,
}

/// What is promised of one id.
#[derive(Debug, Default)]
struct Claim {
    /// Its record, as it is on the disk.
    record: Option<Record>,
    /// What the opening was acknowledged with that is on record.
    token: Option<(Nonce, String)>,
    /// What was written to it.
    files: BTreeSet<u64>,
    /// Uses that go on.
    uses: u64,
    /// Requests under way, each by when it was asked.
    asked: BTreeMap<Ask, Vec<Duration>>,
    /// When uses were seen to begin or end.
    used_at: Vec<Duration>,
    /// When it was closed at the earliest.
    closed_at: Duration,
}

impl Claim {
    /// Returns when it was asked first for a closing that is on the disk now; zero where
    /// nobody had to ask.
    fn closing_asked_at(&self, closed: &Record) -> Duration {
        let closed = closed.marks.closed.as_ref();
        if closed.is_none_or(|closed| closed.reason != Reason::Requested) {
            return Duration::ZERO;
        }
        let asks = [Ask::Close, Ask::Purge].into_iter();
        let asked = asks.filter_map(|ask| self.asked.get(&ask)).flatten();
        asked.min().copied().unwrap_or_default()
    }
}

/// All promises.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) rules: Rules,
    claims: BTreeMap<SessionId, Claim>,
    pub(super) breaches: Vec<String>,
    began: Instant,
    /// Time that passed for the host's clocks and not for the runtime's: when, as the
    /// runtime has it, and how much.
    leaps: Vec<(Duration, Duration)>,
    /// When the daemon was last started.
    started_at: Duration,
    /// Containers of which the removal was asked for when they might go.
    doomed: BTreeSet<String>,
}

impl Ledger {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            claims: BTreeMap::new(),
            breaches: Vec::new(),
            began: Instant::now(),
            leaps: Vec::new(),
            started_at: Duration::ZERO,
            doomed: BTreeSet::new(),
        }
    }

    /// Notes that the host's clocks went on by so much at once.
    pub(super) fn pass(&mut self, span: Duration) {
        self.leaps.push((self.began.elapsed(), span));
    }

    /// Notes that a daemon begins.
    pub(super) fn start(&mut self) {
        self.started_at = self.now();
    }

    /// Notes that the daemon ended: whoever asked something never hears of it.
    pub(super) fn hang_up(&mut self) {
        for claim in self.claims.values_mut() {
            claim.asked.clear();
            claim.uses = 0;
        }
    }

    /// Notes that something is asked; returns when.
    pub(super) fn ask(&mut self, id: &SessionId, ask: Ask) -> Duration {
        let now = self.now();
        self.claim(id).asked.entry(ask).or_default().push(now);
        now
    }

    /// Notes that what was asked then is answered.
    pub(super) fn answered(&mut self, id: &SessionId, ask: Ask, asked_at: Duration) {
        if let Some(asked) = self.claim(id).asked.get_mut(&ask) {
            let which = asked.iter().position(|at| *at == asked_at);
            if let Some(which) = which {
                asked.swap_remove(which);
            }
        }
    }

    /// Notes that an opening, or an attaching, that was asked for then was acknowledged
    /// with this token.
    pub(super) fn opened(&mut self, id: &SessionId, token: &str, asked_at: Duration) {
        let claim = self.claim(id);
        // It counts as a use, some time before its answer.
        claim.used_at.push(asked_at);
        // It may have ended meanwhile.
        let Some(record) = claim.record.as_ref().filter(|record| record.is_open()) else {
            return;
        };
        let nonce = record.spec.nonce.clone();
        match &claim.token {
            Some((before, known)) if *before == nonce && known != token => {
                self.breach(format!("{id} has another token than before"));
            }
            Some(_) => {}
            None => claim.token = Some((nonce, token.to_owned())),
        }
    }

    /// Returns the tokens that are good.
    pub(super) fn tokens(&self) -> Vec<(SessionId, String)> {
        let known = |(id, claim): (&SessionId, &Claim)| {
            let (_, token) = claim.token.as_ref()?;
            Some((id.clone(), token.clone()))
        };
        self.claims.iter().filter_map(known).collect()
    }

    /// Notes that a use began, or ended.
    pub(super) fn used(&mut self, id: &SessionId, uses: i64) {
        let now = self.now();
        let claim = self.claim(id);
        claim.uses = claim.uses.saturating_add_signed(uses);
        claim.used_at.push(now);
    }

    /// Notes that a file was written. What is written while its session is purged may go
    /// with it.
    pub(super) fn wrote(&mut self, id: &SessionId, file: u64) {
        let claim = self.claim(id);
        let is_purged = claim.record.as_ref().is_none_or(is_purged);
        if !is_purged {
            claim.files.insert(file);
        }
    }

    /// Notes that somebody else took the files away.
    pub(super) fn robbed(&mut self, id: &SessionId) {
        self.claim(id).files.clear();
    }

    /// Sees a record change on the disk while its container runs or does not.
    pub(super) fn changed(&mut self, before: Option<&Record>, after: Option<&Record>, runs: bool) {
        let Some(id) = before.or(after).map(|record| record.spec.id.clone()) else {
            return;
        };
        if let Some(breach) = self.judge_change(&id, (before, after), runs) {
            self.breach(format!("{id}: {breach}"));
        }
        if after.is_some_and(Record::is_open) {
            self.forgive_expired(&id);
        }
        let (now, decided_at) = (self.now(), self.decided_at());
        let claim = self.claim(&id);
        let was_open = before.is_some_and(Record::is_open);
        match after {
            Some(after) if after.is_open() => {
                let is_new = before.is_none_or(|before| before.spec.nonce != after.spec.nonce);
                if is_new {
                    claim.token = None;
                    claim.used_at = vec![now];
                }
            }
            Some(after) => {
                claim.token = None;
                if was_open {
                    claim.closed_at = decided_at.max(claim.closing_asked_at(after));
                }
                if is_purged(after) {
                    claim.files.clear();
                }
            }
            None => {
                claim.token = None;
                claim.files.clear();
            }
        }
        claim.record = after.cloned();
    }

    /// Notes which files of a session went in time, before it is opened anew.
    fn forgive_expired(&mut self, id: &SessionId) {
        if self.may_lose_workspace(id)
            && let Some(root) = self.rules.root.clone()
        {
            let files = &mut self.claim(id).files;
            files.retain(|file| path_of(&root, id, *file).exists());
        }
    }

    /// Says what a change of a record breaks.
    fn judge_change(
        &mut self,
        id: &SessionId,
        (before, after): (Option<&Record>, Option<&Record>),
        runs: bool,
    ) -> Option<String> {
        let (Some(before), Some(after)) = (before, after) else {
            return self.judge_ends(id, before, after);
        };
        let is_same = before.spec.nonce == after.spec.nonce;
        let (was, is) = (&before.marks, &after.marks);
        if was.generation == is.generation && (was.closed != is.closed || was.parked != is.parked) {
            return Some("an intent changed under the same generation".to_owned());
        }
        match (&was.closed, &is.closed) {
            (None, _) if !is_same => Some("an open session was replaced".to_owned()),
            (None, Some(closed)) => self.judge_closing(id, before, closed),
            (None, None) => self.judge_sleep(id, (before, after), runs),
            (Some(_), None) if is_same => Some("what was over is open again".to_owned()),
            (Some(_), None) => self.needs(id, &[Ask::Open], "it was opened"),
            (Some(_), Some(_)) if !is_purged(before) && is_purged(after) => {
                self.needs(id, &[Ask::Purge], "it was purged")
            }
            (Some(_), Some(_)) => None,
        }
    }

    /// Judges the first record of an id, and the end of its last.
    fn judge_ends(
        &mut self,
        id: &SessionId,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Option<String> {
        if before.is_some_and(Record::is_open) {
            return Some("the record of an open session was dropped".to_owned());
        }
        let root = self.rules.root.as_ref();
        let has_files = root.is_some_and(|root| root.join(id.as_str()).exists());
        if before.is_some() && has_files {
            return Some("its record was dropped before its files".to_owned());
        }
        let ask = after.map(|after| {
            if after.is_open() {
                Ask::Open
            } else {
                Ask::Purge
            }
        });
        ask.and_then(|ask| self.needs(id, &[ask], "a record was made"))
    }

    fn judge_closing(
        &mut self,
        id: &SessionId,
        before: &Record,
        closed: &Closed,
    ) -> Option<String> {
        let idle = self.idle(id, self.now());
        let lifetimes = self.rules.lifetimes.clone();
        let gives_way = self.rules.capacity.max_open_sessions.is_some();
        let claim = self.claim(id);
        match closed.reason {
            Reason::Requested => self.needs(id, &[Ask::Close, Ask::Purge], "it was closed"),
            Reason::Idle if 0 < claim.uses => Some("it was reaped in use".to_owned()),
            Reason::Idle if idle < lifetimes.idle_timeout => {
                Some(format!("it was reaped after {idle:?}"))
            }
            Reason::Idle => None,
            Reason::Evicted if before.marks.parked.is_none() || !gives_way => {
                Some("it was closed to make room, and did not sleep".to_owned())
            }
            Reason::Evicted if 0 < claim.uses => Some("it was closed in use".to_owned()),
            Reason::Evicted => None,
            Reason::StartFailed if claim.token.is_some() => {
                Some("a session whose opening was acknowledged is taken for stillborn".to_owned())
            }
            Reason::StartFailed => None,
            other => Some(format!("it was closed as {}", other.as_str())),
        }
    }

    fn judge_sleep(
        &mut self,
        id: &SessionId,
        (before, after): (&Record, &Record),
        runs: bool,
    ) -> Option<String> {
        let reason = match (&before.marks.parked, &after.marks.parked) {
            (None, Some(parked)) => parked.reason,
            (Some(_), None) => {
                return self.needs(id, &[Ask::Open, Ask::Use], "it was woken");
            }
            (None, None) | (Some(_), Some(_)) => return None,
        };
        let idle = self.idle(id, self.now());
        // Who gives way is chosen before that is committed, and may be used in between.
        let decided_at = self.decided_at();
        let was_idle = self.idle(id, decided_at);
        let evicts = self.rules.capacity.evict_idle_after;
        let sleeps = self.rules.lifetimes.hibernate_idle_after;
        let is_used = self.is_used(id);
        let uses = self.claim(id).uses;
        match reason {
            // Who waits for a place in vain does not run.
            Reason::Evicted if !runs => None,
            Reason::Evicted if is_used => Some("it gave way in use".to_owned()),
            Reason::Evicted if evicts.is_none_or(|after| was_idle < after) => {
                Some(format!("it gave way after {was_idle:?}"))
            }
            Reason::Idle if sleeps.is_none_or(|after| idle < after) => {
                Some(format!("it was put to sleep after {idle:?}"))
            }
            Reason::Idle | Reason::Requested if 0 < uses => {
                Some("it was put to sleep in use".to_owned())
            }
            Reason::Requested => self.needs(id, &[Ask::Rest], "it was put to sleep"),
            _ => None,
        }
    }

    /// Judges a stop or a removal as the daemon asks for it.
    pub(super) fn judge_stop(&mut self, container: &Container) {
        let Some(id) = container.session() else {
            return;
        };
        let is_running = container.doing == super::engine::Doing::Running;
        let claim = self.claim(&id);
        let is_open = claim.record.as_ref().is_some_and(Record::is_open);
        if is_running && is_open && 0 < claim.uses {
            self.breach(format!("{id} is stopped in use"));
        }
    }

    /// Notes that the daemon asks for a removal, which may take a while.
    pub(super) fn doom(&mut self, container: &Container) {
        let id = container.session();
        if id.is_some_and(|id| self.may_lose_container(&id)) {
            self.doomed.insert(container.id.clone());
        }
    }

    /// Judges a removal that happened.
    pub(super) fn judge_removal(&mut self, container: &Container) {
        let Some(id) = container.session() else {
            return;
        };
        if container.workspace().is_some() {
            return;
        }
        let may_go = self.doomed.contains(&container.id);
        let claim = self.claim(&id);
        let lost = !claim.files.is_disjoint(&container.files);
        claim.files.retain(|file| !container.files.contains(file));
        if lost && !may_go {
            self.breach(format!("{id}: the only copy of its files was removed"));
        }
    }

    /// Judges what runs.
    pub(super) fn judge_running(&mut self, engine: &Containers) {
        let n = engine.running().count();
        let max = self.rules.capacity.max_sessions;
        if max.is_some_and(|max| max < u64::try_from(n).unwrap_or(u64::MAX)) {
            self.breach(format!("{n} containers run where {max:?} may"));
        }
        let mut seen = BTreeSet::new();
        for container in engine.running() {
            let id = container.session();
            if !seen.insert(id.clone()) {
                self.breach(format!("two containers of {id:?} run"));
            }
        }
    }

    /// Judges everything that can be looked at between two steps.
    pub(super) fn judge_all(&mut self, engine: &Containers) {
        self.judge_running(engine);
        self.judge_open();
        let ids: Vec<SessionId> = self.claims.keys().cloned().collect();
        for id in ids {
            self.judge_files(&id, engine);
        }
    }

    fn judge_open(&mut self) {
        let records = || {
            self.claims
                .values()
                .filter_map(|claim| claim.record.as_ref())
        };
        let open: Vec<_> = records().filter(|record| record.is_open()).collect();
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let mut breaches = Vec::new();
        let n = count(open.len());
        if self
            .rules
            .capacity
            .max_open_sessions
            .is_some_and(|max| max < n)
        {
            breaches.push(format!("{n} sessions are open"));
        }
        let mut tenants: BTreeMap<_, u64> = BTreeMap::new();
        for tenant in open.iter().filter_map(|record| record.spec.tenant.as_ref()) {
            *tenants.entry(tenant.to_string()).or_default() += 1;
        }
        for (tenant, n) in tenants {
            let max = self.rules.capacity.max_sessions_per_tenant;
            if max.is_some_and(|max| max < n) {
                breaches.push(format!("{n} sessions of {tenant} are open"));
            }
        }
        self.breaches.extend(breaches);
    }

    fn judge_files(&mut self, id: &SessionId, engine: &Containers) {
        let workspace_gone = self.may_lose_workspace(id);
        let container_gone = self.may_lose_container(id);
        let root = self.rules.root.clone();
        let claim = self.claim(id);
        if claim.files.is_empty() {
            return;
        }
        let missing: Vec<u64> = if let Some(root) = &root {
            let is_missing = |file: &&u64| !path_of(root, id, **file).exists();
            claim.files.iter().filter(is_missing).copied().collect()
        } else {
            let its = engine
                .all()
                .filter(|one| one.session().as_ref() == Some(id));
            let kept: BTreeSet<u64> = its.flat_map(|one| one.files.iter().copied()).collect();
            claim.files.difference(&kept).copied().collect()
        };
        if missing.is_empty() {
            return;
        }
        claim.files.clear();
        let may_go = if root.is_some() {
            workspace_gone
        } else {
            container_gone
        };
        if !may_go {
            self.breach(format!("{id} has lost files: {missing:?}"));
        }
    }

    /// Whether the workspace of a session that is over may have gone by now.
    fn may_lose_workspace(&mut self, id: &SessionId) -> bool {
        let age = self.closed_for(id);
        let ttl = self.rules.lifetimes.workspace_ttl;
        age.is_some_and(|age| ttl.is_some_and(|ttl| ttl <= age))
    }

    /// Whether the container of a session that is over may have gone by now.
    fn may_lose_container(&mut self, id: &SessionId) -> bool {
        let Some(age) = self.closed_for(id) else {
            return false;
        };
        let Lifetimes {
            workspace_ttl,
            container_ttl,
            persist,
            ..
        } = &self.rules.lifetimes;
        let is_old = [workspace_ttl, container_ttl]
            .into_iter()
            .flatten()
            .any(|ttl| *ttl <= age);
        let is_purged = self.claims.get(id).is_some_and(|claim| {
            let record = claim.record.as_ref();
            record.is_some_and(is_purged)
        });
        is_old || is_purged || *persist == Persist::No
    }

    /// Returns how long ago a session was closed.
    fn closed_for(&mut self, id: &SessionId) -> Option<Duration> {
        let now = self.now();
        let claim = self.claim(id);
        let is_open = claim.record.as_ref().is_some_and(Record::is_open);
        (!is_open).then(|| now.saturating_sub(claim.closed_at))
    }

    fn needs(&mut self, id: &SessionId, asks: &[Ask], what: &str) -> Option<String> {
        let claim = self.claim(id);
        let is_asked = asks
            .iter()
            .any(|ask| claim.asked.get(ask).is_some_and(|asked| !asked.is_empty()));
        (!is_asked).then(|| format!("{what}, and nobody asked for it"))
    }

    /// Whether a session was in use when whatever is committed now was decided.
    fn is_used(&mut self, id: &SessionId) -> bool {
        let decided_at = self.decided_at();
        let claim = self.claim(id);
        let last = claim.used_at.iter().max().copied().unwrap_or_default();
        0 < claim.uses && last <= decided_at
    }

    /// Returns how long a session was idle, but for uses after that.
    fn idle(&mut self, id: &SessionId, until: Duration) -> Duration {
        let (now, started_at) = (self.now(), self.started_at);
        let uses = self.claim(id).used_at.iter();
        let last = uses.filter(|at| **at <= until).max().copied();
        now.saturating_sub(last.unwrap_or_default().max(started_at))
    }

    /// Returns what the host's clocks have counted so far.
    pub(super) fn now(&self) -> Duration {
        self.at(self.began.elapsed())
    }

    /// Returns what the host's clocks had counted when what is seen on the disk now was
    /// decided, at the earliest.
    fn decided_at(&self) -> Duration {
        self.at(self.began.elapsed().saturating_sub(COMMIT_MAX))
    }

    /// Returns what the host's clocks had counted at a time of the runtime.
    fn at(&self, time: Duration) -> Duration {
        let leaps = self.leaps.iter().filter(|(at, _)| *at <= time);
        time + leaps.map(|(_, span)| *span).sum::<Duration>()
    }

    fn claim(&mut self, id: &SessionId) -> &mut Claim {
        self.claims.entry(id.clone()).or_default()
    }

    pub(super) fn breach(&mut self, what: String) {
        self.breaches.push(what);
    }
}

fn is_purged(record: &Record) -> bool {
    let closed = record.marks.closed.as_ref();
    closed.is_some_and(|closed| closed.purge == Purge::Yes)
}

/// Where a file of a session is.
pub(super) fn path_of(root: &Path, id: &SessionId, file: u64) -> PathBuf {
    let workspace = root.join(id.as_str()).join("workspace");
    workspace.join(format!("file-{file}"))
}
