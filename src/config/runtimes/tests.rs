//! Tests of both forms of the allowlist.

use proptest::prelude::*;

use super::*;

fn said(text: &str) -> Vec<String> {
    let faults = parse(text).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn the_compact_form_reads_sources_and_modifiers() {
    let found = parse(
        " b = img:1 , ,a=@coding; mem_limit=4g ;cpus=0.5;pids_limit=1_000;;\
         network_mode=bridge;description=to work = on,",
    )
    .unwrap();
    assert_eq!(found.first.as_str(), "b");
    let aliases: Vec<&str> = found.runtimes.keys().map(Alias::as_str).collect();
    assert_eq!(aliases, ["a", "b"]);
    let a = &found.runtimes[&Alias::parse("a").unwrap()];
    assert_eq!(
        a.source,
        Source::Config(Box::new(builtins::get("coding").unwrap()))
    );
    assert_eq!(a.description, "to work = on");
    assert_eq!(a.ceilings.mem_limit.as_ref().unwrap().as_str(), "4g");
    assert_eq!(a.ceilings.pids_limit, Some(1000));
    assert_eq!(a.ceilings.cpus, Some(Cpus::new(0.5).unwrap()));
    assert_eq!(a.ceilings.network_mode.as_deref(), Some("bridge"));
}

#[test]
fn the_last_of_a_repeated_alias_counts() {
    for text in ["a=x:1,b=y,a=x:2", r#"{"a":"x:1","b":"y","a":"x:2"}"#] {
        let found = parse(text).unwrap();
        assert_eq!(found.first.as_str(), "a");
        let a = &found.runtimes[&Alias::parse("a").unwrap()];
        assert_eq!(a.source, Source::Image("x:2".to_owned()), "{text}");
    }
}

#[test]
fn the_first_runtime_of_json_is_the_one_written_first() {
    let found = parse(r#"{"z": "img", "a": "img"}"#).unwrap();
    assert_eq!(found.first.as_str(), "z");
}

#[test]
fn json_takes_nested_configurations_and_numeric_texts() {
    let found = parse(
        r#"{"a": {"runtime": {"name": "own", "base_image": "debian:12", "packages": ["git"],
            "package_manager": "apt", "env_vars": {"K": "v"}}, "cpus": "1.5", "pids_limit": 9,
            "cpu_shares": null, "mem_limit": 8388608},
            "b": {"runtime": "go"}, "c": "@rust"}"#,
    )
    .unwrap();
    let a = &found.runtimes[&Alias::parse("a").unwrap()];
    let Source::Config(config) = &a.source else {
        panic!("a configuration was written");
    };
    assert_eq!((config.name.as_str(), config.packages.len()), ("own", 1));
    assert_eq!(a.ceilings.cpus, Some(Cpus::new(1.5).unwrap()));
    assert_eq!(a.ceilings.mem_limit.as_ref().unwrap().bytes(), 8 << 20);
    assert_eq!(a.ceilings.cpu_shares, None);
}

