//! What a faulty or malicious peer may send: a precise error, the same for ever after, and nothing allocated for it.

use proptest::prelude::*;

use super::*;
use crate::pipe::kind;
use crate::wire::DecodeError;

const PLAIN: Setting = (false, Format::Consolidated);
const KINDS: Setting = (true, Format::Consolidated);
const PLAIN_LEAVES: Setting = (false, Format::LeafByLeaf);
const KINDS_LEAVES: Setting = (true, Format::LeafByLeaf);

/// Receives until the pipe ends, with this error, after `whole` TensorDicts.
#[track_caller]
fn assert_refused(end: &mut End, whole: usize, text: &str) {
    for _ in 0..whole {
        drop(end.recv().expect("well-formed"));
    }
    let error = end.recv().map(drop).expect_err(text);
    assert_eq!(error.to_string(), text);
    assert!(error.is_final());
    end.assert_finished(text);
}

#[track_caller]
fn refused(setting: Setting, packets: &[Packet], text: &str) {
    let (mut end, link) = end_and_link(setting);
    packets.iter().for_each(|packet| feed(&link, packet));
    assert_refused(&mut end, 0, text);
}

fn broke(what: &str) -> String {
    format!("the peer broke the protocol: {what}")
}

fn wrong(what: &str) -> String {
    format!("the peer sent something wrong: {what}")
}

fn plain(bytes: &[u8]) -> Packet {
    packet(Kind::PLAIN, bytes)
}

#[test]
fn flags_that_do_not_exist() {
    for flag in [2, 7, 255] {
        let text = wrong(&format!("unknown message flag {flag:#04x}; is the peer sending leaf by leaf?"));
        refused(PLAIN, &[plain(&[flag])], &text);
    }
    refused(PLAIN, &[plain(&[1])], &wrong("the peer refers to a schema that it has not sent"));
    refused(KINDS, &[packet(kind::SAME_SCHEMA, [])], &wrong("the peer refers to a schema that it has not sent"));
    refused(KINDS, &[packet(kind::SAME_SCHEMA, [0; 16])], &wrong("the peer refers to a schema that it has not sent"));
}

#[test]
fn heads_of_other_lengths() {
    for setting in [PLAIN, PLAIN_LEAVES] {
        for len in [0, 2, 7, 9, 16] {
            let due = "the beginning of a message was due, and a message without a kind";
            refused(setting, &[plain(&vec![0; len])], &broke(&format!("{due} of {len} bytes came")));
        }
        for len in [17, 1 << 20] {
            let text = broke("between two messages at most 16 bytes were due, and a longer message came");
            refused(setting, &[plain(&vec![0; len])], &text);
        }
    }
    for (setting, head, name) in
        [(KINDS, kind::NEW_SCHEMA, "a new schema"), (KINDS_LEAVES, kind::LEAF_BY_LEAF, "a leaf-by-leaf message")]
    {
        for len in [0, 1, 7, 9, 16] {
            let text = broke(&format!("the length of a header was due, and {name} of {len} bytes came"));
            refused(setting, &[packet(head, vec![0; len])], &text);
        }
    }
}

#[test]
fn kinds_that_begin_nothing() {
    for setting in [KINDS, KINDS_LEAVES] {
        for (kind, name) in [
            (Kind::PLAIN, "a message without a kind"),
            (kind::HEADER, "a header"),
            (kind::BODY, "a body"),
            (Kind(9), "a message of an unknown kind"),
            (Kind(127), "a message of an unknown kind"),
        ] {
            let text = broke(&format!("the beginning of a message was due, and {name} of 8 bytes came"));
            refused(setting, &[packet(kind, [0; 8])], &text);
        }
    }
}

