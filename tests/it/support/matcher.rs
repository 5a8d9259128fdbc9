//! Compares a JSON value with an expectation.
//!
//! An object expects at least its fields, a list exactly its items, anything else itself.
//! An object whose keys start with `$` is a question about the value instead; of several,
//! all must hold.

use sandboxd::id::SessionId;
use serde_json::Value;

/// Characters of a value that a difference shows.
const SHOWN_MAX: usize = 160;

/// Returns how `found` differs from what is `wanted`, a line each; nothing where it holds.
pub(crate) fn differences(wanted: &Value, found: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    compare(wanted, found, "$", &mut lines);
    lines
}

fn holds(wanted: &Value, found: &Value) -> bool {
    differences(wanted, found).is_empty()
}

fn compare(wanted: &Value, found: &Value, at: &str, lines: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(fields), _) if fields.keys().any(|key| key.starts_with('$')) => {
            for (question, answer) in fields {
                if !question_holds(question, answer, found) {
                    lines.push(format!(
                        "{at}: {question} {answer} does not hold for {}",
                        shown(found)
                    ));
                }
            }
        }
        (Value::Object(fields), Value::Object(found)) => {
            for (name, wanted) in fields {
                match found.get(name) {
                    Some(found) => compare(wanted, found, &format!("{at}.{name}"), lines),
                    None => lines.push(format!("{at}.{name}: missing")),
                }
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            for (index, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                compare(wanted, found, &format!("{at}[{index}]"), lines);
            }
        }
        (Value::Number(wanted), Value::Number(found)) if wanted.as_f64() == found.as_f64() => {}
        _ if wanted == found => {}
        _ => lines.push(format!("{at}: wanted {wanted}, found {}", shown(found))),
    }
}

/// Panics at a question that there is not: the case would test nothing.
fn question_holds(question: &str, answer: &Value, found: &Value) -> bool {
    let items = found.as_array();
    match question {
        "$type" => Some(type_of(found)) == answer.as_str(),
        "$session_id" => {
            found
                .as_str()
                .is_some_and(|id| SessionId::parse(id).is_ok())
                == (answer == true)
        }
        "$pieces" => found.as_str().is_some_and(|text| has_pieces(text, answer)),
        "$len" => length(found) == answer.as_u64(),
        "$len_min" => length(found).is_some_and(|length| answer.as_u64() <= Some(length)),
        "$min" => found
            .as_f64()
            .is_some_and(|number| answer.as_f64() <= Some(number)),
        "$max" => found
            .as_f64()
            .is_some_and(|number| Some(number) <= answer.as_f64()),
        "$has" => items.is_some_and(|items| items.iter().any(|item| holds(answer, item))),
        "$has_not" => items.is_some_and(|items| !items.iter().any(|item| holds(answer, item))),
        "$each" => items.is_some_and(|items| items.iter().all(|item| holds(answer, item))),
        "$any_of" => answer
            .as_array()
            .unwrap()
            .iter()
            .any(|wanted| holds(wanted, found)),
        _ => panic!("{question} is no question: see tests/it/support/matcher.rs"),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Whether the text contains these pieces, one after the other.
fn has_pieces(text: &str, pieces: &Value) -> bool {
    let mut rest = text;
    pieces.as_array().unwrap().iter().all(|piece| {
        let piece = piece.as_str().unwrap();
        let found = rest.split_once(piece);
        rest = found.map_or(rest, |(_, rest)| rest);
        found.is_some()
    })
}

/// Characters of a text, items of a list.
fn length(value: &Value) -> Option<u64> {
    let length = match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    u64::try_from(length).ok()
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().nth(SHOWN_MAX).is_none() {
        return text;
    }
    format!("{text:.SHOWN_MAX$}…")
}

#[test]
fn an_expectation_holds_for_what_it_describes_and_for_nothing_else() {
    use serde_json::json;
    let table = [
        (json!({"a": 1}), json!({"a": 1.0, "b": 2}), json!({"b": 2})),
        (
            json!([1, {"a": null}]),
            json!([1, {"a": null}]),
            json!([1, {"a": null}, 3]),
        ),
        (json!(true), json!(true), json!(1)),
        (json!("1"), json!("1"), json!(1)),
        (json!({"$type": "number"}), json!(0.5), json!("0.5")),
        (json!({"$type": "null"}), json!(null), json!(false)),
        (json!({"$session_id": true}), json!("s-1"), json!("-s")),
        (json!({"$pieces": ["a", "b"]}), json!("xaxbx"), json!("ba")),
        (json!({"$len": 2}), json!("éé"), json!("é")),
        (json!({"$len": 0}), json!([]), json!({})),
        (json!({"$len_min": 1}), json!([0]), json!([])),
        (json!({"$min": 1, "$max": 2}), json!(1.5), json!(3)),
        (
            json!({"$has": {"a": 1}}),
            json!([{"a": 0}, {"a": 1}]),
            json!([{"a": 0}]),
        ),
        (json!({"$has_not": 1}), json!([0]), json!([0, 1])),
        (json!({"$each": {"$min": 1}}), json!([1, 2]), json!([1, 0])),
        (json!({"$any_of": [1, 2]}), json!(2), json!(3)),
    ];
    for (wanted, holds_for, fails_for) in table {
        assert_eq!(
            differences(&wanted, &holds_for),
            Vec::<String>::new(),
            "{wanted}"
        );
        assert_eq!(
            differences(&wanted, &fails_for).len(),
            1,
            "{wanted} against {fails_for}"
        );
    }
}

#[test]
fn a_difference_says_where_it_is() {
    use serde_json::json;
    let wanted = json!({"sessions": [{"alive": true}], "limit": null});
    let found = json!({"sessions": [{"alive": false}]});
    assert_eq!(
        differences(&wanted, &found),
        [
            "$.limit: missing",
            "$.sessions[0].alive: wanted true, found false"
        ]
    );
}
