//! Finds the route of a request, and builds the router, from the rows of a table.

use std::collections::BTreeSet;

use axum::Router;
use axum::http::{HeaderValue, Method};
use axum::routing::{MethodFilter, MethodRouter};
use percent_encoding::percent_decode_str;

use crate::api::auth::Guarded;
use crate::control::Control;

/// One route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) verb: Verb,
    /// The template, with captures in braces.
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) query: &'static [Param],
    pub(super) takes: Takes,
    pub(super) answers: Answer,
    pub(super) noise: Noise,
    handler: fn(MethodFilter) -> MethodRouter<Guarded>,
}

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Anyone.
    Public,
    /// Holders of the service token.
    Service,
    /// They, and holders of the token of the session in the path.
    SessionOrService,
}

/// What a route takes as its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// None.
    Nothing,
    /// JSON of this schema.
    Json(&'static str),
    /// Bytes as they are.
    Bytes,
    /// An archive.
    Archive,
}

/// What a route answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// JSON of this schema.
    Json(&'static str),
    /// JSON of this schema, with 201 where it was made now and 200 where it was there.
    Made(&'static str),
    /// JSON of this schema a line, or events, or bytes: what the request accepts.
    Stream(&'static str),
    /// A page or a document.
    Document,
    /// Bytes as they are.
    Bytes,
    /// A file, or a range of it.
    File,
    /// Server-sent events, each with JSON of this schema.
    Events(&'static str),
    /// An archive.
    Archive,
    /// 204.
    Nothing,
    /// 101, and then a WebSocket.
    Socket,
}

/// How loudly a request is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noise {
    /// A line at `info`.
    Line,
    /// A line at `debug`: it is called all the time.
    Quiet,
}

/// A parameter of a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) kind: ParamKind,
}

/// What a parameter of a query holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum ParamKind {
    Flag,
    Text,
    /// At least the first, at most the second.
    Number(u64, Option<u64>),
    OneOf(&'static [&'static str]),
}

/// The methods that routes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Get,
    Head,
    Post,
    Put,
    Delete,
}

impl Verb {
    fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET => Some(Self::Get),
            Method::HEAD => Some(Self::Head),
            Method::POST => Some(Self::Post),
            Method::PUT => Some(Self::Put),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }

    /// Returns the method's name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Head => MethodFilter::HEAD,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

impl Route {
    /// Makes a row for holders of the service token.
    pub(super) const fn new(
        verb: Verb,
        path: &'static str,
        summary: &'static str,
        handler: fn(MethodFilter) -> MethodRouter<Guarded>,
    ) -> Self {
        Self {
            verb,
            path,
            summary,
            access: Access::Service,
            query: &[],
            takes: Takes::Nothing,
            answers: Answer::Document,
            noise: Noise::Line,
            handler,
        }
    }

    /// Lets anyone call it.
    pub(super) const fn public(mut self) -> Self {
        self.access = Access::Public;
        self
    }

    pub(super) const fn for_session(mut self) -> Self {
        self.access = Access::SessionOrService;
        self
    }

    pub(super) const fn query(mut self, query: &'static [Param]) -> Self {
        self.query = query;
        self
    }

    pub(super) const fn takes(mut self, schema: &'static str) -> Self {
        self.takes = Takes::Json(schema);
        self
    }

    pub(super) const fn answers(mut self, schema: &'static str) -> Self {
        self.answers = Answer::Json(schema);
        self
    }

    pub(super) const fn takes_bytes(mut self) -> Self {
        self.takes = Takes::Bytes;
        self
    }

    pub(super) const fn makes(mut self, schema: &'static str) -> Self {
        self.answers = Answer::Made(schema);
        self
    }

    pub(super) const fn streams(mut self, schema: &'static str) -> Self {
        self.answers = Answer::Stream(schema);
        self
    }

    pub(super) const fn answers_socket(mut self) -> Self {
        self.answers = Answer::Socket;
        self
    }

    pub(super) const fn answers_bytes(mut self) -> Self {
        self.answers = Answer::Bytes;
        self
    }

    pub(super) const fn answers_file(mut self) -> Self {
        self.answers = Answer::File;
        self
    }

    pub(super) const fn answers_events(mut self, schema: &'static str) -> Self {
        self.answers = Answer::Events(schema);
        self
    }

    pub(super) const fn takes_archive(mut self) -> Self {
        self.takes = Takes::Archive;
        self
    }

    pub(super) const fn answers_archive(mut self) -> Self {
        self.answers = Answer::Archive;
        self
    }

    pub(super) const fn answers_nothing(mut self) -> Self {
        self.answers = Answer::Nothing;
        self
    }

    pub(super) const fn quiet(mut self) -> Self {
        self.noise = Noise::Quiet;
        self
    }
}

/// What a path holds where its template has braces, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Captures(Vec<(&'static str, String)>);

impl Captures {
    /// Returns what stands for a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(captured, _)| *captured == name);
        found.map(|(_, text)| text.as_str())
    }
}

