//! Reads the path that a request is about: text, or bytes in base64.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use crate::api::error::Failure;
use crate::api::query;
use crate::api::routes::{Param, ParamKind};
use crate::api::validate::{self, Fault, Field, Form, Given};
use crate::control::files::GivenPath;

/// The parameters of a query that name a path.
pub(super) const PATH: Param = Param {
    name: "path",
    about: "The path, relative to the work directory or absolute; required, or path_b64",
    kind: ParamKind::Text,
};
pub(super) const PATH_B64: Param = Param {
    name: "path_b64",
    about: "The bytes of the path in base64, instead of path; for names that are not UTF-8",
    kind: ParamKind::Text,
};
pub(super) const PATH_QUERY: &[Param] = &[PATH, PATH_B64];

/// With padding or without.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the path of a body or a query, which is there once.
pub(super) fn required<'a>(form: &mut Form<'a>, [path, b64]: &[Field<'a>; 2]) -> GivenPath {
    if !b64.is_given() {
        return form.required(path, validate::text).into();
    }
    optional(form, &[path.clone(), b64.clone()]).unwrap_or_default()
}

/// Reads a path that may be left out.
pub(super) fn optional<'a>(form: &mut Form<'a>, [path, b64]: &[Field<'a>; 2]) -> Option<GivenPath> {
    if path.is_given() && b64.is_given() {
        form.refuse(
            b64,
            Fault::value("name it by path or by path_b64, not by both"),
        );
        return None;
    }
    if b64.is_given() {
        return form.optional(b64, bytes).map(GivenPath::of);
    }
    form.optional(path, validate::text).map(GivenPath::from)
}

fn bytes(given: &Given<'_>) -> Result<Vec<u8>, Fault> {
    let text = validate::text(given)?;
    // The alphabet for URLs is taken too, and the space that a query makes of a plus.
    let standard: String = text
        .chars()
        .map(|digit| match digit {
            '-' | ' ' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    LENIENT
        .decode(standard)
        .map_err(|_| Fault::value("it is not base64"))
}

/// Reads the path of a query.
pub(super) fn of_query(text: &str) -> Result<GivenPath, Failure> {
    let mut form = Form::query();
    let fields = query::fields(text, ["path", "path_b64"]);
    let path = required(&mut form, &fields);
    form.finish()?;
    Ok(path)
}
