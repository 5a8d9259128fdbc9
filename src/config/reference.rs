//! Writes the reference of all settings, the generated part of `docs/configuration.md`.

use std::fmt::{self, Write as _};

use super::settings::{Group, Preset, SETTINGS, Setting};

/// The line in front of the generated part.
pub const BEGIN: &str = "<!-- begin of the reference; generated from src/config/settings -->\n";
/// The line behind it.
pub const END: &str = "<!-- end of the reference -->\n";

/// Writes the reference in Markdown: a table and notes for each group of settings.
pub fn markdown() -> String {
    let mut text = String::new();
    for group in Group::ALL {
        write_group(&mut text, group).expect("a String takes everything");
    }
    text
}

fn write_group(text: &mut String, group: Group) -> fmt::Result {
    let rows = || SETTINGS.iter().filter(|setting| setting.group == group);
    writeln!(text, "\n### {}\n", group.title())?;
    writeln!(text, "| setting | default | accepts |")?;
    writeln!(text, "| --- | --- | --- |")?;
    for row in rows() {
        writeln!(
            text,
            "| {} | {} | {} |",
            names(row),
            default(row),
            accepts(row)
        )?;
    }
    text.push('\n');
    for row in rows() {
        writeln!(text, "- **`{}`**: {} {}", row.name, row.doc, row.nuance)?;
        writeln!(text, "  Example: `{}={}`", row.name, row.example)?;
        writeln!(text, "  Shown by `{}`", row.shown_by)?;
    }
    Ok(())
}

fn names(row: &Setting) -> String {
    let flag = row.flag.map(|flag| format!(", `--{flag}`"));
    format!("`{}`{}", row.name, flag.unwrap_or_default())
}

fn default(row: &Setting) -> String {
    let own = match row.default {
        Preset::Is(text) => format!("`{text}`"),
        Preset::Nothing(consequence) => consequence.to_owned(),
        Preset::Required => "required".to_owned(),
    };
    match row.instead {
        Some(name) => format!("`${name}`, else {own}"),
        None => own,
    }
}

fn accepts(row: &Setting) -> String {
    let empty = if row.kind.may_be_empty() {
        ", or empty for none"
    } else {
        ""
    };
    format!("{}{empty}", row.kind.accepts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_reference_is_the_generated_one() {
        let file = expect_test::expect_file!["../../docs/configuration.md"];
        let committed = file.data();
        let (before, rest) = committed.split_once(BEGIN).expect("the reference begins");
        let (_, after) = rest.split_once(END).expect("the reference ends");
        file.assert_eq(&format!("{before}{BEGIN}{}\n{END}{after}", markdown()));
    }

    #[test]
    fn every_setting_is_in_the_reference_with_an_example() {
        let text = markdown();
        for setting in SETTINGS.iter() {
            let example = format!("Example: `{}={}`", setting.name, setting.example);
            assert!(text.contains(&example), "{example}");
        }
    }
}
