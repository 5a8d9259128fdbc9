//! Says which calls are to go wrong, and how.

use serde::{Deserialize, Serialize};

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Action {
    /// It is carried.
    Pass,
    /// Its connection ends, and for this long others are refused.
    Refuse { ms: u64 },
    /// It is accepted and never answered; the engine does not hear of it.
    Hang,
    /// It is carried after this long.
    Delay { ms: u64 },
    /// Its connection ends, and the engine does not hear of it.
    DropRequest,
    /// The engine acts, and its connection ends before the first byte of the reply.
    DropReply,
    /// The engine acts, and its connection ends after this many bytes of the reply.
    Cut { bytes: usize },
    /// It is answered with this, and the engine does not hear of it.
    Answer {
        /// The status.
        status: u16,
        /// The body; JSON goes as such, everything else as HTML.
        body: String,
        /// The length that is claimed, where it is not that of the body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claims: Option<usize>,
    },
    /// The first frame of a multiplexed stream is broken.
    CorruptFrame(Broken),
    /// The engine is asked twice; the reply to the second asking is given.
    Replay,
    /// Of a stream of events this many arrive, and then nothing more.
    StallEvents { after: usize },
    /// Of a stream of events each second one arrives before the first.
    ReorderEvents,
}

/// How a frame is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Broken {
    /// It names this stream.
    Stream(u8),
    /// It claims this many bytes.
    Length(u32),
}

/// Which of the calls that match are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Which {
    /// Each one.
    Every,
    /// The n-th alone, from 1.
    Nth(u64),
}

/// Some calls, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// The method, or `*`.
    pub(crate) method: String,
    /// The path without version and query, where `*` stands for anything but a slash,
    /// and `**` for anything.
    pub(crate) path: String,
    /// Which of these calls.
    pub(crate) which: Which,
    /// What becomes of them.
    pub(crate) action: Action,
}

/// Chance that can be repeated: what becomes of a call depends on its number alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seeded {
    /// Names the run.
    pub(crate) seed: u64,
    /// Of a hundred calls, how many get an action.
    pub(crate) percent: u64,
    /// The actions, of which each is as likely.
    pub(crate) actions: Vec<Action>,
}

/// What is to go wrong: the first rule that fits, else chance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// The rules.
    #[serde(default)]
    pub(crate) rules: Vec<Rule>,
    /// Chance, for what no rule is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seeded: Option<Seeded>,
}

impl Plan {
    /// Reads a plan from JSON, as a log prints it.
    pub(crate) fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|why| panic!("not a plan: {why}\n{text}"))
    }

    /// Makes a plan of one rule about the n-th such call.
    pub(crate) fn nth(method: &str, path: &str, n: u64, action: Action) -> Self {
        Self {
            rules: vec![Rule::new(method, path, Which::Nth(n), action)],
            seeded: None,
        }
    }

    /// Makes a plan of one rule about every such call.
    pub(crate) fn every(method: &str, path: &str, action: Action) -> Self {
        Self {
            rules: vec![Rule::new(method, path, Which::Every, action)],
            seeded: None,
        }
    }
}

impl Rule {
    /// Makes a rule.
    pub(crate) fn new(method: &str, path: &str, which: Which, action: Action) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            which,
            action,
        }
    }

    /// Tells whether it is about such calls, whichever of them.
    pub(super) fn is_about(&self, method: &str, path: &str) -> bool {
        (self.method == "*" || self.method == method) && fits(&self.path, path)
    }
}

impl Seeded {
    /// Returns what becomes of a call by its number.
    pub(super) fn action(&self, index: u64) -> Action {
        let mut random = Random(self.seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if random.below(100) < self.percent && !self.actions.is_empty() {
            let n = u64::try_from(self.actions.len()).unwrap();
            let chosen = usize::try_from(random.below(n)).unwrap();
            return self.actions[chosen].clone();
        }
        Action::Pass
    }
}

/// The generator `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Tells whether a path fits a pattern.
fn fits(pattern: &str, path: &str) -> bool {
    let from = |rest: &str, most: usize| {
        let mut ends = (0..=most).filter_map(|at| path.get(at..));
        ends.any(|end| fits(rest, end))
    };
    if let Some(rest) = pattern.strip_prefix("**") {
        return from(rest, path.len());
    }
    if let Some(rest) = pattern.strip_prefix('*') {
        return from(rest, path.find('/').unwrap_or(path.len()));
    }
    let mut wanted = pattern.chars();
    match wanted.next() {
        None => path.is_empty(),
        Some(letter) => path
            .strip_prefix(letter)
            .is_some_and(|rest| fits(wanted.as_str(), rest)),
    }
}

#[test]
fn a_pattern_keeps_to_one_segment_unless_it_is_doubled() {
    for (pattern, path, wanted) in [
        ("/containers/*/start", "/containers/abc/start", true),
        ("/containers/*/start", "/containers/a/b/start", false),
        ("/containers/**", "/containers/a/b/start", true),
        ("**/start**", "/containers/abc/start", true),
        ("/containers/*", "/containers/abc/start", false),
        ("/events", "/events", true),
        ("/events", "/event", false),
    ] {
        assert_eq!(fits(pattern, path), wanted, "{pattern} {path}");
    }
}
