//! Decides about each call as it comes, and runs what a test hooked to it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::log::{Decision, Log, split};
use super::plan::{Action, Plan, Rule, Which};

/// A moment of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the engine hears of it.
    Before,
    /// After the engine acted, before the first byte of its reply is passed on.
    After,
}

/// What becomes of a call after a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It goes on.
    Carry,
    /// It ends here.
    Drop,
}

/// A plan at work.
#[derive(Debug)]
pub(crate) struct Faults(Mutex<State>);

#[derive(Default)]
struct State {
    rules: Vec<(Rule, u64)>,
    plan: Plan,
    log: Log,
    /// Calls since the hooks were set that a hook can be about.
    counted: u64,
    hooks: Vec<Hook>,
}

/// The call that a hook is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The n-th from here, from 1. Signs of life are not counted: they come when they will.
    Nth(u64),
    /// The next of this method and pattern of a path.
    Next(&'static str, &'static str),
}

struct Hook {
    target: Target,
    when: When,
    act: Box<dyn FnOnce() -> Then + Send>,
}

/// What was decided about a call.
#[derive(Debug)]
pub(crate) struct Decided {
    /// What becomes of it.
    pub(crate) action: Action,
    /// Its number among those that hooks count.
    nth: Option<u64>,
    line: String,
}

impl Faults {
    /// Begins with a plan.
    pub(crate) fn new(plan: Plan) -> Self {
        let faults = Self(Mutex::default());
        faults.follow(plan);
        faults
    }

    /// Follows another plan from now on; its rules count from here.
    pub(crate) fn follow(&self, plan: Plan) {
        let mut state = self.state();
        state.rules = plan.rules.iter().map(|rule| (rule.clone(), 0)).collect();
        state.plan = plan;
    }

    /// Adds a rule, which counts from here.
    pub(crate) fn add(&self, rule: Rule) {
        self.state().rules.push((rule, 0));
    }

    /// Runs `act` at a moment of a call; there is one hook at a time.
    pub(crate) fn on_call(
        &self,
        target: Target,
        when: When,
        act: impl FnOnce() -> Then + Send + 'static,
    ) {
        let mut state = self.state();
        state.counted = 0;
        state.hooks = vec![Hook {
            target,
            when,
            act: Box::new(act),
        }];
    }

    /// Returns whether a hook still waits for its call, and drops it.
    pub(crate) fn unhook(&self) -> bool {
        !std::mem::take(&mut self.state().hooks).is_empty()
    }

    /// Returns the decisions so far.
    pub(crate) fn log(&self) -> Log {
        self.state().log.clone()
    }

    /// Decides about a call by the first line of its request.
    pub(crate) fn decide(&self, line: &str) -> Decided {
        let mut state = self.state();
        let (method, path) = split(line);
        let index = u64::try_from(state.log.0.len()).unwrap() + 1;
        let mut action = None;
        for (rule, count) in &mut state.rules {
            if !rule.is_about(method, &path) {
                continue;
            }
            *count += 1;
            let is_meant = match rule.which {
                Which::Every => true,
                Which::Nth(n) => n == *count,
            };
            if is_meant && action.is_none() {
                action = Some(rule.action.clone());
            }
        }
        let chance = || {
            let seeded = state.plan.seeded.as_ref();
            seeded.map_or(Action::Pass, |seeded| seeded.action(index))
        };
        let action = action.unwrap_or_else(chance);
        state.log.0.push(Decision {
            index,
            line: line.to_owned(),
            action: action.clone(),
        });
        let is_counted = path != "/_ping";
        if is_counted {
            state.counted += 1;
        }
        let nth = is_counted.then_some(state.counted);
        Decided {
            action,
            nth,
            line: line.to_owned(),
        }
    }

    /// Runs the hook of this moment, if there is one.
    pub(crate) fn reach(&self, call: &Decided, when: When) -> Then {
        let mut state = self.state();
        let (method, path) = split(&call.line);
        let is_meant = |hook: &Hook| match hook.target {
            Target::Nth(nth) => Some(nth) == call.nth,
            Target::Next(of, like) => {
                Rule::new(of, like, Which::Every, Action::Pass).is_about(method, &path)
            }
        };
        let found = state
            .hooks
            .iter()
            .position(|hook| hook.when == when && is_meant(hook));
        let Some(found) = found else {
            return Then::Carry;
        };
        let hook = state.hooks.remove(found);
        drop(state);
        (hook.act)()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
