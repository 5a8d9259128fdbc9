//! Holds the readers of fields to the words that clients match on.

use proptest::prelude::*;

use std::time::Duration;

use super::*;

fn body(text: &str) -> Given<'_> {
    Given::Json(Json::check(text).unwrap())
}

fn query(text: &str) -> Given<'_> {
    Given::Text(Cow::Borrowed(text))
}

fn kind<T: std::fmt::Debug>(read: Result<T, Fault>) -> &'static str {
    read.unwrap_err().kind
}

#[test]
fn a_flag_is_spelled_in_many_ways_and_no_others() {
    for yes in [
        "true", "1", "1.0", "\"1\"", "\"T\"", "\"y\"", "\"YES\"", "\"on\"",
    ] {
        assert_eq!(flag(&body(yes)), Ok(true), "{yes}");
    }
    for no in [
        "false", "0", "0.0", "\"0\"", "\"f\"", "\"N\"", "\"no\"", "\"Off\"",
    ] {
        assert_eq!(flag(&body(no)), Ok(false), "{no}");
    }
    for unclear in ["2", "\"2\"", "\"\"", "NaN", "\"\\ud800\""] {
        assert_eq!(kind(flag(&body(unclear))), "bool_parsing", "{unclear}");
    }
    for other in ["null", "[]", "{}"] {
        assert_eq!(kind(flag(&body(other))), "bool_type", "{other}");
    }
    assert_eq!(kind(flag(&query(""))), "bool_parsing");
    assert_eq!(flag(&query("Yes")), Ok(true));
}

#[test]
fn a_whole_number_may_be_written_as_text_or_with_a_zero_fraction() {
    for two in ["2", "2.0", "2e0", "\"2\"", "\" +2 \"", "\"2.0\"", "\"0_2\""] {
        assert_eq!(at_least(&body(two), 0), Ok(2), "{two}");
    }
    assert_eq!(at_least(&body("1e300"), 0), Ok(u64::MAX));
    assert_eq!(at_least(&body("-0"), 0), Ok(0));
    assert_eq!(kind(at_least(&body("1.5"), 0)), "int_from_float");
    assert_eq!(kind(at_least(&body("NaN"), 0)), "finite_number");
    assert_eq!(kind(at_least(&body("[]"), 0)), "int_type");
    for odd in ["", "x", "1.5", "_1", "1__0", "--1", "1e3"] {
        assert_eq!(kind(at_least(&query(odd), 0)), "int_parsing", "{odd}");
    }
}

#[test]
fn a_bound_is_named_in_kind_message_and_context() {
    let fault = at_least(&query("-1"), 0).unwrap_err();
    assert_eq!(fault.msg, "Input should be greater than or equal to 0");
    assert_eq!(fault.ctx, Some(json!({"ge": 0})));
    let fault = positive(&body("0")).unwrap_err();
    assert_eq!(
        (fault.kind, &*fault.msg),
        ("greater_than", "Input should be greater than 0")
    );
    assert_eq!(fault.ctx, Some(json!({"gt": 0})));
    let fault = page(&query("1001"), 1000).unwrap_err();
    assert_eq!(
        (fault.kind, &*fault.msg),
        (
            "less_than_equal",
            "Input should be less than or equal to 1000"
        )
    );
    assert_eq!(kind(page(&query("0"), 1000)), "greater_than_equal");
}

