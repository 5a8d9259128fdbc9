//! Laws of the frames: however they are cut they are the same, and nothing breaks them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::protocol::frame::{
    BadFrame, Decoder, FRAME_BYTES_MAX, Frame, HEAD_BYTES, INPUT_BYTES_MAX, Input,
};
use super::protocol::output::{Head, Output, Packer, Record, Stream};

fn frames() -> impl Strategy<Value = Frame> {
    let bytes = || vec(any::<u8>(), 0..300);
    let input = (any::<u64>(), "[0-9a-f]{32}", any::<bool>(), bytes()).prop_map(
        |(ask, run, ends, bytes)| Input {
            ask,
            run,
            ends,
            bytes,
        },
    );
    prop_oneof![
        bytes().prop_map(|bytes| Frame::Message(bytes.into())),
        bytes().prop_map(|bytes| Frame::Output(bytes.into())),
        input.prop_map(Frame::Input),
    ]
}

fn records() -> impl Strategy<Value = Record> {
    let stream = prop_oneof![Just(Stream::Out), Just(Stream::Err)];
    let parts = (any::<u64>(), stream, any::<u64>(), vec(any::<u8>(), 0..100));
    parts.prop_map(|(seq, stream, offset, bytes)| Record {
        seq,
        stream,
        offset,
        bytes: bytes.into(),
    })
}

fn outputs() -> impl Strategy<Value = Output> {
    let gap = proptest::option::of(any::<(u64, u64)>());
    let end = proptest::option::of(vec(any::<u8>(), 0..100));
    let parts = (any::<u64>(), gap, vec(records(), 0..8), end);
    parts.prop_map(|(ask, gap, records, end)| Output {
        ask,
        gap,
        records,
        end,
    })
}

