//! Splits the query of a request into decoded fields.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::api::validate::{Field, Given};

/// Finds fields of a query by name; the last of equal names wins.
pub(super) fn fields<'a, const N: usize>(
    query: &'a str,
    names: [&'static str; N],
) -> [Field<'a>; N] {
    names.map(|name| {
        let given = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .rfind(|(key, _)| decoded(key) == name)
            .map(|(_, value)| Given::Text(decoded(value)));
        Field::new(name, given)
    })
}

/// Finds the last value of a name, decoded.
pub(super) fn value<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .rfind(|(key, _)| decoded(key) == name)
        .map(|(_, value)| decoded(value))
}

fn decoded(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        let spaced = text.replace('+', " ");
        Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::validate::{Form, text};

    #[test]
    fn the_last_of_equal_names_wins_and_values_are_decoded() {
        let mut form = Form::query();
        let [a, b, c] = fields("a=1&b=x+y%2Bz&a=%C3%A4%FF&", ["a", "b", "c"]);
        assert_eq!(form.optional(&a, text).unwrap(), "ä\u{fffd}");
        assert_eq!(form.optional(&b, text).unwrap(), "x y+z");
        assert_eq!(form.optional(&c, text), None);
    }
}
