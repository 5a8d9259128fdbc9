//! Reports a configuration: what holds, where it came from, and what it may cost.

use std::fmt::Write as _;

use tabled::builder::Builder;
use tabled::settings::{Padding, Style};

use super::Loaded;
use super::settings::SETTINGS;
use super::syntax::printable;
use crate::policy::{Policy, describe};
use crate::wire::service::RuntimePolicy;

/// Characters of the longest value in a table.
const CELL_CHARS_MAX: usize = 60;

/// Writes the report that `sandboxd check` prints; shows no secret.
pub fn report(loaded: &Loaded) -> String {
    let config = &loaded.config;
    let default = config.policy.catalogue.default_alias();
    let mut text = String::from("Settings\n");
    text.push_str(&settings_table(loaded));
    write!(
        text,
        "\n\nRuntimes (a session that names none gets {default})\n"
    )
    .expect("a String takes everything");
    text.push_str(&runtimes_table(loaded));
    text.push_str("\n\nMemory\n  ");
    text.push_str(&worst_case(&config.policy));
    text.push('\n');
    if !loaded.warnings.is_empty() {
        text.push_str("\nWarnings\n");
        for warning in &loaded.warnings {
            text.push_str("  ");
            text.push_str(&printable(warning));
            text.push('\n');
        }
    }
    text
}

/// Says how much memory all sandboxes together may take at worst.
pub fn worst_case(policy: &Policy) -> String {
    let mut largest = None;
    for (alias, runtime) in policy.catalogue.iter() {
        let Some(mem) = policy.ceilings_of(runtime).mem_limit else {
            return format!("unbounded: runtime {alias} has no mem_limit");
        };
        if largest
            .as_ref()
            .is_none_or(|(bytes, _)| *bytes < mem.bytes())
        {
            largest = Some((mem.bytes(), format!("{mem}, the most that {alias} may use")));
        }
    }
    let (bytes, most) = largest.expect("a catalogue is never empty");
    let Some(sandboxes) = policy.capacity.max_sessions else {
        return format!(
            "unbounded: SANDBOXD_MAX_SESSIONS is empty, and each sandbox may use {most}"
        );
    };
    let total = u128::from(sandboxes) * u128::from(bytes);
    let tmpfs = match &policy.interior.tmpfs_size {
        Some(_) => "; what lies in /tmp is part of it",
        None => "",
    };
    format!(
        "at worst {}: {sandboxes} sandboxes (SANDBOXD_MAX_SESSIONS) of {most}{tmpfs}",
        human_bytes(total)
    )
}

fn settings_table(loaded: &Loaded) -> String {
    let mut rows = Builder::new();
    rows.push_record(["SETTING", "VALUE", "FROM"]);
    for setting in SETTINGS.iter() {
        if let Some(provenance) = loaded.provenance.get(setting.name) {
            rows.push_record([
                setting.name.to_owned(),
                cell(&provenance.shown),
                cell(&provenance.origin.to_string()),
            ]);
        }
    }
    layout(rows)
}

fn runtimes_table(loaded: &Loaded) -> String {
    let described = describe(&loaded.config.policy, loaded.config.prewarm);
    let mut rows = Builder::new();
    rows.push_record([
        "RUNTIME",
        "IMAGE",
        "BUILD",
        "MEMORY",
        "+SWAP",
        "CPUS",
        "SHARES",
        "PIDS",
        "NETWORK",
        "OCI RUNTIME",
    ]);
    // Both come from the catalogue and have its order.
    for (row, (_, runtime)) in described
        .runtimes
        .iter()
        .zip(loaded.config.policy.catalogue.iter())
    {
        let build = if runtime.needs_build() { "yes" } else { "no" };
        rows.push_record(runtime_cells(row, build));
    }
    layout(rows)
}

fn runtime_cells(row: &RuntimePolicy, build: &str) -> [String; 10] {
    let text = |value: &Option<String>| cell(value.as_deref().unwrap_or("-"));
    let number = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    [
        cell(&row.alias),
        cell(&row.image),
        build.to_owned(),
        text(&row.mem_limit),
        text(&row.memswap_limit),
        number(row.cpus.map(|cpus| cpus.to_string())),
        number(row.cpu_shares.map(|shares| shares.to_string())),
        number(row.pids_limit.map(|pids| pids.to_string())),
        text(&row.network_mode),
        text(&row.oci_runtime),
    ]
}