fn decode(decoder: &mut Decoder, into: &mut Vec<Frame>) -> Result<(), BadFrame> {
    while let Some(frame) = decoder.next()? {
        into.push(frame);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn frames_are_the_same_however_they_arrive(
        sent in vec(frames(), 1..4),
        pieces in vec(1..200_usize, 1..8),
    ) {
        let mut bytes = Vec::new();
        for frame in &sent {
            frame.put(&mut bytes).unwrap();
        }
        for cut in 0..=bytes.len() {
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for piece in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(piece);
                decode(&mut decoder, &mut got).unwrap();
            }
            prop_assert_eq!(&got, &sent, "cut at {}", cut);
        }
        let (mut decoder, mut got) = (Decoder::default(), Vec::new());
        let mut rest = bytes.as_slice();
        for size in pieces.iter().cycle() {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            decoder.push(piece);
            decode(&mut decoder, &mut got).unwrap();
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&got, &sent);
        let (mut decoder, mut got) = (Decoder::default(), Vec::new());
        let mut rest = bytes.as_slice();
        for size in pieces.iter().cycle() {
            let room = decoder.room();
            let spare = room.capacity() - room.len();
            prop_assert!(0 < spare, "a read has somewhere to put what it takes");
            let (piece, after) = rest.split_at((*size).min(rest.len()).min(spare));
            room.extend_from_slice(piece);
            decode(&mut decoder, &mut got).unwrap();
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn an_answer_is_the_same_after_its_journey(output in outputs(), split in 0..100_usize) {
        prop_assert_eq!(Output::unpack(output.pack().into()).unwrap(), output.clone());
        let mut frame = b"before".to_vec();
        let mut packer = Packer::begin(&mut frame, output.ask, output.gap);
        for record in &output.records {
            let head = Head { seq: record.seq, stream: record.stream, offset: record.offset };
            let (left, right) = record.bytes.split_at(split.min(record.bytes.len()));
            packer.record(head, [left, right]);
        }
        packer.finish(output.end.as_deref()).unwrap();
        let mut whole = b"before".to_vec();
        Frame::Output(output.pack().into()).put(&mut whole).unwrap();
        prop_assert_eq!(frame, whole);
    }

    #[test]
    fn a_part_of_an_answer_is_no_answer(output in outputs(), at in any::<prop::sample::Index>()) {
        let mut packed = output.pack();
        packed.truncate(at.index(packed.len()));
        // An end has no length of its own: a shorter one is for its JSON to refuse.
        if let Ok(other) = Output::unpack(packed.into()) {
            prop_assert!(output.end.is_some() && other.records == output.records);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_are_frames_or_an_error_and_nothing_is_kept_for_long(
        pieces in vec(vec(any::<u8>(), 0..600), 0..6),
    ) {
        let mut decoder = Decoder::default();
        let (mut pushed, mut taken) = (0, 0);
        for piece in &pieces {
            decoder.push(piece);
            pushed += piece.len();
            let mut got = Vec::new();
            let end = decode(&mut decoder, &mut got);
            taken += got.iter().map(size).sum::<usize>();
            prop_assert!(taken <= pushed);
            if end.is_err() {
                prop_assert!(decoder.next().is_err(), "an error stays");
                break;
            }
        }
    }

    #[test]
    fn any_bytes_after_a_true_length_are_a_frame_or_an_error(
        kind in 0..5_u8,
        payload in vec(any::<u8>(), 0..200),
    ) {
        let length = u32::try_from(payload.len() + 1).unwrap();
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend_from_slice(&payload);
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        if let Ok(frame) = decoder.next() {
            let mut again = Vec::new();
            frame.expect("it is whole").put(&mut again).unwrap();
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error_and_take_no_more_than_they_are(
        payload in vec(any::<u8>(), 0..600),
        flags in 0..4_u8,
        count in 0..4_u8,
    ) {
        let mut likely = payload.clone();
        for (at, byte) in [(8, flags), (9, count)] {
            if let Some(place) = likely.get_mut(at) {
                *place = byte;
            }
        }
        for payload in [payload, likely] {
            if let Ok(output) = Output::unpack(payload.clone().into()) {
                let bytes: usize = output.records.iter().map(|one| one.bytes.len()).sum();
                prop_assert!(bytes <= payload.len());
                prop_assert_eq!(output.pack(), payload);
            }
        }
    }
}

fn size(frame: &Frame) -> usize {
    let mut bytes = Vec::new();
    frame.put(&mut bytes).unwrap();
    bytes.len()
}

#[test]
fn a_frame_is_refused_by_its_length_before_it_is_there() {
    for length in [0, FRAME_BYTES_MAX + 1, usize::try_from(u32::MAX).unwrap()] {
        let mut decoder = Decoder::default();
        decoder.push(&u32::try_from(length).unwrap().to_le_bytes());
        assert_eq!(decoder.next(), Err(BadFrame::Length(length)));
    }
    let mut out = b"kept".to_vec();
    let long = Frame::Message(vec![0; FRAME_BYTES_MAX].into());
    assert_eq!(
        long.put(&mut out),
        Err(BadFrame::Length(FRAME_BYTES_MAX + 1))
    );
    let mut packer = Packer::begin(&mut out, 1, None);
    let head = Head {
        seq: 0,
        stream: Stream::Out,
        offset: 0,
    };
    packer.record(head, [&vec![0; FRAME_BYTES_MAX], &[]]);
    assert!(packer.finish(None).is_err());
    assert_eq!(out, b"kept");
}

#[test]
fn the_longest_frame_passes_in_small_pieces_and_its_memory_is_given_back() {
    let frame = Frame::Message(vec![7; FRAME_BYTES_MAX - 1].into());
    let mut bytes = Vec::new();
    frame.put(&mut bytes).unwrap();
    assert_eq!(bytes.len(), HEAD_BYTES + FRAME_BYTES_MAX);
    let (mut decoder, mut got) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(4096) {
        decoder.push(piece);
        decode(&mut decoder, &mut got).unwrap();
    }
    assert_eq!(got, [frame]);
    let input = Input {
        ask: 1,
        run: "0".repeat(32),
        ends: false,
        bytes: vec![0; INPUT_BYTES_MAX + 1],
    };
    assert_eq!(
        Frame::Input(input).put(&mut Vec::new()),
        Err(BadFrame::Payload)
    );
}
