//! Keeps what was decided about each call, so that a failure can be had again.

use std::fmt;

use super::plan::{Action, Plan, Rule, Which};

/// What was decided about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The number of the call, from 1.
    pub(crate) index: u64,
    /// The first line of the request.
    pub(crate) line: String,
    /// What became of it.
    pub(crate) action: Action,
}

/// All decisions, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log(pub(super) Vec<Decision>);

impl Log {
    /// Returns the decisions.
    pub(crate) fn decisions(&self) -> &[Decision] {
        &self.0
    }

    /// Returns a plan that decides the same about the same calls.
    ///
    /// Ids and names differ from run to run, so its rules count calls of one kind.
    pub(crate) fn as_plan(&self) -> Plan {
        let kind = |decision: &Decision| {
            let (method, path) = split(&decision.line);
            (method.to_owned(), kind_of(&path))
        };
        let rules = self.0.iter().enumerate().filter_map(|(at, decision)| {
            if decision.action == Action::Pass {
                return None;
            }
            let (method, path) = kind(decision);
            let earlier = self.0[..at]
                .iter()
                .filter(|other| Rule::new(&method, &path, Which::Every, Action::Pass).is_of(other));
            let nth = u64::try_from(earlier.count()).unwrap() + 1;
            Some(Rule::new(
                &method,
                &path,
                Which::Nth(nth),
                decision.action.clone(),
            ))
        });
        Plan {
            rules: rules.collect(),
            seeded: None,
        }
    }
}

impl Rule {
    fn is_of(&self, decision: &Decision) -> bool {
        let (method, path) = split(&decision.line);
        self.is_about(method, &path)
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Decision {
            index,
            line,
            action,
        } in &self.0
        {
            let line = line.trim_end_matches(" HTTP/1.1");
            match action {
                Action::Pass => writeln!(f, "{index:4} {line}")?,
                action => writeln!(f, "{index:4} {line} -> {action:?}")?,
            }
        }
        let plan = serde_json::to_string(&self.as_plan()).unwrap();
        writeln!(f, "the same again: {plan}")
    }
}

/// Splits the first line of a request into its method, and its path without version and
/// query.
pub(super) fn split(line: &str) -> (&str, String) {
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let versioned = path
        .strip_prefix("/v")
        .filter(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
        .and_then(|rest| rest.get(rest.find('/')?..));
    (method, versioned.unwrap_or(path).to_owned())
}

/// Puts a star for what names one thing.
fn kind_of(path: &str) -> String {
    let mut segments: Vec<&str> = path.split('/').collect();
    let names_one = matches!(segments.get(1), Some(&("containers" | "exec" | "images")))
        && !matches!(segments.get(2..), Some(["json" | "create" | "prune"] | []));
    if names_one {
        segments[2] = "*";
    }
    segments.join("/")
}

#[test]
fn what_names_one_thing_is_left_out_of_a_kind() {
    for (line, wanted) in [
        (
            "POST /v1.41/containers/create?name=x HTTP/1.1",
            "/containers/create",
        ),
        (
            "POST /v1.41/containers/abc/start HTTP/1.1",
            "/containers/*/start",
        ),
        ("DELETE /v1.41/containers/abc?force=1", "/containers/*"),
        ("GET /v1.41/images/a%2Fb:1/json", "/images/*/json"),
        ("GET /version HTTP/1.1", "/version"),
        ("GET /_ping", "/_ping"),
    ] {
        assert_eq!(kind_of(&split(line).1), wanted);
    }
}