fn layout(rows: Builder) -> String {
    let table = rows
        .build()
        .with(Style::empty())
        .with(Padding::new(0, 2, 0, 0))
        .to_string();
    let lines: Vec<String> = table
        .lines()
        .map(|line| format!("  {}", line.trim_end()))
        .collect();
    lines.join("\n")
}

fn cell(text: &str) -> String {
    let mut shown: String = text.chars().take(CELL_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    printable(&shown)
}

/// Writes bytes in the largest unit that leaves at least 1, with one decimal at most.
fn human_bytes(bytes: u128) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut unit, mut name) = (1u128, "B");
    for next in units.into_iter().skip(1) {
        match unit.checked_mul(1024) {
            Some(larger) if larger <= bytes => (unit, name) = (larger, next),
            Some(_) | None => break,
        }
    }
    // Rounded up, since this is a worst case.
    let tenths = (bytes * 10).div_ceil(unit);
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        tenth => format!("{}.{tenth} {name}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Host, loaded};
    use super::*;
    use crate::policy::{Home, sample};

    #[test]
    fn bytes_are_written_for_people_and_rounded_up() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (3 << 29, "1.5 GiB"),
            ((1 << 30) + 1, "1.1 GiB"),
            (20 << 30, "20 GiB"),
            (u128::from(u64::MAX) * 1_000_000, "16000000 EiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    #[test]
    fn the_worst_case_counts_the_largest_runtime() {
        let said = worst_case(&sample::policy());
        assert_eq!(
            said,
            "at worst 20 GiB: 20 sandboxes (SANDBOXD_MAX_SESSIONS) of 1g, the most that coding \
             may use; what lies in /tmp is part of it"
        );
        let host = Host::with(&[("SANDBOXD_RUNTIMES", "a=x;mem_limit=512m,b=x;mem_limit=1.5g")]);
        let said = worst_case(&loaded(&host).config.policy);
        assert!(said.starts_with("at worst 30 GiB: 20 sandboxes"), "{said}");
        assert!(said.contains("of 1.5g, the most that b may use"), "{said}");
    }

    #[test]
    fn what_has_no_bound_says_why() {
        let mut terms = sample::terms();
        terms.capacity.max_sessions = None;
        let policy = Policy::new(terms.clone(), Home::Host).unwrap();
        assert!(worst_case(&policy).starts_with("unbounded: SANDBOXD_MAX_SESSIONS is empty"));
        terms.ceilings.mem_limit = None;
        let policy = Policy::new(terms, Home::Host).unwrap();
        assert_eq!(
            worst_case(&policy),
            "unbounded: runtime coding has no mem_limit"
        );
    }

    #[test]
    fn the_report_shows_every_setting_and_no_secret() {
        let host = Host::with(&[("SANDBOXD_PORT", "9000"), ("SANDBOXD_MAX_SESSION", "3")]);
        let report = report(&loaded(&host));
        for setting in SETTINGS.iter() {
            assert!(report.contains(setting.name), "{}", setting.name);
        }
        assert!(!report.contains(Host::TOKEN), "{report}");
        let row = |name: &str| {
            let line = report
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            line.unwrap()
                .split_whitespace()
                .skip(1)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(row("SANDBOXD_TOKEN "), "(set) environment");
        assert_eq!(row("SANDBOXD_PORT "), "9000 environment");
        assert_eq!(row("SANDBOXD_HOST "), "127.0.0.1 default");
        assert_eq!(
            row("coding "),
            "python:3.12-slim + 0 package(s) yes 1g - 2 - 512 bridge -"
        );
        assert_eq!(row("node "), "node:20-slim no 1g - 2 - 512 none -");
        assert!(
            report.contains("did you mean SANDBOXD_MAX_SESSIONS"),
            "{report}"
        );
    }

    #[test]
    fn no_value_moves_the_cursor() {
        let host = Host::with(&[("SANDBOXD_WORKSPACE_ROOT", "/a\u{1b}[2J\nb")]);
        let report = report(&loaded(&host));
        assert!(!report.contains('\u{1b}') && report.contains("/a\\u{1b}[2J\\nb"));
    }
}