/// Where a request leads.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// To a route.
    Route(&'static Route, Captures),
    /// To a path that has other methods: these.
    OtherMethod(HeaderValue),
    /// To a path that is one without its trailing slashes.
    Slashed,
    /// Nowhere.
    Nowhere,
}

/// Finds where a request leads.
pub(super) fn find(table: &'static [Route], method: &Method, path: &str) -> Target {
    // A slash within an id would be another path once somebody decodes it.
    if has_encoded_slash(path) {
        return Target::Nowhere;
    }
    let verb = Verb::of(method);
    let mut others = BTreeSet::new();
    for route in table {
        if let Some(captures) = captures(route.path, path) {
            if verb == Some(route.verb) {
                return Target::Route(route, captures);
            }
            others.insert(route.verb.as_str());
        }
    }
    if others.is_empty() {
        let trimmed = path.trim_end_matches('/');
        let leads = |route: &Route| captures(route.path, trimmed).is_some();
        return if trimmed.len() < path.len() && table.iter().any(leads) {
            Target::Slashed
        } else {
            Target::Nowhere
        };
    }
    let methods = others.into_iter().collect::<Vec<_>>().join(", ");
    Target::OtherMethod(HeaderValue::try_from(methods).expect("method names are visible"))
}

fn has_encoded_slash(path: &str) -> bool {
    path.as_bytes()
        .windows(3)
        .any(|window| window.eq_ignore_ascii_case(b"%2f"))
}

/// Matches a path with a template, segment by segment; no segment captured is empty.
fn captures(template: &'static str, path: &str) -> Option<Captures> {
    let mut found = Captures::default();
    let mut segments = path.split('/');
    for wanted in template.split('/') {
        let segment = segments.next()?;
        match wanted
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'))
        {
            Some(_) if segment.is_empty() => return None,
            Some(name) => {
                let text = percent_decode_str(segment).decode_utf8_lossy();
                found.0.push((name, text.into_owned()));
            }
            None if wanted == segment => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(found)
}

/// Builds the router of a table.
pub(super) fn router(table: &[Route], control: Control) -> Router {
    let empty = Router::new();
    let filled = table.iter().fold(empty, |router, route| {
        let handler = || (route.handler)(route.verb.filter());
        let router = router.route(route.path, handler());
        // A path that is spelled out hides from the router the templates that it fits.
        let hidden: BTreeSet<&str> = table
            .iter()
            .map(|other| other.path)
            .filter(|path| *path != route.path && captures(route.path, path).is_some())
            .collect();
        hidden
            .into_iter()
            .fold(router, |router, path| router.route(path, handler()))
    });
    filled.with_state(Guarded::new(control))
}

/// Lists the templates of a table but `/`, sorted, each once.
pub(super) fn endpoints(table: &[Route]) -> Vec<String> {
    let paths: BTreeSet<&str> = table.iter().map(|route| route.path).collect();
    paths
        .into_iter()
        .filter(|path| *path != "/")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::table::TABLE;

    fn lead(method: &Method, path: &str) -> String {
        match find(TABLE, method, path) {
            Target::Route(route, captures) => {
                format!("{} {:?}", route.path, captures.get("session_id"))
            }
            Target::OtherMethod(allow) => format!("allow {}", allow.to_str().unwrap()),
            Target::Slashed => "slashed".to_owned(),
            Target::Nowhere => "nowhere".to_owned(),
        }
    }

    #[test]
    fn a_path_leads_to_one_row_or_says_why_not() {
        for (method, path, expected) in [
            (Method::GET, "/", "/ None"),
            (
                Method::GET,
                "/sessions/a%2Eb",
                "/sessions/{session_id} Some(\"a.b\")",
            ),
            (Method::GET, "/sessions/a%2fb", "nowhere"),
            (Method::GET, "/sessions//events", "nowhere"),
            (Method::GET, "/sessions/", "slashed"),
            (Method::PUT, "/sessions/a/exec//", "slashed"),
            (Method::GET, "/nope/", "nowhere"),
            (Method::GET, "//", "nowhere"),
            (Method::HEAD, "/healthz", "allow GET"),
            (Method::OPTIONS, "/sessions", "allow GET, POST"),
            (Method::PATCH, "/sessions/a", "allow DELETE, GET"),
            (Method::GET, "/workspaces", "/workspaces None"),
        ] {
            assert_eq!(lead(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn every_row_is_found_by_its_own_path_and_no_two_rows_share_one() {
        let mut seen = BTreeSet::new();
        for row in TABLE {
            assert!(seen.insert((row.verb, row.path)), "{} twice", row.path);
            let path = row.path.replace(['{', '}'], "");
            let method = Method::from_bytes(row.verb.as_str().as_bytes()).unwrap();
            let Target::Route(found, _) = find(TABLE, &method, &path) else {
                panic!("{path} leads nowhere");
            };
            assert_eq!((found.verb, found.path), (row.verb, row.path));
        }
    }

    proptest! {
        #[test]
        fn no_path_makes_the_table_panic(path in "/[ -~]{0,40}") {
            let _target = find(TABLE, &Method::GET, &path);
        }
    }
}