#[test]
fn a_form_tells_all_its_faults_at_once() {
    let json = Json::check(r#"{"tenant":"-","reuse":2,"other":1}"#).unwrap();
    let mut form = Form::body(json).unwrap();
    let [command, by, reuse] = form.fields(["command", "tenant", "reuse"]);
    let _placeholders = (
        form.required(&command, text),
        form.optional(&by, tenant),
        form.or_default(&reuse, flag),
    );
    let Err(Failure::Invalid(faults)) = form.finish() else {
        panic!("three fields are at fault");
    };
    assert_eq!(
        serde_json::to_value(faults).unwrap(),
        json!([
            {"type": "missing", "loc": ["body", "command"], "msg": "Field required",
             "input": {"tenant": "-", "reuse": 2, "other": 1}},
            {"type": "string_pattern_mismatch", "loc": ["body", "tenant"],
             "msg": format!("String should match pattern '{NAME_PATTERN}'"),
             "input": "-", "ctx": {"pattern": NAME_PATTERN}},
            {"type": "bool_parsing", "loc": ["body", "reuse"],
             "msg": "Input should be a valid boolean, unable to interpret input", "input": 2},
        ])
    );
}

#[test]
fn null_stands_for_a_field_left_out_only_where_it_may_be_left_out() {
    let json = Json::check(r#"{"a":null}"#).unwrap();
    let mut form = Form::body(json).unwrap();
    let [a] = form.fields(["a"]);
    assert_eq!(form.optional(&a, text), None);
    assert!(form.faults.is_empty());
    assert!(!form.or_default(&a, flag));
    assert_eq!(form.faults.len(), 1);
}

proptest! {
    #[test]
    fn no_json_makes_a_reader_panic(number in r"-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,5})?", word in ".{0,40}") {
        let word = serde_json::to_string(&word).unwrap();
        for json in [number.as_str(), word.as_str()] {
            let given = body(json);
            let _read = (
                flag(&given), positive(&given), page(&given, 9), text(&given),
                session_id(&given), tenant(&given), one_of(&given, &["a"]),
            );
        }
    }

    #[test]
    fn no_query_makes_a_reader_panic(word in ".{0,40}") {
        let given = query(&word);
        let _read = (flag(&given), positive(&given), page(&given, 9), session_id(&given));
    }
}

#[test]
fn a_time_is_a_number_above_zero_however_it_is_written() {
    for (given, secs) in [
        ("0.5", 0.5),
        ("\"2.5\"", 2.5),
        ("\" 1_0 \"", 10.0),
        ("true", 1.0),
        ("1e-3", 0.001),
    ] {
        assert_eq!(
            seconds(&body(given)),
            Ok(Duration::from_secs_f64(secs)),
            "{given}"
        );
    }
    for long in ["1e300", "Infinity", "\"inf\""] {
        assert!(seconds(&body(long)).unwrap().as_secs() > 1 << 28, "{long}");
    }
    for none in ["0", "-1", "false", "NaN", "-Infinity", "0.0"] {
        let fault = seconds(&body(none)).unwrap_err();
        assert_eq!(
            (fault.kind, &*fault.msg, fault.ctx),
            (
                "greater_than",
                "Input should be greater than 0",
                Some(json!({"gt": 0.0}))
            ),
            "{none}"
        );
    }
    assert_eq!(kind(seconds(&body("[]"))), "float_type");
    assert_eq!(kind(seconds(&body("null"))), "float_type");
    for odd in ["\"x\"", "\"\"", "\"1__0\"", "\"\\ud800\""] {
        assert_eq!(kind(seconds(&body(odd))), "float_parsing", "{odd}");
    }
}

/// Reads a list and an object of texts, and returns what is wrong as it is sent.
fn listed(text: &str) -> Value {
    let mut form = Form::body(Json::check(text).unwrap()).unwrap();
    let [argv, env] = form.fields(["argv", "env"]);
    let bounds = Length { least: 1, most: 3 };
    let no_space = |text: &str| {
        if text.contains(' ') {
            Err(Fault::value("no space, please"))
        } else {
            Ok(())
        }
    };
    let _placeholders = (
        form.optional(&argv, |given| texts(given, bounds, no_space)),
        form.or_default(&env, |given| text_map(given, 2, |name, _| no_space(name))),
    );
    match form.finish() {
        Ok(()) => Value::Null,
        Err(Failure::Invalid(faults)) => serde_json::to_value(faults).unwrap(),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn lists_and_objects_of_texts_are_refused_in_pydantics_words() {
    assert_eq!(
        listed(r#"{"argv":["a",""],"env":{"A":"x y"}}"#),
        Value::Null
    );
    for (text, fault) in [
        (
            r#"{"argv":[]}"#,
            json!({"type": "too_short", "loc": ["body", "argv"], "input": [],
                "msg": "List should have at least 1 item after validation, not 0",
                "ctx": {"field_type": "List", "min_length": 1, "actual_length": 0}}),
        ),
        (
            r#"{"argv":["a","b","c","d"]}"#,
            json!({"type": "too_long", "loc": ["body", "argv"], "input": ["a", "b", "c", "d"],
                "msg": "List should have at most 3 items after validation, not 4",
                "ctx": {"field_type": "List", "max_length": 3, "actual_length": 4}}),
        ),
        (
            r#"{"argv":"ls"}"#,
            json!({"type": "list_type", "loc": ["body", "argv"], "input": "ls",
                "msg": "Input should be a valid list"}),
        ),
        (
            r#"{"argv":["a",7]}"#,
            json!({"type": "string_type", "loc": ["body", "argv", 1], "input": 7,
                "msg": "Input should be a valid string"}),
        ),
        (
            r#"{"argv":["a b"]}"#,
            json!({"type": "value_error", "loc": ["body", "argv", 0], "input": "a b",
                "msg": "Value error, no space, please", "ctx": {"error": {}}}),
        ),
        (
            r#"{"env":null}"#,
            json!({"type": "dict_type", "loc": ["body", "env"], "input": null,
                "msg": "Input should be a valid dictionary"}),
        ),
        (
            r#"{"env":{"A":1}}"#,
            json!({"type": "string_type", "loc": ["body", "env", "A"], "input": 1,
                "msg": "Input should be a valid string"}),
        ),
        (
            r#"{"env":{"A":"","B":"","C":""}}"#,
            json!({"type": "too_long", "loc": ["body", "env"], "input": {"A": "", "B": "", "C": ""},
                "msg": "Dictionary should have at most 2 items after validation, not 3",
                "ctx": {"field_type": "Dictionary", "max_length": 2, "actual_length": 3}}),
        ),
    ] {
        assert_eq!(listed(text), json!([fault]), "{text}");
    }
}

#[test]
fn only_so_many_faults_of_one_list_are_told() {
    let json = format!("[{}]", vec!["1"; 1000].join(","));
    let bounds = Length {
        least: 0,
        most: 1000,
    };
    let faults = texts(&body(&json), bounds, |_| Ok(())).unwrap_err();
    assert_eq!(faults.len(), lists::FAULTS_MAX);
}
