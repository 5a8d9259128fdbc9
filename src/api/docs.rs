//! Shows the route table as a page that loads nothing and runs nothing.

use std::fmt::Write as _;

use axum::http::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::api::routes::{Access, Answer, Route, Takes};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid #ccc}\
code{font-family:ui-monospace,monospace}small{color:#666}";

/// The page and the policy under which a browser shows it.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) html: Bytes,
    pub(super) policy: HeaderValue,
}

impl Page {
    /// Writes the page of a table.
    pub(super) fn new(table: &[Route]) -> Self {
        let rows: String = table.iter().map(row).collect();
        let html = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>sandboxd</title>\
             <style>{STYLE}</style></head><body><h1>sandboxd</h1>\
             <p>Sandbox execution service for AI agents. The same as a document for programs: \
             <a href=\"/openapi.json\">/openapi.json</a>.</p>\
             <p>Tokens go into the header <code>X-Sandbox-Token</code>.</p>\
             <table><thead><tr><th>Route</th><th>What it does</th><th>Token</th><th>Body</th><th>Answer</th></tr></thead>\
             <tbody>{rows}</tbody></table></body></html>\n"
        );
        let hash = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        Self {
            html: html.into(),
            policy: HeaderValue::try_from(policy).expect("a policy is visible ASCII"),
        }
    }
}

fn row(route: &Route) -> String {
    let mut query = String::new();
    for param in route.query {
        write!(
            query,
            "<br><small><code>?{}</code> {}</small>",
            escaped(param.name),
            escaped(param.about)
        )
        .expect("a string takes every write");
    }
    let token = match route.access {
        Access::Public => "none",
        Access::Service => "service",
        Access::SessionOrService => "session or service",
    };
    let answer = match route.answers {
        Answer::Json(schema) | Answer::Made(schema) | Answer::Stream(schema) => schema,
        Answer::Bytes | Answer::File => "bytes",
        Answer::Events(schema) => schema,
        Answer::Archive => "an archive",
        Answer::Document => "a document",
        Answer::Socket => "a WebSocket",
        Answer::Nothing => "204",
    };
    let takes = match route.takes {
        Takes::Nothing => "–",
        Takes::Json(schema) => schema,
        Takes::Bytes => "bytes",
        Takes::Archive => "an archive",
    };
    format!(
        "<tr><td><code>{} {}</code></td><td>{}{query}</td><td>{token}</td><td>{}</td><td>{answer}</td></tr>",
        route.verb.as_str(),
        escaped(route.path),
        escaped(route.summary),
        takes,
    )
}

/// Makes text safe between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::table::TABLE;

    #[test]
    fn the_page_shows_every_route_and_needs_nothing_else() {
        let page = Page::new(TABLE);
        let html = std::str::from_utf8(&page.html).unwrap();
        for route in TABLE {
            let line = format!("<code>{} {}</code>", route.verb.as_str(), route.path);
            assert!(html.contains(&line), "{line}");
        }
        for foreign in ["<script", "http://", "https://", "style=", "onclick"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
    }
}
