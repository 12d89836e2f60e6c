//! Which messages carry which TensorDicts, to the byte.

use super::*;
use crate::pipe::kind;

/// The metadata of [`a`] and [`b`], as Python writes them.
const A: &str = r#"{"cls": "TensorDict", "non_tensors": {}, "leaves": {"x": ["torch.float32", [2, 2], 0, 16, 0]}, "cls_metadata": {"device": null, "names": [null], "batch_size": [2], "is_locked": false}, "n": {"cls": "TensorDict", "non_tensors": {}, "leaves": {"y": ["torch.uint8", [2], 16, 24, 6]}, "cls_metadata": {"device": null, "names": [null], "batch_size": [2], "is_locked": false}}, "_total_bytes": 24, "_device": "cpu"}"#;
const B: &str = r#"{"cls": "TensorDict", "non_tensors": {"name": ["b", [], null]}, "leaves": {"y": ["torch.int64", [4], 0, 32, 0]}, "cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false}, "_total_bytes": 32, "_device": "cpu"}"#;
const EMPTY: &str = r#"{"cls": "TensorDict", "non_tensors": {}, "leaves": {}, "cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false}, "_total_bytes": 0, "_device": "cpu"}"#;

/// The leaf-by-leaf headers of the same.
const A_HEADER: &str = r#"{"keys": [["n", "y"], "x"], "dtypes": ["torch.uint8", "torch.float32"], "shapes": [[2], [2, 2]], "batch_size": [2], "unbatched": [], "non_tensors": []}"#;
const EMPTY_HEADER: &str =
    r#"{"keys": [], "dtypes": [], "shapes": [], "batch_size": [], "unbatched": [], "non_tensors": []}"#;

