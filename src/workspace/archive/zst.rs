//! Compresses and expands by zstd, a chunk at a time.
//!
//! What is packed is a row of frames, one for each megabyte, which every zstd tool reads
//! as one stream.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::refusal::ImportError;

/// So much is compressed into one frame.
const CHUNK_BYTES: u64 = 1 << 20;
/// A frame that wants more memory is refused; `zstd -19` wants as much as this.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Reads a source and gives it compressed.
#[derive(Debug)]
pub(super) struct Packer<R> {
    source: R,
    frame: Vec<u8>,
    n_taken: usize,
    has_ended: bool,
}

impl<R: Read> Packer<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            frame: Vec::new(),
            n_taken: 0,
            has_ended: false,
        }
    }

    pub(super) fn source(&self) -> &R {
        &self.source
    }
}

impl<R: Read> Read for Packer<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.frame.len() <= self.n_taken && !self.has_ended {
            let mut chunk = Vec::new();
            self.source
                .by_ref()
                .take(CHUNK_BYTES)
                .read_to_end(&mut chunk)?;
            self.has_ended = chunk.is_empty();
            self.n_taken = 0;
            self.frame = if self.has_ended {
                Vec::new()
            } else {
                compress_to_vec(chunk.as_slice(), CompressionLevel::Fastest)
            };
        }
        let mut rest = self.frame.get(self.n_taken..).unwrap_or_default();
        let n_read = rest.read(buffer)?;
        self.n_taken += n_read;
        Ok(n_read)
    }
}

/// Reads a compressed source and gives it expanded.
pub(super) struct Expander<R> {
    source: R,
    decoder: FrameDecoder,
    is_within: bool,
}

impl<R: BufRead> Expander<R> {
    pub(super) fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self {
            source,
            decoder,
            is_within: false,
        }
    }

    /// Goes on to the next frame, past what decoders have to skip; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let mut skipped = self.source.by_ref().take(length);
                    if io::copy(&mut skipped, &mut io::sink())? != length {
                        return Err(damaged());
                    }
                }
                Err(error) => return Err(refused(&error)),
            }
        }
    }

    fn is_checksum_right(&self) -> bool {
        let told = self.decoder.get_checksum_from_data();
        told.is_none() || told == self.decoder.get_calculated_checksum()
    }
}

impl<R: BufRead> Read for Expander<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_within && !self.next_frame()? {
                return Ok(0);
            }
            self.is_within = true;
            let missing = buffer.len().saturating_sub(self.decoder.can_collect());
            if missing != 0 && !self.decoder.is_finished() {
                let amount = BlockDecodingStrategy::UptoBytes(missing);
                self.decoder
                    .decode_blocks(&mut self.source, amount)
                    .map_err(|error| refused(&error))?;
            }
            let n_read = self.decoder.read(buffer)?;
            if n_read != 0 {
                return Ok(n_read);
            }
            if self.decoder.is_finished() {
                self.is_within = false;
                if !self.is_checksum_right() {
                    return Err(damaged());
                }
            }
        }
    }
}

/// An error of the source, which says more, is passed on as it is.
fn refused(error: &FrameDecoderError) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
                let inner: &ImportError = inner;
                return io::Error::other(inner.again());
            }
            return io::Error::from(error.kind());
        }
        cause = error.source();
    }
    damaged()
}

fn damaged() -> io::Error {
    io::Error::other(ImportError::Damaged("the compressed data"))
}
