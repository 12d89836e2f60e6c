//! What a faulty or malicious peer can send: each is the error that says what is wrong, before anything is allocated.

#[path = "common/variants.rs"]
mod variants;

use std::collections::BTreeSet;

use tensordict_pipe::wire::{BrokenRule, DecodeError, Format, Limits, RecvSession};
use tensordict_pipe::{DataError, Storage};

const LABELS: &str = r#""cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false}"#;

/// A session that has read metadata with these leaves and these further fields, and `_total_bytes`.
fn consolidated(leaves: &str, more: &str, total: usize) -> Result<RecvSession, DecodeError> {
    metadata(&format!(
        r#"{{"cls": "TensorDict", "non_tensors": {{}}, "leaves": {{{leaves}}}, {LABELS}{more}, "_total_bytes": {total}}}"#
    ))
}

fn metadata(json: &str) -> Result<RecvSession, DecodeError> {
    let mut session = RecvSession::new(Format::Consolidated, Limits::default());
    session.accept_header(json.as_bytes()).map(|()| session)
}

fn leaf_by_leaf(json: &str) -> Result<RecvSession, DecodeError> {
    let mut session = RecvSession::new(Format::LeafByLeaf, Limits::default());
    session.accept_header(json.as_bytes()).map(|()| session)
}

/// The path and the rule of the error.
fn broken<T>(result: Result<T, DecodeError>) -> (String, BrokenRule) {
    match result.err().expect("refused") {
        DecodeError::Entry { path, rule } => (path.to_string(), *rule),
        other => panic!("{other:?}"),
    }
}

fn rule<T>(result: Result<T, DecodeError>) -> BrokenRule {
    broken(result).1
}

#[test]
fn flags() {
    let session = RecvSession::new(Format::Consolidated, Limits::default());
    assert_eq!(session.accept_flag(0), Ok(true));
    assert_eq!(session.accept_flag(1), Err(DecodeError::NoSchema));
    for flag in 2..=255 {
        assert_eq!(session.accept_flag(flag), Err(DecodeError::Flag { flag }));
    }
}

