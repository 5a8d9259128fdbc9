//! What the verifier found: one page, each line with its remedy.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::visible::is_hidden;

/// The answer of `GET /doctor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// The gravest level of all findings: `fail`, `unknown`, `warn` or `ok`.
    pub verdict: String,
    /// When it was looked, in epoch seconds.
    pub checked_at: f64,
    /// Check by check, the gravest of each first; at most a thousand.
    pub findings: Vec<DoctorFinding>,
    /// How many findings there are of each level, those left out included.
    pub counts: DoctorCounts,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorFinding {
    /// The invariant or the part that was checked, such as `I3` or `engine`.
    pub check: String,
    /// The stable name of the finding, such as `stray_container`.
    pub name: String,
    /// `ok`, `warn`, `fail`, or `unknown` where something could not be seen.
    pub level: String,
    /// The session, container or path that it is about.
    pub subject: Option<String>,
    /// What was found, for a person.
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// How many findings there are of each level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorCounts {
    /// Things that are as they should be, or worth knowing.
    pub ok: u64,
    /// Things that should be changed, though nothing is broken.
    pub warn: u64,
    /// Broken invariants.
    pub fail: u64,
    /// Things that could not be seen.
    pub unknown: u64,
}

impl fmt::Display for DoctorReport {
    /// Writes the page for a terminal: a finding a line, its remedy below it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let DoctorCounts {
            ok,
            warn,
            fail,
            unknown,
        } = self.counts;
        writeln!(
            f,
            "verdict: {} ({fail} fail, {unknown} unknown, {warn} warn, {ok} ok)",
            plain(&self.verdict)
        )
    }
}

impl fmt::Display for DoctorFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, check) = (plain(&self.level), plain(&self.check));
        write!(f, "{level:<8}{check:<9}{}", plain(&self.name))?;
        if let Some(subject) = &self.subject {
            write!(f, " [{}]", plain(subject))?;
        }
        write!(f, ": {}", plain(&self.detail))?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n{:17}-> {}", "", plain(remedy)),
            None => Ok(()),
        }
    }
}

/// Escapes what would move a terminal's cursor or forge another line.
fn plain(text: &str) -> String {
    text.chars().fold(String::new(), |mut plain, c| {
        if is_hidden(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
        plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_line_a_finding_and_its_remedy_below() {
        let finding = DoctorFinding {
            check: "I3".to_owned(),
            name: "stray_container".to_owned(),
            level: "fail".to_owned(),
            subject: Some("c1".to_owned()),
            detail: "no record\nexplains it".to_owned(),
            remedy: Some("wait".to_owned()),
        };
        let report = DoctorReport {
            verdict: "fail".to_owned(),
            checked_at: 1.5,
            findings: vec![finding],
            counts: DoctorCounts {
                fail: 1,
                ok: 2,
                ..DoctorCounts::default()
            },
        };
        expect_test::expect![[r"
            fail    I3       stray_container [c1]: no record\nexplains it
                             -> wait
            verdict: fail (1 fail, 0 unknown, 0 warn, 2 ok)
        "]]
        .assert_eq(&report.to_string());
    }
}