#[test]
fn the_other_mode_is_named() {
    let ours_is = |ours: bool| {
        let theirs = !ours;
        broke(&format!(
            "it sends with consolidated={theirs} and this end receives with consolidated={ours}; \
             both ends need the same"
        ))
    };
    for (ours, theirs) in [(PLAIN, PLAIN_LEAVES), (PLAIN_LEAVES, PLAIN), (KINDS, KINDS_LEAVES), (KINDS_LEAVES, KINDS)] {
        refused(ours, &recorded(theirs, &[a(1.0)])[0], &ours_is(ours.1 == Format::Consolidated));
    }
    refused(KINDS_LEAVES, &[packet(kind::SAME_SCHEMA, [0; 8])], &ours_is(false));
}

#[test]
fn lengths_of_metadata() {
    for len in [0, 1, 7, 9] {
        let due = "the length of the metadata was due, and a message without a kind";
        refused(PLAIN, &[plain(&[0]), plain(&vec![0; len])], &broke(&format!("{due} of {len} bytes came")));
    }
    let text = broke("in the middle of a message at most 16 bytes were due, and a longer message came");
    refused(PLAIN, &[plain(&[0]), plain(&[0; 17])], &text);
}

/// The messages up to the length of the metadata.
fn opening((kinds, format): Setting, len: u64) -> Vec<Packet> {
    let len = len.to_le_bytes();
    match (kinds, format) {
        (false, Format::Consolidated) => vec![plain(&[0]), plain(&len)],
        (false, _) => vec![plain(&len)],
        (true, Format::Consolidated) => vec![packet(kind::NEW_SCHEMA, len)],
        (true, _) => vec![packet(kind::LEAF_BY_LEAF, len)],
    }
}

fn announced(setting: Setting, metadata: &[u8]) -> Vec<Packet> {
    let mut packets = opening(setting, metadata.len() as u64);
    packets.push(packet(if setting.0 { kind::HEADER } else { Kind::PLAIN }, metadata));
    packets
}

#[test]
fn metadata_beyond_the_limit_are_refused_before_they_come() {
    for setting in SETTINGS {
        for len in [1001, 1 << 40, u64::MAX] {
            let (mut end, link) = end_and_link_within(setting, Limits::default().max_metadata_bytes(1000));
            opening(setting, len).iter().for_each(|packet| feed(&link, packet));
            let limit = "exceed the limit of 1000 (Limits::max_metadata_bytes)";
            assert_refused(&mut end, 0, &wrong(&format!("metadata of {len} bytes {limit}")));
        }
        let text = wrong(&format!(
            "metadata of {} bytes exceed the limit of {} (Limits::max_metadata_bytes)",
            u64::MAX,
            256 << 20
        ));
        refused(setting, &opening(setting, u64::MAX), &text);
    }
}

#[test]
fn metadata_of_another_length_than_announced() {
    for setting in SETTINGS {
        let header = if setting.0 { kind::HEADER } else { Kind::PLAIN };
        let name = kind::name(header);
        for len in [0, 1, 39] {
            let mut packets = opening(setting, 40);
            packets.push(packet(header, vec![b' '; len]));
            refused(setting, &packets, &broke(&format!("the metadata was due, and {name} of {len} bytes came")));
        }
        let mut packets = opening(setting, 40);
        packets.push(packet(header, vec![b' '; 41]));
        let text = "in the middle of a message at most 40 bytes were due, and a longer message came";
        refused(setting, &packets, &broke(text));
        if setting.0 {
            let mut packets = opening(setting, 40);
            packets.push(packet(kind::BODY, [0; 40]));
            refused(setting, &packets, &broke("the metadata was due, and a body of 40 bytes came"));
        }
    }
}

#[test]
fn metadata_that_are_no_metadata() {
    for setting in SETTINGS {
        for metadata in [&b""[..], b"{", b"[]", b"{}x", b"{\"cls\": \"\xff\"}"] {
            let (mut end, link) = end_and_link(setting);
            announced(setting, metadata).iter().for_each(|packet| feed(&link, packet));
            let error = end.recv().map(drop).expect_err("not metadata");
            let Error::Decode { ref source, .. } = error else { panic!("{error}") };
            assert!(matches!(**source, DecodeError::Json { .. }), "{metadata:?}: {source:?}");
            assert!(error.is_final());
            end.assert_finished(&error.to_string());
        }
    }
}