#[test]
fn every_fault_of_the_compact_form_is_said_in_the_documented_words() {
    let example = "Example: SANDBOXD_RUNTIMES=python=python:3.12-slim,\
                   data=@python-datascience;mem_limit=4g";
    let unset = "is set but names no runtime. Unset it to take the shipped allowlist.";
    let one_of = "A SandboxRuntime needs exactly one of image or runtime";
    for (text, wanted) in [
        (
            "python",
            format!("entry 'python' is not 'alias=image'. {example}"),
        ),
        (
            "=img",
            format!("entry '=img' is not 'alias=image'. {example}"),
        ),
        (
            "a=",
            format!("entry 'a=' names no image or runtime. {example}"),
        ),
        (
            "a=@",
            format!("entry 'a=@' names no image or runtime. {example}"),
        ),
        (
            "a=x;big",
            format!("modifier 'big' on 'a' is not 'field=value'. {example}"),
        ),
        (
            "a=x;cpus=two",
            "a.cpus='two' is not valid: it is not a number".to_owned(),
        ),
        (
            "a=x;cpus=nan",
            "a.cpus='nan' is not valid: write a positive number, as in 0.5".to_owned(),
        ),
        (
            "a=x;pids_limit=0",
            "a.pids_limit='0' is not valid: it is not from 1 to 4194304".to_owned(),
        ),
        ("a=x;runtime=go", format!("entry 'a' is invalid: {one_of}")),
        ("", format!("{unset} {example}")),
        (" , ", format!("{unset} {example}")),
    ] {
        assert_eq!(said(text), [wanted], "{text}");
    }
    for (text, wanted) in [
        (
            "a=x;memory=4g",
            "entry 'a' sets something SandboxRuntime does not have: 'memory'",
        ),
        (
            "a=@nosuch",
            "entry 'a' names the built-in runtime 'nosuch', which does not exist",
        ),
    ] {
        let found = said(text);
        assert!(
            found.len() == 1 && found[0].contains(wanted),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn every_fault_of_the_json_form_is_said_in_the_documented_words() {
    let one_of = "A SandboxRuntime needs exactly one of image or runtime";
    for (text, wanted) in [
        ("[1]", "as JSON must be an object of aliases".to_owned()),
        ("{}", "as JSON names no runtime".to_owned()),
        (
            r#"{"a": 1}"#,
            "entry 'a' must be an image string or an object".to_owned(),
        ),
        (r#"{"a": {}}"#, format!("entry 'a' is invalid: {one_of}")),
        (
            r#"{"a": {"image": 1}}"#,
            "a.image='1' is not valid: it is not a text".to_owned(),
        ),
        (
            r#"{"a": {"runtime": {"name": "x", "env_vars": {"K": 42}}}}"#,
            "entry 'a' has an invalid runtime: env_vars is not an object of texts".to_owned(),
        ),
        (
            r#"{"a": {"runtime": {}}}"#,
            "entry 'a' has an invalid runtime: missing field `name`".to_owned(),
        ),
    ] {
        assert_eq!(said(text), [wanted], "{text}");
    }
    for (text, wanted) in [
        (
            r#"{"a": {"runtime": "@go"}}"#,
            "names the built-in runtime '@go'",
        ),
        (r#"{"a": "x","#, "is not valid JSON: EOF"),
        (
            r#"{"a": {"runtime": {"name": "x", "pakages": []}}}"#,
            "has no field \"pakages\"",
        ),
    ] {
        let found = said(text);
        assert!(
            found.len() == 1 && found[0].contains(wanted),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn all_faults_are_said_at_once() {
    let found = said("a,b=,c=x;cpus=0;pids_limit=x,d=@nosuch");
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn an_allowlist_is_bounded() {
    let text: String = (0..=RUNTIMES_MAX)
        .map(|n| format!("a{n}=x,"))
        .collect::<Vec<_>>()
        .concat();
    assert_eq!(parse(&text), Err(vec![Fault::TooMany]));
}

/// One entry in both forms.
#[derive(Clone, Debug)]
struct Written {
    alias: String,
    source: String,
    fields: Vec<(&'static str, String)>,
}

impl Written {
    fn compact(&self) -> String {
        let fields: String = self
            .fields
            .iter()
            .map(|(field, value)| format!(";{field}={value}"))
            .collect::<Vec<_>>()
            .concat();
        format!("{}={}{fields}", self.alias, self.source)
    }

    fn json(&self) -> String {
        let mut object: serde_json::Map<String, Value> = self
            .fields
            .iter()
            .map(|(field, value)| ((*field).to_owned(), Value::from(value.as_str())))
            .collect();
        match self.source.strip_prefix('@') {
            Some(name) => object.insert("runtime".to_owned(), Value::from(name)),
            None => object.insert("image".to_owned(), Value::from(self.source.as_str())),
        };
        format!(
            "{}: {}",
            Value::from(self.alias.as_str()),
            Value::Object(object)
        )
    }
}

fn written() -> impl Strategy<Value = Written> {
    let source = prop_oneof![
        "[a-z]{1,8}:[0-9]{1,3}",
        Just("@go".to_owned()),
        Just("@coding".to_owned()),
        Just("@nosuch".to_owned()),
    ];
    let field = prop_oneof![
        ("[0-9]{1,4}[kmg]?").prop_map(|text| ("mem_limit", text)),
        ("[0-9]{1,2}(\\.[0-9])?").prop_map(|text| ("cpus", text)),
        ("-?[0-9_]{1,5}").prop_map(|text| ("pids_limit", text)),
        ("[a-z]{1,6}").prop_map(|text| ("network_mode", text)),
        ("[a-z =]{0,9}[a-z]").prop_map(|text| ("description", text.trim().to_owned())),
    ];
    let fields = prop::collection::vec(field, 0..4);
    ("[a-zA-Z0-9._é-]{1,6}", source, fields).prop_map(|(alias, source, fields)| Written {
        alias,
        source,
        fields,
    })
}

proptest! {
    #[test]
    fn no_text_panics_the_parser(text in "\\PC{0,60}", json in "[\\[{\":,a@}\\] 0-9]{0,40}") {
        drop(parse(&text));
        drop(parse(&format!("{{{json}")));
    }

    #[test]
    fn both_forms_of_one_catalogue_agree(entries in prop::collection::vec(written(), 1..6)) {
        let compact: Vec<String> = entries.iter().map(Written::compact).collect();
        let json: Vec<String> = entries.iter().map(Written::json).collect();
        let compact = parse(&compact.join(","));
        let json = parse(&format!("{{{}}}", json.join(",")));
        // Of a repeated alias JSON keeps the last only, faults of the others included.
        let mut aliases: Vec<&str> = entries.iter().map(|entry| entry.alias.as_str()).collect();
        aliases.sort_unstable();
        if aliases.windows(2).all(|pair| pair[0] != pair[1]) {
            prop_assert_eq!(compact, json);
        }
    }
}
