//! Laws of the frames about files: however they are cut they are the same, each has one
//! form, and nothing breaks them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::protocol::files::{
    Ask, CHUNK_BYTES_MAX, DEPTH_MAX, Entry, FOUND_BYTES_MAX, Kind, Links, Meta, PATH_BYTES_MAX,
    Page, Say, Tag, Trouble, Until,
};
use super::protocol::frame::{BadFrame, Decoder, HEAD_BYTES};

fn path() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255_u8, 1..60)
}

fn found() -> impl Strategy<Value = Vec<u8>> {
    let name = vec(b'0'..=255_u8, 1..12);
    vec(name, 1..4).prop_map(|names| names.join(&b'/'))
}

fn links() -> impl Strategy<Value = Links> {
    prop_oneof![Just(Links::Followed), Just(Links::Kept)]
}

fn tag() -> impl Strategy<Value = Tag> {
    let times = (any::<i64>(), any::<u32>(), any::<i64>(), any::<u32>());
    (any::<(u64, u64, u64)>(), times).prop_map(|((device, inode, size), times)| Tag {
        device,
        inode,
        size,
        modified_secs: times.0,
        modified_nanos: times.1,
        changed_secs: times.2,
        changed_nanos: times.3,
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::File),
        Just(Kind::Dir),
        Just(Kind::Link),
        Just(Kind::Other)
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        any::<u32>().prop_map(Trouble::Errno),
        any::<u64>().prop_map(Trouble::TooLarge),
        Just(Trouble::IsDirectory),
        Just(Trouble::Special),
        Just(Trouble::Changed),
        Just(Trouble::Kernel),
        Just(Trouble::Bad),
    ]
}

fn asks() -> impl Strategy<Value = Ask> {
    let until = prop_oneof![Just(Until::End), Just(Until::Zero)];
    prop_oneof![
        (path(), links(), any::<u64>()).prop_map(|(path, links, most)| Ask::Open {
            path,
            links,
            most
        }),
        (any::<u64>(), any::<u64>(), until).prop_map(|(from, most, until)| Ask::Range {
            from,
            most,
            until
        }),
        any::<(u64, u64, u64, u64)>().prop_map(|(from, offset, limit, most)| Ask::Lines {
            from,
            offset,
            limit,
            most
        }),
        (path(), links()).prop_map(|(path, links)| Ask::Stat { path, links }),
        path().prop_map(|path| Ask::List { path }),
        (path(), any::<bool>(), 0..=DEPTH_MAX).prop_map(|(path, hidden, depth)| Ask::Walk {
            path,
            hidden,
            depth
        }),
        any::<u32>().prop_map(|entries| Ask::More { entries }),
        (path(), any::<bool>()).prop_map(|(path, parents)| Ask::Draft { path, parents }),
        vec(any::<u8>(), 0..300).prop_map(Ask::Data),
        proptest::option::of(tag()).prop_map(|expected| Ask::Commit { expected }),
    ]
}

fn says() -> impl Strategy<Value = Say> {
    let numbers = any::<(u32, u32, u32)>();
    let meta = (kind(), numbers, tag()).prop_map(|(kind, (mode, uid, gid), tag)| Meta {
        kind,
        mode,
        uid,
        gid,
        tag,
    });
    let target = proptest::option::of(vec(any::<u8>(), 0..40));
    let entry =
        (found(), kind(), any::<u64>(), target).prop_map(|(path, kind, size, target)| Entry {
            path,
            kind,
            size,
            target,
        });
    let page = prop_oneof![
        Just(Page::More),
        Just(Page::Last),
        Just(Page::TooDeep),
        Just(Page::TooMany)
    ];
    prop_oneof![
        trouble().prop_map(Say::Failed),
        Just(Say::Done),
        meta.prop_map(Say::Meta),
        vec(any::<u8>(), 0..300).prop_map(Say::Bytes),
        any::<(u64, bool)>().prop_map(|(lines, whole)| Say::Counted { lines, whole }),
        entry.prop_map(Say::Entry),
        (found(), trouble()).prop_map(|(path, why)| Say::Left { path, why }),
        page.prop_map(Say::Page),
    ]
}