#[test]
fn storages_beyond_the_limit_are_refused_before_they_come() {
    let metadata = |len: u64| {
        format!(
            r#"{{"cls": "TensorDict", "non_tensors": {{}}, "leaves": {{"x": ["torch.uint8", [{len}], 0, {len}, 0]}}, "cls_metadata": {{"device": null, "names": [], "batch_size": [], "is_locked": false}}, "_total_bytes": {len}, "_device": "cpu"}}"#
        )
    };
    let header = |len: u64| {
        format!(
            r#"{{"keys": ["x"], "dtypes": ["torch.uint8"], "shapes": [[{len}]], "batch_size": [], "unbatched": [], "non_tensors": []}}"#
        )
    };
    for setting in SETTINGS {
        // Nothing could be allocated for the second.
        for len in [1008, 1 << 62] {
            let (mut end, link) = end_and_link_within(setting, Limits::default().max_storage_bytes(1007));
            let text = if setting.1 == Format::Consolidated { metadata(len) } else { header(len) };
            announced(setting, text.as_bytes()).iter().for_each(|packet| feed(&link, packet));
            let limit = "exceeds the limit of 1007 (Limits::max_storage_bytes)";
            assert_refused(&mut end, 0, &wrong(&format!("a storage of {len} bytes {limit}")));
        }
    }
}

#[test]
fn bodies_of_another_length_than_the_metadata_say() {
    for setting in SETTINGS {
        let good = recorded(setting, &[a(1.0)]).concat();
        let (last, start) = good.split_last().expect("messages");
        let due = if setting.1 == Format::Consolidated { "the storage" } else { "a leaf" };
        let (name, len) = (kind::name(last.kind), last.bytes.len());
        for other in [0, 1, len - 1] {
            let mut packets = start.to_vec();
            packets.push(packet(last.kind, &last.bytes[..other]));
            refused(setting, &packets, &broke(&format!("{due} was due, and {name} of {other} bytes came")));
        }
        let mut packets = start.to_vec();
        packets.push(packet(last.kind, vec![0; len + 1]));
        let text = format!("in the middle of a message at most {len} bytes were due, and a longer message came");
        refused(setting, &packets, &broke(&text));
        if setting.0 {
            let mut packets = start.to_vec();
            packets.push(packet(kind::SAME_SCHEMA, &*last.bytes));
            let came = format!("a message of the schema in force of {len} bytes came");
            refused(setting, &packets, &broke(&format!("{due} was due, and {came}")));
        }
    }
}

#[test]
fn storages_of_the_schema_in_force_of_another_length() {
    for setting in [PLAIN, KINDS] {
        let good = recorded(setting, &[a(1.0), a(2.0)]);
        for (len, text) in [
            (0, "the storage was due, and {} of 0 bytes came"),
            (23, "the storage was due, and {} of 23 bytes came"),
            (25, "{} at most 24 bytes were due, and a longer message came"),
        ] {
            let (mut end, link) = end_and_link(setting);
            good[0].iter().for_each(|packet| feed(&link, packet));
            let (last, start) = good[1].split_last().expect("messages");
            start.iter().for_each(|packet| feed(&link, packet));
            link.send_raw(last.kind, &vec![0; len]);
            let place = match (len == 25, setting.0) {
                (true, true) => "between two messages",
                (true, false) => "in the middle of a message",
                (false, _) => kind::name(last.kind),
            };
            assert_refused(&mut end, 1, &broke(&text.replace("{}", place)));
        }
    }
}

