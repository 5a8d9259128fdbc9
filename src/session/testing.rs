//! Good values for tests to start from.

use std::collections::BTreeMap;

use super::record::{Marks, Record, Spec};
use crate::clock::Timestamp;
use crate::id::{Alias, Nonce, SessionId};
use crate::policy::{Catalogue, Ceilings, Home, Policy, Runtime, Source, Terms};

/// The image that live tests run on.
pub(crate) const IMAGE: &str = "sandboxd-test/busybox:latest";

pub(crate) fn runtime() -> Runtime {
    Runtime {
        source: Source::Image(IMAGE.to_owned()),
        description: String::new(),
        ceilings: Ceilings::default(),
        keep_awake: crate::policy::KeepAwake::No,
        users: crate::policy::Users::Own,
    }
}

pub(crate) fn terms() -> Terms {
    let alias = Alias::parse("bb").unwrap();
    Terms {
        catalogue: Catalogue::new(BTreeMap::from([(alias.clone(), runtime())]), alias).unwrap(),
        ..crate::policy::sample::terms()
    }
}

pub(crate) fn policy() -> Policy {
    Policy::new(terms(), Home::Host).unwrap()
}

pub(crate) fn record(id: &str) -> Record {
    let now = Timestamp::from_secs(1_700_000_000);
    Record {
        spec: Spec {
            id: SessionId::parse(id).unwrap(),
            alias: Alias::parse("bb").unwrap(),
            runtime: runtime(),
            tenant: None,
            nonce: Nonce::random(),
            opened_at: now,
            order: 1,
        },
        marks: Marks {
            generation: 1,
            last_used: now,
            parked: None,
            closed: None,
            slept: None,
        },
    }
}
