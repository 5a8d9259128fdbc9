//! Makes findings, and a page of them.

use std::fmt::Display;

use super::kind::{Kind, Level};
use crate::clock::Timestamp;
use crate::wire::doctor::{DoctorCounts, DoctorFinding, DoctorReport};

/// Findings that a page shows; the gravest are kept.
pub const FINDINGS_MAX: usize = 1_000;

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// The session, container or path that it is about.
    pub subject: Option<String>,
    /// What was found, for a person.
    pub detail: String,
}

impl Finding {
    /// Makes a finding about the service as a whole.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            subject: None,
            detail: detail.into(),
        }
    }

    /// Makes a finding about one thing.
    pub fn about(kind: Kind, subject: impl Display, detail: impl Into<String>) -> Self {
        Self {
            subject: Some(subject.to_string()),
            ..Self::new(kind, detail)
        }
    }

    /// Returns whether another finding is the same, in whatever words.
    pub fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.subject == other.subject
    }
}

impl From<&Finding> for DoctorFinding {
    fn from(finding: &Finding) -> Self {
        let remedy = finding.kind.remedy();
        Self {
            check: finding.kind.check().to_owned(),
            name: finding.kind.name().to_owned(),
            level: finding.kind.level().as_str().to_owned(),
            subject: finding.subject.clone(),
            detail: finding.detail.clone(),
            remedy: (!remedy.is_empty()).then(|| remedy.to_owned()),
        }
    }
}

/// Everything that was found at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// When it was looked.
    pub at: Timestamp,
    /// What was found.
    pub findings: Vec<Finding>,
}

impl Page {
    /// Returns the gravest level of all findings.
    pub fn verdict(&self) -> Level {
        let levels = self.findings.iter().map(|finding| finding.kind.level());
        levels.max().unwrap_or(Level::Unknown)
    }

    /// Puts the page on the wire.
    pub fn report(&self) -> DoctorReport {
        let mut kept: Vec<&Finding> = self.findings.iter().collect();
        kept.sort_by_key(|finding| (std::cmp::Reverse(finding.kind.level()), *finding));
        kept.truncate(FINDINGS_MAX);
        // In the order of the table, which goes check by check.
        kept.sort_by_key(|finding| {
            let level = std::cmp::Reverse(finding.kind.level());
            (place(finding.kind.check()), level, *finding)
        });
        let count = |level| {
            let of_level = |finding: &&Finding| finding.kind.level() == level;
            let count = self.findings.iter().filter(of_level).count();
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        DoctorReport {
            verdict: self.verdict().as_str().to_owned(),
            checked_at: self.at.secs_f64(),
            findings: kept.into_iter().map(DoctorFinding::from).collect(),
            counts: DoctorCounts {
                ok: count(Level::Ok),
                warn: count(Level::Warn),
                fail: count(Level::Fail),
                unknown: count(Level::Unknown),
            },
        }
    }
}

/// The place of a check on the page.
fn place(check: &str) -> Option<usize> {
    Kind::ALL.iter().position(|kind| kind.check() == check)
}