fn a_bytes(x: f32) -> Vec<u8> {
    let mut bytes: Vec<u8> = [x, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    bytes.extend([7, 9, 0, 0, 0, 0, 0, 0]);
    bytes
}

fn b_bytes(y: i64) -> Vec<u8> {
    [y, 2, 3, 4].iter().flat_map(|y| y.to_le_bytes()).collect()
}

fn plain(bytes: impl Into<Vec<u8>>) -> Packet {
    packet(Kind::PLAIN, bytes)
}

/// The messages of a schema that a Python receiver does not have yet.
fn plain_new(metadata: &str, storage: Vec<u8>) -> Vec<Packet> {
    vec![plain([0]), plain(length(metadata.len())), plain(metadata), plain(storage)]
}

/// The same between two of ours.
fn kinds_new(metadata: &str, storage: Vec<u8>) -> Vec<Packet> {
    vec![packet(kind::NEW_SCHEMA, length(metadata.len())), packet(kind::HEADER, metadata), packet(kind::BODY, storage)]
}

#[test]
fn towards_python_the_format_is_pythons_to_the_letter() {
    let sent = recorded((false, Format::Consolidated), &[a(1.0), b(5), a(2.0), a(3.0), empty(), empty(), b(6)]);
    assert_eq!(sent[0], plain_new(A, a_bytes(1.0)));
    assert_eq!(sent[1], plain_new(B, b_bytes(5)));
    assert_eq!(sent[2], plain_new(A, a_bytes(2.0)), "a schema that came back is sent again");
    assert_eq!(sent[3], [plain([1]), plain(a_bytes(3.0))]);
    assert_eq!(sent[4], plain_new(EMPTY, vec![]), "a storage of no bytes is sent, too");
    assert_eq!(sent[5], [plain([1]), plain([])]);
    assert_eq!(sent[6], plain_new(B, b_bytes(6)));
}

#[test]
fn between_two_of_ours_the_kind_says_what_follows() {
    let sent = recorded((true, Format::Consolidated), &[a(1.0), b(5), a(2.0), a(3.0), empty(), empty()]);
    assert_eq!(sent[0], kinds_new(A, a_bytes(1.0)));
    assert_eq!(sent[1], kinds_new(B, b_bytes(5)));
    assert_eq!(sent[2], kinds_new(A, a_bytes(2.0)));
    assert_eq!(sent[3], [packet(kind::SAME_SCHEMA, a_bytes(3.0))], "one message, not two");
    assert_eq!(sent[4], kinds_new(EMPTY, vec![]));
    assert_eq!(sent[5], [packet(kind::SAME_SCHEMA, [])]);
}

#[test]
fn leaf_by_leaf_each_message_stands_alone() {
    for (kinds, head, header, body) in
        [(false, Kind::PLAIN, Kind::PLAIN, Kind::PLAIN), (true, kind::LEAF_BY_LEAF, kind::HEADER, kind::BODY)]
    {
        let sent = recorded((kinds, Format::LeafByLeaf), &[a(1.0), a(1.0), empty()]);
        let expected = [
            packet(head, length(A_HEADER.len())),
            packet(header, A_HEADER),
            packet(body, [7, 9]),
            packet(body, &a_bytes(1.0)[..16]),
        ];
        assert_eq!(sent[0], expected);
        assert_eq!(sent[1], expected);
        assert_eq!(sent[2], [packet(head, length(EMPTY_HEADER.len())), packet(header, EMPTY_HEADER)]);
    }
}

#[test]
fn a_consolidated_one_and_a_loose_one_are_the_same_on_the_wire() {
    for setting in SETTINGS {
        let loose = recorded(setting, &[a(1.0), a(2.0), b(3)]);
        let packed = recorded(setting, &[a(1.0).consolidate(), a(2.0).consolidate(), b(3).consolidate()]);
        let mixed = recorded(setting, &[a(1.0), a(2.0).consolidate(), b(3)]);
        assert_eq!((&loose, &loose), (&packed, &mixed));
    }
}

#[test]
fn every_change_of_the_schema_is_sent() {
    let mut locked = a(1.0);
    locked.lock();
    let mut named = a(1.0);
    named.set_dim_names([Some("time")]).expect("one dimension");
    let mut on_device = a(1.0);
    on_device.set_device(crate::Device::Cpu);
    let mut valued = a(1.0);
    valued.insert("s", crate::Value::from(1)).expect("fits");
    let mut other_value = valued.clone();
    other_value.insert("s", crate::Value::from(2)).expect("fits");
    let reordered = tensordict!([2]; "n" => a(1.0).dict("n").expect("there"), "x" => a(1.0).get("x").expect("there"));
    let tds =
        [a(1.0), locked, named, on_device, valued, other_value, reordered.expect("batched"), a(1.0).consolidate()];

    for kinds in [false, true] {
        let setting = (kinds, Format::Consolidated);
        let new = recorded(setting, &[a(1.0)])[0].len();
        for (i, packets) in recorded(setting, &tds).iter().enumerate() {
            assert_eq!(packets.len(), new, "{i}");
        }
        let twice: Vec<TensorDict> = tds.iter().flat_map(|td| [td.clone(), td.clone()]).collect();
        for (i, packets) in recorded(setting, &twice).iter().enumerate() {
            assert_eq!(packets.len() == new, i % 2 == 0, "{i}");
        }
    }
}

#[test]
fn what_is_sent_arrives_in_both_directions() {
    let tds = [a(1.0), b(2), a(3.0), a(4.0), empty(), empty(), b(5), b(6).consolidate(), a(7.0)];
    for setting in SETTINGS {
        let (mut one, mut other) = ends(setting);
        for td in &tds {
            one.send(td).expect("sent");
            other.send(td).expect("sent");
            other.send(td).expect("sent");
        }
        for td in &tds {
            assert!(other.recv().expect("received") == *td, "{setting:?}");
            for _ in 0..2 {
                assert!(one.recv().expect("received") == *td, "{setting:?}");
            }
        }
        part(one, other);
    }
}

#[test]
fn what_cannot_be_sent_changes_nothing() {
    for setting in SETTINGS {
        let (mut end, link) = end_and_link(setting);
        let mut send = |td: &TensorDict| -> Vec<Packet> {
            let error = end.send(&unsendable()).expect_err("refused");
            assert!(matches!(error, Error::Encode(_)) && !error.is_final(), "{error}");
            assert_eq!(link.recv_raw(), None, "not a byte of it");
            end.send(td).expect("the pipe goes on");
            std::iter::from_fn(|| link.recv_raw()).collect()
        };
        let sent: Vec<_> = [a(1.0), a(2.0), b(3), b(4)].iter().map(&mut send).collect();
        assert_eq!(sent, recorded(setting, &[a(1.0), a(2.0), b(3), b(4)]), "{setting:?}");
        assert!(end.sender.failure().is_none());
    }
}

/// Closes both ends, each in a thread of its own.
fn part(one: End, other: End) {
    let closing = std::thread::spawn(move || other.close());
    one.close().expect("a clean end");
    closing.join().expect("no panic").expect("a clean end");
}
