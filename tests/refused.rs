//! What a Python receiver could not read, or would lose, is refused before the first byte; what it can read is not.
//! Every case was tried against the real receiver.

#[path = "common/variants.rs"]
mod variants;

use std::collections::BTreeSet;

use tensordict_pipe::wire::{EncodeError, Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{tensordict, DType, Item, Jagged, NonTensor, Tensor, TensorDict, Value};

const FORMATS: [Format; 3] = [Format::Consolidated, Format::Stateless, Format::LeafByLeaf];

fn one(name: &str, item: impl Into<Item>) -> TensorDict {
    let mut td = TensorDict::new([]);
    td.insert(name, item).expect("fits");
    td
}

fn dict() -> TensorDict {
    one("b", vec![1_u8])
}

fn encode(format: Format, td: &TensorDict) -> Result<(), EncodeError> {
    let mut session = SendSession::new(format);
    let header = session.encode(td)?.header().expect("the first").clone();
    let mut receiver = RecvSession::new(format, Limits::default());
    receiver.accept_header(header.as_bytes()).expect("what is sent can be received");
    Ok(())
}

fn path(error: &EncodeError) -> String {
    error.to_string().split(": ").next().expect("a path").to_owned()
}

#[test]
fn reserved_names_of_nested_dicts() {
    for format in [Format::Consolidated, Format::Stateless] {
        for name in ["cls", "leaves", "non_tensors", "cls_metadata", "size"] {
            for (td, at) in [
                (one(name, dict()), format!("'{name}'")),
                (one("x", one(name, dict())), format!("('x', '{name}')")),
                (one(name, TensorDict::lazy_stack([dict()], 0).expect("a stack")), format!("'{name}'")),
                (one(name, TensorDict::non_tensor_stack(["a"], 0).expect("a stack")), format!("'{name}'")),
            ] {
                let error = encode(format, &td).expect_err(name);
                assert!(matches!(error, EncodeError::ReservedName { .. }), "{error:?}");
                assert_eq!(path(&error), at);
            }
            assert_eq!(encode(format, &one(name, vec![1_u8])), Ok(()));
            assert_eq!(encode(format, &one(name, "value")), Ok(()));
        }
    }
}

#[test]
fn names_that_only_the_root_needs() {
    for (format, name, lost) in [
        (Format::Consolidated, "_total_bytes", true),
        (Format::Consolidated, "_device", true),
        (Format::Stateless, "_total_bytes", true),
        (Format::Stateless, "_device", false),
        (Format::LeafByLeaf, "_total_bytes", false),
        (Format::LeafByLeaf, "leaves", false),
    ] {
        assert_eq!(encode(format, &one(name, dict())).is_err(), lost, "{format:?} {name}");
        assert_eq!(encode(format, &one("x", one(name, dict()))), Ok(()));
        assert_eq!(encode(format, &one(name, vec![1_u8])), Ok(()));
    }
}

#[test]
fn tensors_called_cls_and_leaves() {
    for (a, b) in [(Item::from(vec![1_u8]), Item::from(vec![1_u8])), (Item::from("x"), Item::from("x"))] {
        let mut td = one("cls", a);
        td.insert("leaves", b).expect("fits");
        assert_eq!(encode(Format::Consolidated, &td), Ok(()));
        assert!(matches!(encode(Format::Stateless, &td), Err(EncodeError::ReservedName { .. })));
    }
    let mut td = one("cls", "x");
    td.insert("leaves", vec![1_u8]).expect("fits");
    assert_eq!(encode(Format::Stateless, &td), Ok(()));
}

#[test]
fn names_like_parts_of_jagged_tensors() {
    for name in ["<NJT>k", "<NJT_VALUES>k", "<NJT_LENGTHS>k", "<NJT_OFFSETS>k"] {
        for format in [Format::Consolidated, Format::Stateless] {
            let error = encode(format, &one(name, vec![1_u8])).expect_err(name);
            assert!(matches!(error, EncodeError::JaggedName { .. }));
            assert_eq!(encode(format, &one(name, "value")), Ok(()));
            assert_eq!(encode(format, &one(name, dict())), Ok(()));
        }
        assert_eq!(encode(Format::LeafByLeaf, &one(name, vec![1_u8])), Ok(()));
    }
    for name in ["<NJT", "<NJT_FOO>k", "<", "x<NJT>", ""] {
        assert_eq!(encode(Format::Consolidated, &one(name, vec![1_u8])), Ok(()));
    }
    for (name, refused) in [("<NJT>k", false), ("<NJT_VALUES>", false), ("k<NJT_OFFSETS>", true)] {
        let jagged = Jagged::new(Tensor::from(vec![1_u8]), Tensor::from(vec![0_i64, 1])).expect("fits");
        assert_eq!(encode(Format::Consolidated, &one(name, jagged)).is_err(), refused, "{name}");
    }
}

#[test]
fn dtypes() {
    for &dtype in DType::ALL {
        let td = one("x", Tensor::zeros(dtype, [2]).expect("small"));
        let quantised = dtype.name().starts_with("qint") || dtype.name().starts_with("quint");
        for format in FORMATS {
            let packs = format == Format::LeafByLeaf || dtype.is_packable();
            match encode(format, &td) {
                Ok(()) => assert!(packs && !quantised, "{dtype}"),
                Err(error) => {
                    assert!(!packs || quantised, "{dtype}: {error}");
                    assert!(matches!(error, EncodeError::DType { dtype: named, .. } if named == dtype));
                }
            }
        }
    }
}

#[test]
fn complex128_only_at_multiples_of_16() {
    let complex = || Tensor::zeros(DType::Complex128, [1]).expect("small");
    let first = tensordict!([]; "c" => complex(), "a" => vec![1_u8]).expect("fits");
    assert_eq!(encode(Format::Consolidated, &first), Ok(()));
    let second = tensordict!([]; "a" => vec![1_u8], "c" => complex()).expect("fits");
    let error = encode(Format::Consolidated, &second).expect_err("at 8");
    assert!(matches!(error, EncodeError::Misaligned { start: 8, .. }));
    assert_eq!(encode(Format::LeafByLeaf, &second), Ok(()));
}

#[test]
fn what_only_one_format_can_carry() {
    let unbatched = one("u", Tensor::from(vec![1_u8]).unbatched());
    assert!(matches!(encode(Format::Consolidated, &unbatched), Err(EncodeError::Unbatched { .. })));
    assert_eq!(encode(Format::LeafByLeaf, &unbatched), Ok(()));

    let jagged = Jagged::new(Tensor::from(vec![1_u8]), Tensor::from(vec![0_i64, 1])).expect("fits");
    let lazy = TensorDict::lazy_stack([dict(), dict()], 0).expect("a stack");
    let batched = NonTensor::new("x").with_batch_size([2_000_000]);
    let large = TensorDict::non_tensor_stack([batched], 0).expect("a stack");
    for td in [lazy.clone(), one("l", lazy), one("j", jagged), one("x", one("e", TensorDict::new([]))), one("v", large)]
    {
        assert_eq!(encode(Format::Consolidated, &td), Ok(()));
        assert!(matches!(encode(Format::LeafByLeaf, &td), Err(EncodeError::NotALeaf { .. })), "{td}");
    }
}

#[test]
fn values() {
    let nested = |levels| (0..levels).fold(Value::Null, |value, _| Value::List(vec![value]));
    for format in FORMATS {
        let big = encode(format, &one("n", Value::BigInt("12x".into())));
        assert!(matches!(big, Err(EncodeError::Integer { ref digits, .. }) if digits == "12x"));
        assert_eq!(encode(format, &one("n", Value::BigInt("9".repeat(4300).into()))), Ok(()));
        assert_eq!(encode(format, &one("n", nested(125))), Ok(()));
        assert_eq!(encode(format, &one("n", nested(126))), Err(EncodeError::TooDeep { limit: 128 }));
    }
}

#[test]
fn every_refusal_is_here() {
    let late = tensordict!([]; "a" => vec![1_u8], "c" => Tensor::zeros(DType::Complex128, [1]).expect("small"));
    let nested = (0..200).fold(dict(), |td, _| one("n", td));
    let refused = [
        (Format::Consolidated, one("cls", dict())),
        (Format::Consolidated, one("<NJT>k", vec![1_u8])),
        (Format::Consolidated, one("x", Tensor::zeros(DType::QInt8, [1]).expect("small"))),
        (Format::Consolidated, late.expect("fits")),
        (Format::Consolidated, one("u", Tensor::from(vec![1_u8]).unbatched())),
        (Format::LeafByLeaf, one("e", TensorDict::new([]))),
        (Format::Consolidated, nested),
        (Format::Consolidated, one("n", Value::BigInt("x".into()))),
    ];
    let errors = refused.iter().map(|(format, td)| encode(*format, td).expect_err("refused"));
    let reached: BTreeSet<_> = errors.map(|error| variants::first_word(&format!("{error:?}"))).collect();
    assert_eq!(reached, variants::of(include_str!("../src/wire/error.rs"), "EncodeError"));
}

#[test]
fn a_refusal_changes_nothing() {
    let good = dict();
    let bad = one("size", dict());
    let mut session = SendSession::new(Format::Consolidated);
    session.encode(&good).expect("sendable");
    session.commit();
    session.encode(&bad).expect_err("refused");
    assert_eq!(session.encode(&good).expect("sendable").flag(), Some(1), "the receiver has it already");
}
