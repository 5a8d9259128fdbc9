//! Laws of the documents: what they name as held by a test is held by one.

use std::collections::BTreeSet;

use crate::support::source::{Source, read};

/// The documents whose tables end in a column of tests.
const TABLES: &[&str] = &["docs/reliability.md", "docs/reported-faults.md"];
/// What stands in that column where there is no test, with the reason after it.
const NONE: &str = "none:";
/// What stands for a case of the contract, which the words after it name.
const CONTRACT: &str = "contract";

/// Returns the names of all functions that a test attribute stands above.
fn tests(sources: &[Source]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in sources {
        let mut is_test = false;
        for line in source.text.lines().map(str::trim_start) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                names.insert(name.to_owned());
                is_test = false;
            }
        }
    }
    names
}

/// Returns what is wrong with the last column of a document's tables.
fn unheld_rows(document: &Source, tests: &BTreeSet<String>) -> Vec<String> {
    let mut breaches = Vec::new();
    for (index, line) in document.text.lines().enumerate() {
        let Some(row) = line.strip_prefix("| ") else {
            continue;
        };
        let column = row.trim_end_matches(['|', ' ']).rsplit(" | ").next();
        let column = column.unwrap_or_default().trim();
        let is_head = column.starts_with("---") || column == "test" || column == "held by";
        if is_head || column.starts_with(NONE) {
            continue;
        }
        let named: Vec<&str> = column.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            breaches.push(format!("{}: names no test", document.at(index + 1)));
        }
        for name in named {
            let name = name.rsplit("::").next().unwrap_or(name);
            if name != CONTRACT && !tests.contains(name) {
                breaches.push(format!("{}: no test {name}", document.at(index + 1)));
            }
        }
    }
    breaches
}

#[test]
fn every_test_that_a_document_names_is_there() {
    let tests = tests(&read(&["src", "tests"], &[".rs"]));
    let documents = read(&["docs"], &[".md"]);
    let tables = documents
        .iter()
        .filter(|document| TABLES.contains(&document.path.as_str()));
    let breaches: Vec<String> = tables
        .flat_map(|document| unheld_rows(document, &tests))
        .collect();
    assert!(breaches.is_empty(), "\n  {}", breaches.join("\n  "));
}

#[test]
fn a_row_without_its_test_is_found() {
    let document = Source::synthetic(
        "docs/reliability.md",
        "| fault | test |\n| --- | --- |\n| a | `it::a_law` |\n| b | `gone` |\n| c | |\n| d | none: why |\n",
    );
    let code = Source::synthetic("tests/it/a.rs", "#[test]\nfn a_law() {}\nfn gone() {}\n");
    let breaches = unheld_rows(&document, &tests(&[code]));
    assert_eq!(
        breaches,
        [
            "docs/reliability.md:4: no test gone",
            "docs/reliability.md:5: names no test",
        ]
    );
}
