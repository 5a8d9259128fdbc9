//! Has the verifier look at the whole service.

use super::Control;
use crate::cgroup::Cgroups;
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
            cgroups: Cgroups::default(),
            place: self.0.disk.clone(),
            capacity: self.0.policy.get().capacity.clone(),
            clock: self.0.books.clock.clone(),
        };
        examine(&subjects).await.report()
    }
}
