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

/// Where the reference of the settings is.
const REFERENCE: &str = "docs/configuration.md";

/// Returns what is wrong with the tests that the reference names: each setting has one,
/// by its file and its name.
fn unshown_settings(reference: &Source, sources: &[Source]) -> Vec<String> {
    let tests = tests(sources);
    let has = |file: &str, name: &str| {
        let path = format!("tests/it/{file}.rs");
        let head = format!("fn {name}(");
        let there = sources.iter().find(|source| source.path == path);
        tests.contains(name) && there.is_some_and(|source| source.text.contains(&head))
    };
    let mut breaches = Vec::new();
    // The setting that no test was named for yet.
    let mut unshown: Option<String> = None;
    let mut breach = |unshown: Option<String>| {
        breaches.extend(unshown.map(|setting| format!("{setting}: names no test that is there")));
    };
    for (index, line) in reference.text.lines().enumerate() {
        if let Some(rest) = line.strip_prefix("- **`SANDBOXD_") {
            let name = rest.split('`').next().unwrap_or_default();
            breach(unshown.replace(format!("{}: SANDBOXD_{name}", reference.at(index + 1))));
        } else if let Some(test) = line.strip_prefix("  Shown by `") {
            let named = test.trim_end_matches('`').split_once("::");
            if named.is_some_and(|(file, name)| has(file, name)) {
                unshown = None;
            }
        }
    }
    breach(unshown);
    breaches
}

#[test]
fn every_setting_names_the_test_that_shows_its_effect() {
    let documents = read(&["docs"], &[".md"]);
    let reference = documents.iter().find(|document| document.path == REFERENCE);
    let reference = reference.unwrap();
    assert!(50 < reference.text.matches("\n- **`SANDBOXD_").count());
    let breaches = unshown_settings(reference, &read(&["tests"], &[".rs"]));
    assert!(breaches.is_empty(), "\n  {}", breaches.join("\n  "));
}

#[test]
fn a_setting_without_its_test_is_found() {
    let reference = Source::synthetic(
        REFERENCE,
        "- **`SANDBOXD_A`**: x\n  Shown by `a::a_law`\n- **`SANDBOXD_B`**: x\n  Shown by `b::a_law`\n\
         - **`SANDBOXD_C`**: x\n- **`SANDBOXD_D`**: x\n  Shown by `a::gone`\n",
    );
    let code = Source::synthetic("tests/it/a.rs", "#[test]\nfn a_law() {}\nfn gone() {}\n");
    let wanted = [(3, "B"), (5, "C"), (6, "D")].map(|(line, name)| {
        format!("{REFERENCE}:{line}: SANDBOXD_{name}: names no test that is there")
    });
    assert_eq!(unshown_settings(&reference, &[code]), wanted);
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
