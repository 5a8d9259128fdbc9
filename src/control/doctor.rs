//! Has the verifier look at the whole service.

use super::Control;
use crate::verify::{Stock, Subjects, examine};
use crate::wire::doctor::DoctorReport;

impl Control {
    /// Checks the invariants over store, engine and disk; changes nothing.
    ///
    /// Answers within seconds, also where the engine is frozen: what could not be seen
    /// is told as unknown.
    pub async fn doctor(&self) -> DoctorReport {
        let _examination = self.0.examination.lock().await;
        let lost = self.0.loop_.engine.lost();
        let subjects = Subjects {
            stock: Stock::Open(self.0.books.store.clone()),
            engine: self.0.host.engine.clone(),
            engine_lost: lost.map(|why| why.to_string()),
            cgroups: self.0.host.cgroups.clone(),
            place: self.0.disk.clone(),
            capacity: self.0.policy.get().capacity.clone(),
            clock: self.0.books.clock.clone(),
        };
        examine(&subjects).await.report()
    }
}

#[cfg(test)]
mod tests {
    use crate::control::testing::without_engine;
    use crate::secret::Secret;

    #[tokio::test]
    async fn the_doctor_answers_without_an_engine_and_writes_nothing() {
        let control = without_engine(Secret::new("t".to_owned()));
        let revision = control.0.books.store.revision();
        let report = control.doctor().await;
        let level = |name: &str| {
            let mut named = report.findings.iter().filter(|one| one.name == name);
            named.next().map(|one| one.level.as_str())
        };
        assert_eq!(level("engine_unseen"), Some("unknown"), "{report}");
        assert_eq!(level("containers_unseen"), Some("unknown"), "{report}");
        assert_eq!(level("ceilings_hold"), Some("ok"), "{report}");
        assert_eq!(control.0.books.store.revision(), revision);
    }
}
