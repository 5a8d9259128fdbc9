//! Parses quantities as operators write them: sizes and shares of a processor.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Says why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    /// Not a size such as `512m`.
    #[error("{0:?} is not a size: write a number and one of b, k, m, g, t, as in 512m or 1.5g")]
    Size(String),
    /// Not a positive, finite number of processors.
    #[error("{0:?} is not a number of processors: write a positive number, as in 0.5 or 2")]
    Cpus(String),
}

/// A number of bytes that remembers how the operator wrote it.
///
/// Written as Docker has it: a number, then nothing or `b`, `k`, `m`, `g` or `t`
/// in either case, in powers of 1,024, with an optional `b` or `ib` behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize {
    text: String,
    bytes: u64,
}

impl ByteSize {
    /// Parses a size; zero is not one.
    pub fn parse(text: &str) -> Result<Self, InvalidQuantity> {
        let bad = || InvalidQuantity::Size(text.to_owned());
        let trimmed = text.trim().to_ascii_lowercase();
        let digits = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let shift = match unit.trim() {
            "" | "b" => 0u32,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad()),
        };
        let bytes = scaled(number, shift)
            .filter(|bytes| 0 < *bytes && *bytes <= u64::MAX >> 1)
            .ok_or_else(bad)?;
        Ok(Self {
            text: text.trim().to_owned(),
            bytes,
        })
    }

    /// Returns the number of bytes: at least 1 and at most 2^63 - 1.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what the operator wrote.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Multiplies a decimal text by a power of two without floating point.
fn scaled(number: &str, shift: u32) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || 9 < fraction.len() {
        return None;
    }
    let unit = 1u128 << shift;
    let parse = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            text.parse::<u128>().ok()
        }
    };
    let tens = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let total = parse(whole)?
        .checked_mul(unit)?
        .checked_add(parse(fraction)?.checked_mul(unit)? / tens)?;
    u64::try_from(total).ok()
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for ByteSize {
    type Error = InvalidQuantity;

    fn try_from(text: String) -> Result<Self, InvalidQuantity> {
        Self::parse(&text)
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.text
    }
}

/// A positive share of processors, counted in billionths as the engine counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Cpus(f64);

impl Cpus {
    /// The most processors that can be asked for.
    pub const CPUS_MAX: f64 = 4096.0;

    /// Checks a number: positive, finite and at most [`Cpus::CPUS_MAX`].
    pub fn new(cpus: f64) -> Result<Self, InvalidQuantity> {
        if (0.001..=Self::CPUS_MAX).contains(&cpus) {
            Ok(Self(cpus))
        } else {
            Err(InvalidQuantity::Cpus(cpus.to_string()))
        }
    }

    /// Returns the number of processors.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns billionths of a processor, the engine's `NanoCpus`.
    pub fn nanos(self) -> i64 {
        let nanos = std::time::Duration::from_secs_f64(self.0).as_nanos();
        i64::try_from(nanos).unwrap_or(i64::MAX)
    }
}

impl TryFrom<f64> for Cpus {
    type Error = InvalidQuantity;

    fn try_from(cpus: f64) -> Result<Self, InvalidQuantity> {
        Self::new(cpus)
    }
}

impl From<Cpus> for f64 {
    fn from(cpus: Cpus) -> Self {
        cpus.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_in_either_case() {
        for (text, bytes) in [
            ("1", 1),
            ("64m", 64 << 20),
            ("1G", 1 << 30),
            ("1.5g", 3 << 29),
            ("2kb", 2048),
            ("1TiB", 1 << 40),
        ] {
            let size = ByteSize::parse(text).unwrap();
            assert_eq!((size.bytes(), size.as_str()), (bytes, text));
        }
        for bad in [
            "",
            "0",
            "m",
            "-1",
            "1x",
            "banana",
            "1.2.3",
            "nan",
            "99999999t",
        ] {
            assert!(ByteSize::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn processors_are_positive_and_finite() {
        assert_eq!(Cpus::new(0.5).unwrap().nanos(), 500_000_000);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(Cpus::new(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_the_size_parser(text in ".{0,24}") {
            drop(ByteSize::parse(&text));
        }
    }
}