#[test]
fn a_value_that_rust_cannot_hold_costs_its_messages_only() {
    let metadata = br#"{"cls": "TensorDict", "non_tensors": {"s": ["lone \ud800", [], null]}, "leaves": {"a": ["torch.float32", [2], 0, 8, 0]}, "cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false}, "_total_bytes": 8, "_device": "cpu"}"#;
    let header = br#"{"keys": ["a"], "dtypes": ["torch.float32"], "shapes": [[2]], "batch_size": [], "unbatched": [], "non_tensors": [["s", "lone \ud800"]]}"#;
    for setting in SETTINGS {
        let (mut end, link) = end_and_link(setting);
        let body = packet(if setting.0 { kind::BODY } else { Kind::PLAIN }, [0; 8]);
        let consolidated = setting.1 == Format::Consolidated;
        let lost = announced(setting, if consolidated { metadata } else { header });
        let again = match setting {
            KINDS => vec![packet(kind::SAME_SCHEMA, [0; 8])],
            PLAIN => vec![plain(&[1]), plain(&[0; 8])],
            _ => lost.iter().chain([&body]).cloned().collect(),
        };
        let good = recorded(setting, &[a(1.0), a(2.0)]);
        let packets = [&good[0][..], &lost, std::slice::from_ref(&body), &again, &good[0], &good[1]].concat();
        packets.iter().for_each(|packet| feed(&link, packet));

        let mut into = a(9.0).consolidate();
        assert!(end.recv().expect("well-formed") == a(1.0));
        for lost in [end.recv().map(drop), end.recv_into(&mut into).map(drop)] {
            let error = lost.expect_err("a lone surrogate");
            let text = ": a string with a lone surrogate, which a Rust string cannot hold";
            assert!(error.to_string().ends_with(text), "{setting:?}: {error}");
            assert!(!error.is_final());
        }
        assert!(into == a(9.0), "left as it was");
        assert!(end.recv().expect("in step") == a(1.0));
        assert!(end.recv().expect("in step") == a(2.0));
        end.send(&a(3.0)).expect("usable");

        // They count as received, so that a goodbye after them is in order.
        if setting.0 {
            link.send_raw(kind::GOODBYE, &counts(5, 1));
            assert!(end.recv().expect_err("closed").is_closed());
        }
    }
}

/// Anything: bytes, or the start of something that a pipe would send.
fn any_packet() -> impl Strategy<Value = Packet> {
    let kinds = (0..10_u8).prop_map(Kind);
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        (0..300_u64).prop_map(|len| len.to_le_bytes().to_vec()),
        (0..2_u8).prop_map(|flag| vec![flag]),
        Just(vec![0; 24]),
    ];
    (kinds, bytes).prop_map(|(kind, bytes)| Packet { kind, bytes })
}

proptest! {
    /// A well-formed stream into which anything is mixed: no panic, and the first final error stays.
    #[test]
    fn nothing_that_comes_is_fatal_to_the_process(
        which in 0..SETTINGS.len(),
        noise in prop::collection::vec((0..20_usize, any_packet()), 0..4),
        damage in prop::option::of((0..20_usize, 0..400_usize, any::<u8>())),
    ) {
        let setting = SETTINGS[which];
        let mut packets = recorded(setting, &[a(1.0), a(2.0), b(3), a(4.0)]).concat();
        if let Some((packet, byte, value)) = damage {
            let count = packets.len();
            let bytes = &mut packets[packet % count].bytes;
            if let Some(byte) = byte.checked_rem(bytes.len()) {
                bytes[byte] = value;
            }
        }
        for (place, packet) in noise {
            let packet = if setting.0 { packet } else { Packet { kind: Kind::PLAIN, ..packet } };
            packets.insert(place % (packets.len() + 1), packet);
        }
        let (mut end, link) = end_and_link_within(setting, Limits::default().max_storage_bytes(1 << 16));
        packets.iter().for_each(|packet| feed(&link, packet));
        loop {
            match end.poll() {
                Ok(_) => {}
                Err(error) if error.is_timeout() => break,
                Err(error) if error.is_final() && error.is_closed() => break,
                Err(error) if error.is_final() => {
                    end.assert_finished(&error.to_string());
                    break;
                }
                Err(_) => {}
            }
        }
    }
}
