//! Looks twice where something is broken, or cannot be seen for the moment, since what
//! moves looks so.

use std::time::Duration;

use super::finding::{Finding, Page};
use super::kind::{Kind, Level};
use super::look::Subjects;
use super::verify;

/// How long after a broken invariant was seen it is looked for again.
pub const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Looks at everything, judges it, and changes nothing.
///
/// Ends within twice the waits for engine and disk, and the pause between two looks.
pub async fn examine(subjects: &Subjects) -> Page {
    let first = verify(&subjects.look().await);
    let is_broken = |finding: &Finding| finding.kind.level() == Level::Fail;
    // Groups go with their containers, also between two readings of one look.
    let is_fleeting = |finding: &Finding| is_broken(finding) || finding.kind == Kind::GroupsUnseen;
    if !first.iter().any(is_fleeting) {
        return Page {
            at: subjects.clock.now(),
            findings: first,
        };
    }
    tokio::time::sleep(AGAIN_AFTER).await;
    let mut second = verify(&subjects.look().await);
    second.retain(|finding| {
        !is_broken(finding) || first.iter().any(|before| before.is_same(finding))
    });
    Page {
        at: subjects.clock.now(),
        findings: second,
    }
}
