//! tensordict's own test of its pipe, case by case: the cases about one process, and the list of where the others are
//! (`interop/upstream.txt`, which `interop/run` plays).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{tensordict, Storage, TensorDict};

#[test]
fn every_case_is_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let list = read("tests/interop/upstream.txt");
    let [here, python, rust] =
        ["tests/upstream.rs", "tests/interop/upstream.py", "examples/interop_peer/upstream.rs"].map(read);
    let mut cases = BTreeSet::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (case, place) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        let (class, test) = case.split_once("::").unwrap_or_else(|| panic!("{line}"));
        assert!(cases.insert(case), "{case} twice");
        match place.trim_start() {
            "rust" => assert!(here.contains(&format!("#[test]\nfn {test}()")), "{case}"),
            "both" => {
                assert!(python.contains(&format!("class {class}:")), "{case}");
                for halves in [["send", "recv"], ["connect", "listen"]] {
                    let [one, other] = halves.map(|half| python.contains(&format!("def {half}_{test}(")));
                    assert_eq!(one, other, "{case} has two halves");
                }
                assert!(rust.contains(&format!("\"{case}\"")), "{case}");
            }
            reason => assert!(reason.starts_with("none ") && reason.len() > 20, "{line}"),
        }
    }
    assert_eq!(cases.len(), 20, "as many as the original has");
}

fn flags(tds: &[TensorDict]) -> Vec<Option<u8>> {
    let mut session = SendSession::new(Format::Consolidated);
    let flag = |td| {
        let flag = session.encode(td).expect("sendable").flag();
        session.commit();
        flag
    };
    tds.iter().map(flag).collect()
}

fn pair(a: [f32; 3]) -> TensorDict {
    tensordict!([]; "a" => a, "s" => "x").expect("fits")
}

/// What is hashed there is compared here, with the same consequence: one schema is sent once.
#[test]
fn test_deterministic() {
    assert_eq!(flags(&[pair([1.0; 3]), pair([1.0; 3]), pair([2.0; 3])]), [Some(0), Some(1), Some(1)]);
}

#[test]
fn test_different_metadata_different_hash() {
    let other = tensordict!([]; "b" => [1.0_f64; 4]).expect("fits");
    assert_eq!(flags(&[pair([1.0; 3]), other]), [Some(0), Some(0)]);
}

/// The order of the fields in the text says nothing.
#[test]
fn test_key_order_invariant() {
    let fields = [
        r#""cls": "TensorDict""#,
        r#""non_tensors": {"s": ["x", [], null]}"#,
        r#""leaves": {"a": ["torch.float32", [3], 0, 16, 4]}"#,
        r#""cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false}"#,
        r#""_total_bytes": 16"#,
    ];
    let read = |fields: &[&str]| {
        let mut session = RecvSession::new(Format::Consolidated, Limits::default());
        session.accept_header(format!("{{{}}}", fields.join(", ")).as_bytes()).expect("well-formed");
        session.finish(Storage::zeroed(16)).expect("a TensorDict")
    };
    for turn in 0..fields.len() {
        let mut turned = fields;
        turned.rotate_left(turn);
        assert_eq!(read(&turned), pair([0.0; 3]), "{turn}");
    }
}

/// How many bytes a stateless receiver expects: the metadata do not say it.
fn total(leaves: &str, more: &str) -> Option<usize> {
    let mut session = RecvSession::new(Format::Stateless, Limits::default());
    let metadata = format!("{{{}{more}}}", dict_fields(leaves));
    session.accept_header(metadata.as_bytes()).expect("well-formed");
    session.body_len()
}

fn dict_fields(leaves: &str) -> String {
    format!(
        r#""leaves": {{{leaves}}}, "cls": "TensorDict", "non_tensors": {{}}, "cls_metadata": {{"batch_size": [], "names": []}}"#
    )
}

const FIRST: &str = r#""a": ["torch.float32", [4], 0, 16, 0]"#;
const SECOND: &str = r#""b": ["torch.float64", [4], 16, 48, 0]"#;

#[test]
fn test_single_leaf() {
    assert_eq!(total(r#""x": ["torch.float32", [10], 0, 40, 0]"#, ""), Some(40));
}

#[test]
fn test_multiple_leaves() {
    assert_eq!(total(&format!("{FIRST}, {SECOND}"), ""), Some(48));
}

#[test]
fn test_nested() {
    assert_eq!(total(FIRST, &format!(r#", "sub": {{{}}}"#, dict_fields(SECOND))), Some(48));
}