#[test]
fn lengths() {
    let mut session = RecvSession::new(Format::Consolidated, Limits::default().max_metadata_bytes(500));
    assert_eq!(session.check_header_len(500), Ok(500));
    for len in [501, u64::MAX] {
        assert_eq!(session.check_header_len(len), Err(DecodeError::MetadataTooLong { len, limit: 500 }));
    }
    assert!(matches!(session.accept_header(&[b' '; 501]), Err(DecodeError::MetadataTooLong { len: 501, .. })));
    assert!(matches!(session.finish(Storage::zeroed(16)), Err(DecodeError::NoSchema)));

    let mut session = consolidated(r#""a": ["torch.uint8", [24], 0, 24, 0]"#, "", 24).expect("well-formed");
    let short = session.finish(Storage::zeroed(23)).err();
    assert_eq!(short, Some(DecodeError::Length { expected: 24, found: 23 }));
}

#[test]
fn storage_limit() {
    let limit = 1 << 36;
    for (count, len) in [(limit + 8, limit + 8), (1 << 62, 1 << 62)] {
        let leaf = format!(r#""a": ["torch.uint8", [{count}], 0, {len}, 0]"#);
        assert_eq!(consolidated(&leaf, "", len).err(), Some(DecodeError::StorageTooLong { len, limit }));
        let header = format!(r#"{{"keys": ["a"], "dtypes": ["torch.uint8"], "shapes": [[{count}]]}}"#);
        assert_eq!(leaf_by_leaf(&header).err(), Some(DecodeError::StorageTooLong { len, limit }));
    }
    // The sum of many wraps around.
    let keys = r#"["a", "b", "c", "d", "e"]"#;
    let dtypes = [r#""torch.uint8""#; 5].join(",");
    let shapes = ["[4611686018427387904]"; 5].join(",");
    let header = format!(r#"{{"keys": {keys}, "dtypes": [{dtypes}], "shapes": [{shapes}]}}"#);
    assert!(matches!(leaf_by_leaf(&header), Err(DecodeError::StorageTooLong { .. })));
}

#[test]
fn depth_limit() {
    let fields = format!(r#""cls": "TensorDict", "non_tensors": {{}}, "leaves": {{}}, {LABELS}"#);
    let nested = |levels: usize| {
        let open = format!(r#"{{{fields}, "n": "#).repeat(levels);
        format!(r#"{open}{{{fields}{}, "_total_bytes": 0}}"#, "}".repeat(levels))
    };
    // The labels of the innermost dict take two levels. The deepest that is allowed fits a small stack.
    let deepest = nested(125);
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || metadata(&deepest).map(drop));
    assert_eq!(thread.expect("a thread").join().expect("no overflow"), Ok(()));
    for json in [nested(126), nested(10_000), "{\"a\":".repeat(1 << 20)] {
        assert_eq!(metadata(&json).err(), Some(DecodeError::TooDeep { limit: 128 }));
    }
    let path = vec![r#""a""#; 129].join(",");
    let header = format!(r#"{{"keys": [[{path}]], "dtypes": ["torch.bool"], "shapes": [[]]}}"#);
    assert_eq!(leaf_by_leaf(&header).err(), Some(DecodeError::TooDeep { limit: 128 }));
}

#[test]
fn leaf_limit() {
    let limits = Limits::default().max_leaves(2);
    for (format, header) in [
        (
            Format::Consolidated,
            r#"{"leaves": {"a": ["torch.bool", [0], 0, 0, 0], "b": ["torch.bool", [0], 0, 0, 0], "c": 1}}"#,
        ),
        (Format::Consolidated, r#"{"non_tensors": {"a": [[[[]]], [], null]}}"#),
        (Format::LeafByLeaf, r#"{"keys": ["a", "b", "c"]}"#),
        (Format::LeafByLeaf, r#"{"non_tensors": [["a", [1, 2]]]}"#),
    ] {
        let mut session = RecvSession::new(format, limits);
        let error = session.accept_header(header.as_bytes());
        assert_eq!(error, Err(DecodeError::TooManyLeaves { limit: 2 }), "{header}");
    }
}

#[test]
fn not_json_or_of_another_type() {
    for json in [
        "",
        "{",
        "null",
        "[]",
        r#""cls""#,
        r#"{"cls": 1}"#,
        r#"{"leaves": []}"#,
        r#"{"non_tensors": {"a": 1}}"#,
        r#"{"leaves": {"a": {}}}"#,
        r#"{"leaves": {"a": []}}"#,
        r#"{"leaves": {"a": ["torch.bool", [], 0, 8]}}"#,
        r#"{"leaves": {"a": ["torch.bool", [], 0, 8, 7, 1, 1]}}"#,
        r#"{"leaves": {"a": ["torch.bool", [-1], 0, 0, 0]}}"#,
        r#"{"leaves": {"a": ["torch.bool", [1.0], 0, 0, 0]}}"#,
        r#"{"leaves": {"a": ["torch.bool", [1e400], 0, 0, 0]}}"#,
        r#"{"leaves": {"a": ["torch.bool", [true], 0, 0, 0]}}"#,
        r#"{"leaves": {"a": ["torch.bool", [18446744073709551616], 0, 0, 0]}}"#,
        r#"{"cls_metadata": {"is_locked": null}}"#,
        r#"{"cls_metadata": {"batch_size": null}}"#,
        r#"{"cls_metadata": {"names": [1]}}"#,
        r#"{"cls_metadata": {"device": 0}}"#,
        r#"{"non_tensors": {"a": ["x", []]}}"#,
        r#"{"non_tensors": {"a": ["x", [], null, 0]}}"#,
        r#"{"_total_bytes": -1}"#,
        r#"{"_total_bytes": NaN}"#,
        r#"{} {}"#,
    ] {
        assert!(matches!(metadata(json), Err(DecodeError::Json { .. })), "{json}: {:?}", metadata(json).err());
    }
    for json in [
        "",
        "[]",
        r#"{"keys": 1}"#,
        r#"{"keys": [[]]}"#,
        r#"{"keys": [1]}"#,
        r#"{"keys": [["a", 1]]}"#,
        r#"{"non_tensors": [["a"]]}"#,
        r#"{"non_tensors": [["a", [], []]]}"#,
        r#"{"non_tensors": [["a", [], [], 0, 0]]}"#,
        r#"{"shapes": [[-1]]}"#,
    ] {
        assert!(matches!(leaf_by_leaf(json), Err(DecodeError::Json { .. })), "{json}");
    }
}

#[test]
fn fields() {
    for field in ["cls", "non_tensors", "leaves", "cls_metadata"] {
        let whole =
            format!(r#"{{"cls": "TensorDict", "non_tensors": {{}}, "leaves": {{}}, {LABELS}, "_total_bytes": 0}}"#);
        let json = whole.replace(&format!(r#""{field}":"#), r#""size": 0, "other":"#).replace("cls_metadata\": {", "x");
        assert!(metadata(&json).is_err(), "{field}");
    }
    assert_eq!(rule(metadata("{}")), BrokenRule::Missing { field: "cls" });
    let no_total = format!(r#"{{"cls": "TensorDict", "non_tensors": {{}}, "leaves": {{}}, {LABELS}}}"#);
    assert_eq!(rule(metadata(&no_total)), BrokenRule::Missing { field: "_total_bytes" });
    let no_names = r#"{"cls": "TensorDict", "non_tensors": {}, "leaves": {}, "cls_metadata": {"batch_size": []}}"#;
    assert_eq!(rule(metadata(no_names)), BrokenRule::Missing { field: "names" });
    assert_eq!(rule(leaf_by_leaf(r#"{"keys": [], "dtypes": []}"#)), BrokenRule::Missing { field: "shapes" });

    assert_eq!(rule(consolidated("", r#", "x": 1"#, 0)), BrokenRule::Unknown { field: "x".into() });
    assert_eq!(rule(metadata(r#"{"cls_metadata": {"x": 1}}"#)), BrokenRule::Unknown { field: "x".into() });
    assert_eq!(rule(leaf_by_leaf(r#"{"x": 1}"#)), BrokenRule::Unknown { field: "x".into() });
    let unbatched = r#"{"keys": [], "dtypes": [], "shapes": [], "unbatched": ["u"]}"#;
    assert_eq!(broken(leaf_by_leaf(unbatched)), ("'u'".into(), BrokenRule::Unknown { field: "unbatched".into() }));
}

#[test]
fn names_used_twice() {
    let twice = |name: &str| BrokenRule::Repeated { name: name.into() };
    let leaf = r#"["torch.bool", [0], 0, 0, 0]"#;
    let dict = format!(r#"{{"cls": "TensorDict", "non_tensors": {{}}, "leaves": {{}}, {LABELS}}}"#);
    assert_eq!(rule(consolidated(&format!(r#""a": {leaf}, "a": {leaf}"#), "", 0)), twice("a"));
    assert_eq!(rule(consolidated(&format!(r#""a": {leaf}"#), &format!(r#", "a": {dict}"#), 0)), twice("a"));
    assert_eq!(rule(consolidated("", &format!(r#", "a": {dict}, "a": {dict}"#), 0)), twice("a"));
    for field in ["cls", "cls_metadata", "non_tensors", "leaves"] {
        let value = if field == "cls" { r#""TensorDict""# } else { "{}" };
        let json = format!(r#"{{"{field}": {value}, "{field}": {value}}}"#);
        assert_eq!(rule(metadata(&json)), twice(field));
    }
    for (keys, values) in [
        (r#""a", "a""#, ""),
        (r#"["a"], "a""#, ""),
        (r#"["a", "b"], "a""#, ""),
        (r#""a", ["a", "b"]"#, ""),
        (r#""a", "b""#, r#"["b", 1]"#),
        (r#""a", "b""#, r#"[["b", "c"], 1]"#),
        (r#"["a", "b"], "c""#, r#"["a", 1]"#),
    ] {
        let header = format!(
            r#"{{"keys": [{keys}], "dtypes": ["torch.bool", "torch.bool"], "shapes": [[], []], "non_tensors": [{values}]}}"#
        );
        assert!(matches!(rule(leaf_by_leaf(&header)), BrokenRule::Repeated { .. }), "{header}");
    }
}

#[test]
fn classes_and_dtypes() {
    let json = metadata(r#"{"cls": "<class 'x.C'>", "non_tensors": {}, "leaves": {}, "cls_metadata": {}}"#);
    assert_eq!(rule(json), BrokenRule::Class { class: "<class 'x.C'>".into() });
    for name in ["torch.float128", "float32", "", "torch."] {
        let unknown = BrokenRule::Data(DataError::UnknownDType { name: name.into() });
        let leaf = format!(r#""a": ["{name}", [], 0, 8, 4]"#);
        assert_eq!(broken(consolidated(&leaf, "", 8)), ("'a'".into(), unknown.clone()));
        assert_eq!(rule(leaf_by_leaf(&format!(r#"{{"dtypes": ["{name}"]}}"#))), unknown);
    }
}

#[test]
fn ranges() {
    // shape, start, stop, pad: all wrong
    for numbers in [
        "[3], 0, 16, 0",
        "[3], 0, 12, 0",
        "[3], 0, 12, 4",
        "[3], 0, 24, 12",
        "[3], 16, 0, 4",
        "[2], 0, 8, 8",
        "[0], 0, 8, 8",
        "[1], 0, 9223372036854775807, 4",
        "[1], 9223372036854775800, 9223372036854775807, 4",
        "[4294967296, 0, 4294967296], 0, 8, 0",
    ] {
        let result = consolidated(&format!(r#""a": ["torch.float32", {numbers}]"#), "", 16);
        assert!(matches!(broken(result), (path, BrokenRule::Range { .. }) if path == "'a'"), "{numbers}");
    }
    // The number of elements, or of bytes, wraps around: to 0, to 4, to 0.
    for shape in ["[4294967296, 4294967296]", "[9223372036854775807, 2]", "[4611686018427387904]"] {
        let result = consolidated(&format!(r#""a": ["torch.float32", {shape}, 0, 0, 0]"#), "", 0);
        assert!(matches!(rule(result), BrokenRule::Data(DataError::TooLarge { .. })), "{shape}");
    }
}

#[test]
fn gaps_and_overlaps() {
    let place = |expected, found| BrokenRule::Place { expected, found };
    let leaf = |start: usize| format!(r#"["torch.int64", [1], {start}, {}, 0]"#, start + 8);
    let two = |a, b| consolidated(&format!(r#""a": {}, "b": {}"#, leaf(a), leaf(b)), "", 16);
    assert!(two(0, 8).is_ok());
    assert_eq!(broken(two(0, 16)), ("'b'".into(), place(8, 16)), "a gap");
    assert_eq!(rule(two(0, 0)), place(8, 0), "an overlap");
    assert_eq!(rule(two(8, 16)), place(0, 8), "a gap at the start");
    let nested = |start| {
        let dict =
            format!(r#"{{"cls": "TensorDict", "non_tensors": {{}}, "leaves": {{"x": {}}}, {LABELS}}}"#, leaf(start));
        consolidated(&format!(r#""a": {}, "b": {}"#, leaf(0), leaf(16)), &format!(r#", "n": {dict}"#), 24)
    };
    assert!(nested(8).is_ok(), "between the two");
    assert_eq!(rule(nested(16)), place(8, 16));
    assert_eq!(rule(nested(0)), place(8, 0));
    for declared in [0, 15, 24] {
        let leaves = format!(r#""a": {}, "b": {}"#, leaf(0), leaf(8));
        let error = consolidated(&leaves, "", declared).err();
        assert_eq!(error, Some(DecodeError::TotalBytes { declared, end: 16 }));
    }
}

#[test]
fn batch_sizes_and_names() {
    let dict = |labels: &str, leaf: &str| {
        metadata(&format!(
            r#"{{"cls": "TensorDict", "non_tensors": {{}}, "leaves": {{"a": {leaf}}}, "cls_metadata": {{{labels}}}, "_total_bytes": 0}}"#
        ))
    };
    let leaf = r#"["torch.bool", [2, 0], 0, 0, 0]"#;
    assert!(dict(r#""batch_size": [2], "names": [null], "device": null"#, leaf).is_ok());
    let wrong = dict(r#""batch_size": [3], "names": [null], "device": null"#, leaf);
    assert!(matches!(rule(wrong), BrokenRule::Data(DataError::BatchSize { .. })));
    let wrong = dict(r#""batch_size": [2], "names": [], "device": null"#, leaf);
    assert!(matches!(rule(wrong), BrokenRule::Data(DataError::Length { .. })));
    let wrong = leaf_by_leaf(r#"{"keys": ["a"], "dtypes": ["torch.bool"], "shapes": [[2]], "batch_size": [3]}"#);
    assert!(matches!(rule(wrong), BrokenRule::Data(DataError::BatchSize { .. })));
    assert!(leaf_by_leaf(
        r#"{"keys": ["a"], "dtypes": ["torch.bool"], "shapes": [[2]], "batch_size": [3], "unbatched": ["a"]}"#
    )
    .is_ok());
    let lists = leaf_by_leaf(r#"{"keys": ["a"], "dtypes": [], "shapes": [[2]]}"#);
    assert_eq!(rule(lists), BrokenRule::Lists { keys: 1, dtypes: 0, shapes: 1 });
}

#[test]
fn jagged_parts() {
    let values = r#""<NJT_VALUES>k": ["torch.int64", [2], 0, 16, 0]"#;
    let lengths = r#""<NJT_LENGTHS>k": ["torch.int64", [1], 16, 24, 0]"#;
    let offsets = r#""<NJT_OFFSETS>k": ["torch.int64", [2], 24, 40, 0, 1]"#;
    assert!(consolidated(&[values, lengths, offsets].join(","), "", 40).is_ok());
    let other = r#""x": ["torch.bool", [0], 16, 16, 0]"#;
    for parts in [
        vec![values],
        vec![offsets],
        vec![lengths],
        vec![values, lengths],
        vec![lengths, offsets],
        vec![values, values],
        vec![values, lengths, lengths],
        vec![values, other, lengths, offsets],
        vec![offsets, values],
        vec![values, r#""<NJT_LENGTHS>j": ["torch.int64", [1], 16, 24, 0]"#],
        vec![values, r#""<NJT_OFFSETS>j": ["torch.int64", [2], 16, 32, 0, 1]"#],
        vec![r#""<NJT>k": ["torch.bool", [0], 0, 0, 0]"#],
        vec![r#""k": ["torch.bool", [0], 0, 0, 0, 1]"#],
    ] {
        assert_eq!(rule(consolidated(&parts.join(","), "", 40)), BrokenRule::JaggedParts, "{parts:?}");
    }
    let gap = consolidated(&[values, offsets].join(","), "", 40);
    assert_eq!(rule(gap), BrokenRule::Place { expected: 16, found: 24 });
    for index in [0, 2, 100] {
        let offsets = format!(r#""<NJT_OFFSETS>k": ["torch.int64", [2], 16, 32, 0, {index}]"#);
        let wrong = rule(consolidated(&format!("{values}, {offsets}"), "", 32));
        assert!(matches!(wrong, BrokenRule::Data(DataError::Jagged { .. })), "{index}: {wrong:?}");
    }
}

#[test]
fn stacks() {
    let stack = |class: &str, values: &str, labels: &str, more: &str| {
        metadata(&format!(
            r#"{{"cls": "{class}", "non_tensors": {{{values}}}, "leaves": {{}}, "cls_metadata": {{{labels}}}{more}, "_total_bytes": 0}}"#
        ))
    };
    let labels = r#""stack_dim": 0, "stack_dim_name": null, "is_locked": false"#;
    let value = |name: &str| format!(r#""{name}": ["x", [], null]"#);
    assert!(stack("NonTensorStack", &format!("{}, {}", value("1"), value("0")), labels, "").is_ok());
    for name in ["1", "00", "+0", "x", "-0", "18446744073709551616"] {
        let wrong = stack("NonTensorStack", &value(name), labels, "");
        assert_eq!(rule(wrong), BrokenRule::Element { name: name.into() });
    }
    let twice = stack("NonTensorStack", &format!("{}, {}", value("0"), value("0")), labels, "");
    assert_eq!(rule(twice), BrokenRule::Repeated { name: "0".into() });
    assert_eq!(rule(stack("NonTensorStack", "", "", "")), BrokenRule::Missing { field: "stack_dim" });
    let dim = stack("NonTensorStack", &value("0"), r#""stack_dim": 1"#, "");
    assert!(matches!(rule(dim), BrokenRule::Data(DataError::Dim { .. })));
    let no_dict = stack("LazyStackedTensorDict", &value("0"), labels, "");
    assert!(matches!(rule(no_dict), BrokenRule::Data(DataError::Stack { .. })));
    let both = stack("NonTensorStack", "", r#""stack_dim": 0, "batch_size": []"#, "");
    assert_eq!(rule(both), BrokenRule::Unknown { field: "batch_size".into() });
    let both = stack("TensorDict", "", r#""stack_dim": 0, "batch_size": [], "names": []"#, "");
    assert_eq!(rule(both), BrokenRule::Unknown { field: "stack_dim".into() });

    for (values, sizes) in
        [(r#"["a", "b"]"#, "[3]"), (r#""ab""#, "[2]"), (r#"["a", ["b"]]"#, "[2, 1]"), ("[]", "[0, 4]")]
    {
        let header =
            format!(r#"{{"keys": [], "dtypes": [], "shapes": [], "non_tensors": [["s", {values}, {sizes}, 0]]}}"#);
        assert_eq!(broken(leaf_by_leaf(&header)), ("'s'".into(), BrokenRule::StackValues), "{values}");
    }
    let header =
        r#"{"keys": [], "dtypes": [], "shapes": [], "batch_size": [2], "non_tensors": [["s", ["a"], [1], 0]]}"#;
    assert_eq!(rule(leaf_by_leaf(header)), BrokenRule::StackValues);
}

#[test]
fn a_lone_surrogate_costs_only_its_messages() {
    let wrong = r#", "n": {"cls": "TensorDict", "non_tensors": {"s": ["\ud800", [], null]}, "leaves": {}, "cls_metadata": {"names": [], "batch_size": []}}"#;
    let leaf = r#""a": ["torch.int64", [3], 0, 24, 0]"#;
    let mut session = consolidated(leaf, wrong, 24).expect("in step");
    for _ in 0..2 {
        assert_eq!(session.accept_flag(1), Ok(false));
        assert_eq!(session.body_len(), Some(24));
        let buffer = session.buffer();
        let error = session.finish(buffer).expect_err("cannot be held");
        assert!(error.is_recoverable());
        assert!(
            matches!(&error, DecodeError::LoneSurrogate { path, total_bytes: 24 } if path.names() == ["n", "s"]),
            "{error}"
        );
    }
    let good =
        format!(r#"{{"cls": "TensorDict", "non_tensors": {{}}, "leaves": {{{leaf}}}, {LABELS}, "_total_bytes": 24}}"#);
    session.accept_header(good.as_bytes()).expect("the next schema");
    let buffer = session.buffer();
    assert!(session.finish(buffer).is_ok());

    let header = r#"{"keys": ["k\udfff", "k\udffe"], "dtypes": ["torch.bool", "torch.bool"], "shapes": [[1], [2]]}"#;
    let mut session = leaf_by_leaf(header).expect("in step");
    assert_eq!(session.leaf_lens(), [1, 2]);
    let error = session.finish_leaves(&[Storage::zeroed(1), Storage::zeroed(2)]).err();
    let Some(DecodeError::LoneSurrogate { path, total_bytes: 3 }) = error else { panic!("{error:?}") };
    assert_eq!(path.names(), ["k\u{fffd}dfff"], "the first of them");
    let header =
        r#"{"keys": [["n", "k"]], "dtypes": ["torch.bool"], "shapes": [[1]], "non_tensors": [[["n", "s"], "\ud800"]]}"#;
    let mut session = leaf_by_leaf(header).expect("in step");
    let error = session.finish_leaves(&[Storage::zeroed(1)]).expect_err("cannot be held");
    assert!(matches!(&error, DecodeError::LoneSurrogate { path, .. } if path.names() == ["n", "s"]), "{error}");
    session.accept_header(br#"{"keys": ["k"], "dtypes": ["torch.bool"], "shapes": [[1]]}"#).expect("the next message");
    assert!(session.finish_leaves(&[Storage::zeroed(1)]).is_ok());
}

#[test]
fn every_error_has_an_input() {
    let small = Limits::default().max_metadata_bytes(500).max_leaves(1);
    let new = || RecvSession::new(Format::Consolidated, small);
    let leaf = r#""a": ["torch.uint8", [8], 0, 8, 0]"#;
    let placed = |text: &str| consolidated(text, "", 8).expect_err("refused");
    let mut surrogate =
        leaf_by_leaf(r#"{"keys": ["\ud800"], "dtypes": ["torch.bool"], "shapes": [[1]]}"#).expect("in step");
    let stack = r#"{"cls": "NonTensorStack", "non_tensors": {"x": ["", [], null]}, "leaves": {}, "cls_metadata": {"stack_dim": 0}}"#;
    let values = r#"{"keys": [], "dtypes": [], "shapes": [], "non_tensors": [["s", [], [1], 0]]}"#;
    let errors = [
        new().accept_flag(2).expect_err("refused"),
        new().accept_flag(1).expect_err("refused"),
        consolidated(leaf, "", 8).expect("well-formed").finish(Storage::zeroed(7)).expect_err("refused"),
        new().check_header_len(501).expect_err("refused"),
        consolidated(r#""a": ["torch.uint8", [4611686018427387904], 0, 4611686018427387904, 0]"#, "", 1 << 62)
            .expect_err("refused"),
        metadata(&"{\"a\":".repeat(200)).expect_err("refused"),
        new().accept_header(format!(r#"{{"leaves": {{{leaf}, "b": 0}}}}"#).as_bytes()).expect_err("refused"),
        metadata("{").expect_err("refused"),
        consolidated(leaf, "", 16).expect_err("refused"),
        surrogate.finish_leaves(&[Storage::zeroed(1)]).expect_err("refused"),
        // The rules.
        metadata("{}").expect_err("refused"),
        consolidated("", r#", "x": 1"#, 0).expect_err("refused"),
        placed(&[r#""a": ["torch.bool", [0], 0, 0, 0]"#; 2].join(", ")),
        metadata(r#"{"cls": "C", "non_tensors": {}, "leaves": {}, "cls_metadata": {}}"#).expect_err("refused"),
        placed(r#""a": ["torch.uint8", [8], 0, 9, 0]"#),
        placed(r#""a": ["torch.uint8", [8], 8, 16, 0]"#),
        placed(r#""<NJT_VALUES>a": ["torch.uint8", [8], 0, 8, 0]"#),
        metadata(stack).expect_err("refused"),
        leaf_by_leaf(values).expect_err("refused"),
        leaf_by_leaf(r#"{"keys": ["a"], "dtypes": [], "shapes": []}"#).expect_err("refused"),
        placed(r#""a": ["", [8], 0, 8, 0]"#),
    ];
    let (mut kinds, mut rules) = (BTreeSet::new(), BTreeSet::new());
    for error in errors {
        kinds.insert(variants::first_word(&format!("{error:?}")));
        if let DecodeError::Entry { rule, .. } = error {
            rules.insert(variants::first_word(&format!("{rule:?}")));
        }
    }
    let source = include_str!("../src/wire/error.rs");
    assert_eq!(kinds, variants::of(source, "DecodeError"));
    assert_eq!(rules, variants::of(source, "BrokenRule"));
}

#[test]
fn errors_stay_small() {
    assert!(size_of::<DecodeError>() <= 40, "{}", size_of::<DecodeError>());
}
