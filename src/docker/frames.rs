//! Splits the multiplexed output of an exec into pieces of stdout and stderr.
//!
//! A frame is a header of eight bytes, then its payload:
//!
//! ```text
//! stream (0, 1 or 2)   0 0 0   length, u32 big-endian   payload
//! ```
//!
//! The payload is handed on as it arrives: nothing is allocated for a length that
//! a frame claims, and a frame of four gibibytes costs no more than a small one.

use bytes::{Buf as _, Bytes};

const HEADER_BYTES: usize = 8;

/// Where output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output; a long frame comes in several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it came from.
    pub stream: Stream,
    /// What was written; never empty.
    pub data: Bytes,
}

/// Says why bytes are not a stream of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The header names a stream that is not defined.
    #[error("the header of a frame names stream {0}")]
    UnknownStream(u8),
    /// The stream ended inside a header or a payload.
    #[error("the stream ended inside a frame")]
    Truncated,
}

/// Decodes frames from pieces that break anywhere.
#[derive(Debug, Default)]
pub struct Decoder {
    header: [u8; HEADER_BYTES],
    filled: usize,
    payload: Option<(Stream, usize)>,
}

impl Decoder {
    /// Takes the next piece of output from the front of `input`.
    ///
    /// `None` means that `input` is used up. After an error the stream cannot be
    /// followed any further.
    pub fn decode(&mut self, input: &mut Bytes) -> Result<Option<Frame>, BadFrame> {
        loop {
            if let Some((stream, left)) = self.payload {
                if input.is_empty() {
                    return Ok(None);
                }
                let data = input.split_to(left.min(input.len()));
                let left = left.saturating_sub(data.len());
                self.payload = (0 < left).then_some((stream, left));
                return Ok(Some(Frame { stream, data }));
            }
            while let Some(slot) = self.header.get_mut(self.filled) {
                if input.is_empty() {
                    return Ok(None);
                }
                *slot = input.get_u8();
                self.filled += 1;
            }
            self.filled = 0;
            self.payload = begun(self.header)?;
        }
    }

    /// Checks that the stream may end here.
    pub fn finish(&self) -> Result<(), BadFrame> {
        if self.filled == 0 && self.payload.is_none() {
            Ok(())
        } else {
            Err(BadFrame::Truncated)
        }
    }
}

/// What a header announces; nothing for an empty payload.
fn begun(header: [u8; HEADER_BYTES]) -> Result<Option<(Stream, usize)>, BadFrame> {
    let [kind, _, _, _, a, b, c, d] = header;
    let stream = match kind {
        // Zero is echoed input, which the engine's own client shows as output.
        0 | 1 => Stream::Stdout,
        2 => Stream::Stderr,
        other => return Err(BadFrame::UnknownStream(other)),
    };
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))
        .expect("a pointer has at least 32 bits on every host of an engine");
    Ok((0 < length).then_some((stream, length)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(frames: &[(Stream, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (stream, data) in frames {
            bytes.extend([if *stream == Stream::Stdout { 1 } else { 2 }, 0, 0, 0]);
            bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }

    /// Decodes pieces and joins neighbours of one stream, as a reader sees them.
    fn decoded(pieces: &[&[u8]]) -> Result<Vec<(Stream, Vec<u8>)>, BadFrame> {
        let mut decoder = Decoder::default();
        let mut seen: Vec<(Stream, Vec<u8>)> = Vec::new();
        for piece in pieces {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(frame) = decoder.decode(&mut input)? {
                assert!(!frame.data.is_empty());
                match seen.last_mut() {
                    Some((stream, data)) if *stream == frame.stream => data.extend(frame.data),
                    _ => seen.push((frame.stream, frame.data.to_vec())),
                }
            }
            assert!(input.is_empty());
        }
        decoder.finish()?;
        Ok(seen)
    }

    fn frames() -> impl Strategy<Value = Vec<(Stream, Vec<u8>)>> {
        let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
        prop::collection::vec((stream, prop::collection::vec(any::<u8>(), 0..40)), 0..6)
    }

    proptest! {
        #[test]
        fn a_stream_split_at_any_byte_decodes_the_same(frames in frames()) {
            let bytes = encoded(&frames);
            let whole = decoded(&[&bytes]).unwrap();
            for at in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(at);
                prop_assert_eq!(decoded(&[head, tail]).unwrap(), whole.clone());
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(decoded(&single).unwrap(), whole);
        }

        #[test]
        fn a_stream_that_ends_inside_a_frame_is_truncated(frames in frames()) {
            let bytes = encoded(&frames);
            let mut edges = vec![0];
            for (_, data) in &frames {
                edges.push(edges.last().unwrap() + HEADER_BYTES + data.len());
            }
            for at in 0..bytes.len() {
                let end = decoded(&[&bytes[..at]]).map(|_| ());
                let expected = if edges.contains(&at) { Ok(()) } else { Err(BadFrame::Truncated) };
                prop_assert_eq!(end, expected);
            }
        }

        #[test]
        fn no_bytes_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(decoded(&[&bytes]));
        }
    }

    #[test]
    fn a_stream_that_is_not_defined_is_refused() {
        assert_eq!(
            decoded(&[&[3, 0, 0, 0, 0, 0, 0, 1, b'x']]),
            Err(BadFrame::UnknownStream(3))
        );
        assert_eq!(
            decoded(&[b"Oops, no header"]),
            Err(BadFrame::UnknownStream(b'O'))
        );
    }

    #[test]
    fn a_claimed_length_costs_nothing_before_its_bytes_arrive() {
        let mut decoder = Decoder::default();
        let mut input = Bytes::from_static(&[1, 0, 0, 0, 255, 255, 255, 255, b'x']);
        let frame = decoder.decode(&mut input).unwrap().unwrap();
        assert_eq!(frame.data, Bytes::from_static(b"x"));
        assert_eq!(decoder.decode(&mut input), Ok(None));
    }
}
