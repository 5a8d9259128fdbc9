//! Reads what is asked of a sweep and passes it on.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Response, Uri};

use crate::api::auth::ServiceCaller;
use crate::api::error::Failure;
use crate::api::routes::{Param, ParamKind};
use crate::api::validate::{self, Form};
use crate::api::{query, reply};
use crate::control::Sweep;

pub(super) const SWEEP_QUERY: &[Param] = &[
    Param {
        name: "dry_run",
        about: "Whether nothing is done but look; a sweep is made when left out",
        kind: ParamKind::Flag,
    },
    Param {
        name: "within",
        about: "Of a dry run: list what is due within so many seconds; until the next sweep when \
            left out",
        kind: ParamKind::Number(0, None),
    },
];

pub(super) async fn sweep(caller: ServiceCaller, uri: Uri) -> Result<Response<Body>, Failure> {
    let mut form = Form::query();
    let [dry_run, within] = query::fields(uri.query().unwrap_or_default(), ["dry_run", "within"]);
    let is_dry = form.or_default(&dry_run, validate::flag);
    let within = form.optional(&within, |given| validate::at_least(given, 0));
    form.finish()?;
    let sweep = if is_dry {
        Sweep::Look(within.map(Duration::from_secs))
    } else {
        Sweep::Act
    };
    Ok(reply::json(&caller.control().sweep(sweep).await?))
}
