//! The table of `tensordict_pipe::constructs`: the rows that no other file shows.
#![allow(missing_docs)]

use tensordict_pipe::wire::{EncodeError, Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{tensordict, DType, DataError, Device, Tensor, TensorDict, Value};

const FORMATS: [Format; 3] = [Format::Consolidated, Format::Stateless, Format::LeafByLeaf];

fn refusal(format: Format, td: &TensorDict) -> Option<EncodeError> {
    SendSession::new(format).encode(td).err()
}

#[test]
fn a_tensor_is_dense() {
    let short = Tensor::from_bytes(DType::Float32, [3], &[0; 8]);
    assert!(matches!(short, Err(DataError::Length { .. })), "no bytes are missing");
    let tensor = Tensor::from_strided(&[1_u8, 2, 3, 4], [2, 2], &[1, 2]).expect("in bounds");
    assert_eq!(tensor.bytes(), [1, 3, 2, 4], "and none lie elsewhere");
}

#[test]
fn a_value_is_json() {
    let values = [Value::Null, true.into(), 1.into(), 0.5.into(), "s".into(), Value::List(vec![]), Value::Map(vec![])];
    let names: Vec<_> = values.iter().map(Value::type_name).collect();
    assert_eq!(names, ["NoneType", "bool", "int", "float", "str", "list", "dict"]);
    for value in values {
        let td = tensordict!([]; "v" => value).expect("fits");
        assert!(FORMATS.iter().all(|&format| refusal(format, &td).is_none()));
    }
}

#[test]
fn labels_that_leaf_by_leaf_has_no_place_for() {
    let mut td = tensordict!([2]; "n" => tensordict!([2, 1]; "x" => Tensor::zeros(DType::Int8, [2, 1]).expect("small")).expect("fits"))
        .expect("fits");
    td.set_dim_names([Some("time")]).expect("not locked");
    td.set_device(Device::Cpu);
    td.lock();
    let mut sender = SendSession::new(Format::LeafByLeaf);
    let header = sender.encode(&td).expect("sendable").header().expect("always").clone();
    let mut receiver = RecvSession::new(Format::LeafByLeaf, Limits::default());
    receiver.accept_header(header.as_bytes()).expect("our own");
    let storage = tensordict_pipe::Storage::zeroed(2);
    let arrived = receiver.finish_leaves(&[storage]).expect("a TensorDict");
    assert_eq!(arrived.batch_size()[..], [2]);
    assert_eq!(arrived.dict("n").expect("nested").batch_size()[..], [2], "the root's");
    assert_eq!((arrived.dim_names(), arrived.device(), arrived.is_locked()), (&[None][..], None, false));
}

#[test]
fn depth_has_a_limit() {
    let nested = |levels| {
        (0..levels).fold(tensordict!([]; "x" => vec![1_u8]).expect("fits"), |inner, _| {
            let mut outer = TensorDict::new([]);
            outer.insert("n", inner).expect("fits");
            outer
        })
    };
    for format in FORMATS {
        assert_eq!(refusal(format, &nested(100)), None);
        assert_eq!(refusal(format, &nested(128)), Some(EncodeError::TooDeep { limit: 128 }), "{format:?}");
    }
}

#[test]
fn integers_that_python_does_not_read() {
    for digits in ["9".repeat(4301), "-".to_owned() + &"9".repeat(4301), "12x".to_owned(), String::new()] {
        let td = tensordict!([]; "v" => Value::BigInt(digits.as_str().into())).expect("fits");
        for format in FORMATS {
            assert!(matches!(refusal(format, &td), Some(EncodeError::Integer { .. })), "{format:?}");
        }
    }
}