/// Reads all frames of bytes that come in two pieces.
fn cut<T>(
    bytes: &[u8],
    at: usize,
    parse: impl Fn(&[u8]) -> Result<T, BadFrame>,
) -> Result<Vec<T>, BadFrame> {
    let (mut decoder, mut got) = (Decoder::default(), Vec::new());
    for piece in [&bytes[..at], &bytes[at..]] {
        decoder.push(piece);
        while let Some(one) = decoder.next_as(&parse)? {
            got.push(one);
        }
    }
    Ok(got)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn requests_and_answers_are_the_same_however_they_arrive(
        asked in vec(asks(), 1..4),
        said in vec(says(), 1..4),
    ) {
        let (mut asks, mut says) = (Vec::new(), Vec::new());
        for ask in &asked {
            ask.put(&mut asks).unwrap();
        }
        for say in &said {
            say.put(&mut says).unwrap();
        }
        for at in 0..=asks.len() {
            prop_assert_eq!(&cut(&asks, at, Ask::parse).unwrap(), &asked, "cut at {}", at);
        }
        for at in 0..=says.len() {
            prop_assert_eq!(&cut(&says, at, Say::parse).unwrap(), &said, "cut at {}", at);
        }
    }

    #[test]
    fn a_part_of_a_request_or_an_answer_is_none(ask in asks(), say in says()) {
        let (mut asked, mut said) = (Vec::new(), Vec::new());
        ask.put(&mut asked).unwrap();
        say.put(&mut said).unwrap();
        for end in 0..asked.len() - HEAD_BYTES {
            prop_assert!(Ask::parse(&asked[HEAD_BYTES..HEAD_BYTES + end]).is_err());
        }
        for end in 0..said.len() - HEAD_BYTES {
            prop_assert!(Say::parse(&said[HEAD_BYTES..HEAD_BYTES + end]).is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8192))]

    #[test]
    fn any_bytes_are_one_form_of_something_or_an_error(
        kind in 0..12_u8,
        flags in (0..3_u8, 0..5_u8, 0..70_u8),
        rest in vec(any::<u8>(), 0..120),
    ) {
        let small = [kind, flags.0, flags.1, flags.2, 0, 0, 0];
        for body in [[&[kind], rest.as_slice()].concat(), [&small, rest.as_slice()].concat()] {
            let (mut again, mut said) = (Vec::new(), Vec::new());
            if let Ok(ask) = Ask::parse(&body) {
                ask.put(&mut again).unwrap();
                prop_assert_eq!(&again[HEAD_BYTES..], &body);
            }
            if let Ok(say) = Say::parse(&body) {
                say.put(&mut said).unwrap();
                prop_assert_eq!(&said[HEAD_BYTES..], &body);
            }
        }
    }
}

#[test]
fn what_is_longer_than_it_may_be_is_neither_sent_nor_read() {
    let mut out = b"kept".to_vec();
    let long = vec![b'x'; PATH_BYTES_MAX + 1];
    for path in [long, b"a\0b".to_vec(), Vec::new()] {
        let list = Ask::List { path };
        assert_eq!(list.put(&mut out), Err(BadFrame::Payload));
    }
    let data = Ask::Data(vec![0; CHUNK_BYTES_MAX + 1]);
    assert_eq!(data.put(&mut out), Err(BadFrame::Payload));
    assert_eq!(out, b"kept");
    let parsed = |say: &Say| {
        let mut bytes = Vec::new();
        say.put(&mut bytes).unwrap();
        Say::parse(&bytes[HEAD_BYTES..])
    };
    let bytes = Say::Bytes(vec![0; CHUNK_BYTES_MAX + 1]);
    assert_eq!(parsed(&bytes), Err(BadFrame::Payload));
    let entry = |path: &[u8]| {
        parsed(&Say::Entry(Entry {
            path: path.to_vec(),
            kind: Kind::File,
            size: 0,
            target: None,
        }))
    };
    assert!(entry(b"a/.b/..c").is_ok());
    for path in [
        &b""[..],
        b"/",
        b"/a",
        b"a/",
        b"a//b",
        b".",
        b"..",
        b"a/../b",
        b"a/./b",
        b"a\0b",
    ] {
        assert_eq!(entry(path), Err(BadFrame::Payload), "{path:?}");
    }
    assert!(entry(&vec![b'x'; FOUND_BYTES_MAX + 1]).is_err());
}
