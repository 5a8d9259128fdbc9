//! Callers: what they ask, and what they are told.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::ledger::{Ask, path_of};
use super::scene::Scene;
use crate::control::queue::Patience;
use crate::control::request::{Attach, Open, WhenOpen};
use crate::control::{Control, Refusal};
use crate::id::{SessionId, Tenant};
use crate::session::record::Purge;

/// Callers of one daemon; those who still wait hear nothing when it dies.
pub(super) struct Callers {
    scene: Scene,
    control: Control,
    waiting: JoinSet<()>,
}

/// What a caller wants of an opening.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) id: SessionId,
    pub(super) tenant: Option<Tenant>,
    pub(super) attach: Attach,
    /// How long it waits at a ceiling.
    pub(super) patience: Duration,
}

impl Wish {
    /// An ordinary opening.
    pub(super) fn of(id: &SessionId) -> Self {
        Self {
            id: id.clone(),
            tenant: None,
            attach: Attach::Never,
            patience: Duration::ZERO,
        }
    }
}

impl Callers {
    pub(super) fn of(scene: &Scene, control: &Control) -> Self {
        Self {
            scene: scene.clone(),
            control: control.clone(),
            waiting: JoinSet::new(),
        }
    }

    /// Returns how many wait.
    pub(super) fn waiting(&mut self) -> usize {
        while let Some(done) = self.waiting.try_join_next() {
            done.expect("no caller panics");
        }
        self.waiting.len()
    }

    pub(super) fn open(&mut self, wish: Wish) {
        let (scene, control) = (self.scene.clone(), self.control.clone());
        let asked_at = scene.state().ledger.now();
        self.ask(wish.id.clone(), Ask::Open, async move {
            let open = Open {
                id: Some(wish.id.clone()),
                runtime: None,
                tenant: wish.tenant,
                attach: wish.attach,
            };
            let patience = Patience {
                longest: wish.patience,
                stopping: CancellationToken::new(),
            };
            let created = control.open(open, patience).await?;
            scene.tape.count("openings acknowledged");
            scene
                .state()
                .ledger
                .opened(&wish.id, &created.token, asked_at);
            Ok(())
        });
    }

    pub(super) fn close(&mut self, id: &SessionId) {
        let (control, closed) = (self.control.clone(), id.clone());
        self.ask(id.clone(), Ask::Close, async move {
            control.close(&closed, Purge::No).await
        });
    }

    pub(super) fn purge(&mut self, id: &SessionId, open: WhenOpen) {
        let (control, purged) = (self.control.clone(), id.clone());
        self.ask(id.clone(), Ask::Purge, async move {
            control.purge(&purged, open).await
        });
    }

    pub(super) fn hibernate(&mut self, id: &SessionId) {
        let (control, resting) = (self.control.clone(), id.clone());
        self.ask(id.clone(), Ask::Rest, async move {
            control.hibernate(&resting).await.map(drop)
        });
    }

    /// Uses a session for a while: a command that writes a file and goes on.
    pub(super) fn make_use(&mut self, id: &SessionId, file: u64, span: Duration) {
        let (scene, control, used) = (self.scene.clone(), self.control.clone(), id.clone());
        self.ask(id.clone(), Ask::Use, async move {
            let held = control.begin_use(&used).await?;
            scene.state().ledger.used(&used, 1);
            scene.tape.count("uses");
            let is_written = scene.write(&used, held.container(), file);
            scene
                .tape
                .note(&format!("  caller: in {used}, file {file} {is_written:?}"));
            sleep(span).await;
            scene.state().ledger.used(&used, -1);
            drop(held);
            Ok(())
        });
    }

    fn ask(
        &mut self,
        id: SessionId,
        ask: Ask,
        work: impl Future<Output = Result<(), Refusal>> + Send + 'static,
    ) {
        let scene = self.scene.clone();
        let asked_at = scene.state().ledger.ask(&id, ask);
        self.waiting.spawn(async move {
            let done = work.await;
            scene.state().ledger.answered(&id, ask, asked_at);
            let told = match done {
                Ok(()) => "done".to_owned(),
                Err(refusal) => in_short(&refusal),
            };
            scene.tape.note(&format!("  caller: {ask:?} {id}: {told}"));
        });
    }
}

/// What a refusal is called; its words may name keys, which chance makes.
fn in_short(refusal: &Refusal) -> String {
    let text = format!("{refusal:?}");
    let is_letter = |letter: char| letter.is_ascii_alphanumeric();
    text.chars()
        .take_while(|letter| is_letter(*letter))
        .collect()
}

/// Whether a command wrote its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Yes,
    /// The container has ended, or its directory was taken away.
    No,
}

impl Scene {
    /// Writes a file as a command in a container does.
    fn write(&self, id: &SessionId, container: &str, file: u64) -> Written {
        let mut state = self.state();
        let found = state.engine.running().find(|one| one.id == container);
        let Some(found) = found.cloned() else {
            return Written::No;
        };
        match found.workspace() {
            Some(workspace) => {
                let root = workspace
                    .ancestors()
                    .nth(2)
                    .expect("it is beneath the root");
                if std::fs::write(path_of(root, id, file), "x").is_err() {
                    return Written::No;
                }
            }
            None => state.engine.write(container, file),
        }
        state.ledger.wrote(id, file);
        Written::Yes
    }
}
