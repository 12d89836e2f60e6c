//! Any TensorDict survives the wire, in every format that takes it.

use proptest::prelude::*;
use std::collections::BTreeMap;

use tensordict_pipe::wire::{EncodeError, Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{DType, Entry, Item, Jagged, NonTensor, Shape, Storage, Tensor, TensorDict, Value};

/// One end and the other, with nothing between them.
struct Link {
    sender: SendSession,
    receiver: RecvSession,
}

impl Link {
    fn new(format: Format) -> Self {
        Self { sender: SendSession::new(format), receiver: RecvSession::new(format, Limits::default()) }
    }

    /// Gives what arrives, and whether a header went with it.
    fn pass(&mut self, td: &TensorDict) -> Result<(TensorDict, bool), EncodeError> {
        let message = self.sender.encode(td)?;
        let announced = message.flag().is_none_or(|flag| self.receiver.accept_flag(flag).expect("a flag"));
        assert_eq!(announced, message.header().is_some());
        if let Some(header) = message.header() {
            assert_eq!(self.receiver.check_header_len(header.len() as u64), Ok(header.len()));
            self.receiver.accept_header(header.as_bytes()).expect("our own header");
        }
        let arrived = match self.receiver.leaf_lens() {
            [] if message.bodies().len() == 1 => {
                let body = message.bodies()[0].bytes();
                assert_eq!(self.receiver.body_len(), Some(body.len()));
                let mut buffer = self.receiver.buffer();
                buffer.bytes_mut().expect("nobody else has it")[..body.len()].copy_from_slice(body);
                self.receiver.finish(buffer)
            }
            lens => {
                assert!(message.bodies().iter().map(|body| body.bytes().len()).eq(lens.iter().copied()));
                let storages: Vec<_> = message.bodies().iter().map(|body| Storage::from_bytes(body.bytes())).collect();
                self.receiver.finish_leaves(&storages)
            }
        };
        self.sender.commit();
        Ok((arrived.expect("a TensorDict"), announced))
    }
}

#[test]
fn an_equal_tree_needs_no_schema_until_it_is_changed() {
    let tree = |x: i64| tensordict_pipe::tensordict!([]; "a" => [x], "n" => { "b" => [x] }).expect("a TensorDict");
    let (first, mut second) = (tree(1), tree(2));
    let mut link = Link::new(Format::Consolidated);
    let mut announced = |td: &TensorDict| {
        let (arrived, announced) = link.pass(td).expect("sendable");
        assert_eq!(&arrived, td);
        announced
    };
    assert_eq!(
        [&first, &second, &second, &first, &tree(3), &second].map(&mut announced),
        [true, false, false, false, false, false]
    );
    second.insert(("n", "c"), [4_i64]).expect("a new key");
    assert_eq!([&second, &second, &first].map(&mut announced), [true, false, true]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_consolidated_message_keeps_everything(td in tensor_dict(vec![2, 1], 3)) {
        for format in [Format::Consolidated, Format::Stateless] {
            match Link::new(format).pass(&td) {
                Ok((arrived, _)) => {
                    prop_assert!(arrived.is_consolidated());
                    prop_assert_eq!(&arrived, &td);
                    prop_assert_eq!(arrived.is_locked(), td.is_locked());
                    prop_assert_eq!(arrived.device(), td.device());
                    prop_assert_eq!(arrived.leaves().len(), td.leaves().len());
                    // A part of it, from the middle of its storage.
                    for (_, entry) in arrived.iter() {
                        if let Entry::Dict(part) | Entry::LazyStack(part) = entry {
                            if let Ok((arrived, _)) = Link::new(format).pass(&part) {
                                prop_assert_eq!(arrived, part);
                            }
                        }
                    }
                    // And once more, now from one storage.
                    prop_assert_eq!(&Link::new(format).pass(&arrived).expect("it came this way").0, &td);
                }
                // The strategy has names and dtypes that are refused.
                Err(
                    EncodeError::ReservedName { .. }
                    | EncodeError::JaggedName { .. }
                    | EncodeError::Misaligned { .. }
                    | EncodeError::Unbatched { .. },
                ) => {}
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }

    #[test]
    fn tensors_lie_at_multiples_of_8_and_fill_the_storage(td in tensor_dict(vec![], 3)) {
        let mut session = SendSession::new(Format::Consolidated);
        let Ok(message) = session.encode(&td) else { return Ok(()) };
        let metadata: serde_json::Value =
            serde_json::from_slice(message.header().expect("the first").as_bytes()).expect("JSON");
        let mut ranges = Vec::new();
        collect_ranges(&metadata, &mut ranges);
        ranges.sort_unstable();
        let mut end = 0;
        for (start, stop) in ranges {
            prop_assert_eq!(start, end);
            prop_assert_eq!(start % 8, 0);
            end = stop;
        }
        prop_assert_eq!(metadata["_total_bytes"].as_u64(), Some(end));
        prop_assert_eq!(message.bodies()[0].bytes().len() as u64, end);
    }

    #[test]
    fn a_leaf_by_leaf_message_keeps_every_tensor_and_value(td in tensor_dict(vec![2], 2)) {
        match Link::new(Format::LeafByLeaf).pass(&td) {
            Ok((arrived, _)) => prop_assert_eq!(by_path(&arrived), by_path(&td)),
            Err(EncodeError::NotALeaf { .. }) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    /// Schemas that change, messages that fail half-way, items that are kept: what arrives is what was sent.
    #[test]
    fn a_stream_stays_in_step(
        tds in prop::collection::vec(tensor_dict(vec![2], 2), 3),
        steps in prop::collection::vec((0..6_usize, any::<bool>(), any::<bool>()), 0..30),
    ) {
        // Each has a twin, which is a tree of its own.
        let twins: Vec<TensorDict> =
            tds.iter().map(|td| Link::new(Format::Consolidated).pass(td).map_or_else(|_| td.clone(), |it| it.0)).collect();
        let mut link = Link::new(Format::Consolidated);
        let mut kept = Vec::new();
        let mut last = None;
        for (index, fails, keep) in steps {
            let td = tds.iter().chain(&twins).nth(index).expect("one of both");
            if fails {
                let _ = link.sender.encode(td); // and never committed
                continue;
            }
            let Ok((arrived, announced)) = link.pass(td) else { continue };
            prop_assert_eq!(&arrived, td);
            prop_assert!(announced || last.is_some());
            if last == Some(index) {
                prop_assert!(!announced, "the same schema again");
            }
            last = Some(index);
            if keep {
                kept.push((arrived, td));
            }
            prop_assert!(kept.iter().all(|(arrived, td)| arrived == *td), "a kept item never changes");
        }
    }

    /// What we write is JSON, and means what `serde_json` takes it for.
    #[test]
    fn values_are_plain_json(value in json_value()) {
        let mut td = TensorDict::new([]);
        td.insert("v", value.clone()).expect("inserts");
        let mut session = SendSession::new(Format::Consolidated);
        let message = session.encode(&td).expect("sendable");
        let metadata: serde_json::Value =
            serde_json::from_slice(message.header().expect("the first").as_bytes()).expect("JSON");
        prop_assert_eq!(&metadata["non_tensors"]["v"][0], &to_serde(&value));
        // serde_json escapes less; we read that too.
        let mut receiver = RecvSession::new(Format::Consolidated, Limits::default());
        receiver.accept_header(metadata.to_string().as_bytes()).expect("the same metadata");
        let arrived = receiver.finish(Storage::zeroed(0)).expect("a TensorDict");
        prop_assert_eq!(arrived.value("v"), Ok(&value));
    }

    #[test]
    fn metadata_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(PARTS.to_vec())), 1..4),
        cut: prop::sample::Index,
        whole: bool,
    ) {
        let mut td = TensorDict::new([2]);
        td.insert("a", vec![1_i64, 2]).expect("fits");
        td.insert(("n", "b"), vec![true, false]).expect("fits");
        td.insert("s", TensorDict::non_tensor_stack(["x", "y"], 0).expect("a stack")).expect("fits");
        for format in [Format::Consolidated, Format::LeafByLeaf] {
            let mut session = SendSession::new(format);
            let mut text = session.encode(&td).expect("sendable").header().expect("the first").as_bytes().to_vec();
            for (at, part) in &changes {
                let at = at.index(text.len());
                let end = (at + part.len()).min(text.len());
                text.splice(at..end, part.bytes());
            }
            if !whole {
                text.truncate(cut.index(text.len()));
            }
            let mut receiver = RecvSession::new(format, Limits::default());
            if receiver.accept_header(&text).is_ok() && format == Format::Consolidated {
                let buffer = receiver.buffer();
                let _ = receiver.finish(buffer);
            }
        }
    }
}

const PARTS: [&str; 16] = [
    "null",
    "-1",
    "0",
    "9",
    "99999999999999999999",
    "{}",
    "[]",
    "\"\"",
    "\"a\"",
    "\\ud800",
    ",",
    ":",
    "}",
    "]",
    "NaN",
    "1e9",
];

fn collect_ranges(dict: &serde_json::Value, ranges: &mut Vec<(u64, u64)>) {
    for (key, value) in dict.as_object().expect("a dict") {
        if key == "leaves" {
            let leaves = value.as_object().expect("leaves").values();
            ranges.extend(leaves.map(|leaf| (leaf[2].as_u64().expect("start"), leaf[3].as_u64().expect("stop"))));
        } else if key != "non_tensors" && value.get("cls").is_some() {
            collect_ranges(value, ranges);
        }
    }
}

/// Tensors and values without the labels that the format does not carry.
fn by_path(td: &TensorDict) -> BTreeMap<Vec<String>, Item> {
    let leaves = td.leaves().into_iter().map(|(path, entry)| {
        let item = match entry {
            Entry::NonTensor(data) => Item::from(data.value().clone()),
            Entry::NonTensorStack(_) => Item::from(entry.to_value().expect("values")),
            entry => entry.to_item(),
        };
        (path, item)
    });
    leaves.collect()
}

fn tensor_dict(batch_size: Vec<usize>, depth: u32) -> BoxedStrategy<TensorDict> {
    let entries = prop::collection::vec((name(), entry(batch_size.clone(), depth)), 0..5);
    let labels = (any::<bool>(), any::<bool>(), prop::option::of(prop::sample::select(vec!["cpu", "cuda:1", "mps"])));
    (entries, labels)
        .prop_map(move |(entries, (locked, named, device))| {
            let mut td = TensorDict::new(batch_size.clone());
            for (name, item) in entries {
                td.insert(name, item).expect("made for this batch size");
            }
            if named && !batch_size.is_empty() {
                td.set_dim_names((0..batch_size.len()).map(|dim| (dim == 0).then_some("time"))).expect("not locked");
            }
            td.set_device(device.map(Into::into));
            if locked {
                td.lock();
            }
            td
        })
        .boxed()
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-e]{1,2}",
        1 => prop::sample::select(vec!["cls", "leaves", "size", "_device", "<NJT_VALUES>k", "<NJT", "0", "", "a.b"])
            .prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn entry(batch_size: Vec<usize>, depth: u32) -> BoxedStrategy<Item> {
    let rank = batch_size.len();
    let rows = batch_size.first().copied();
    let sizes = Shape::from(batch_size.clone());
    let plain = prop_oneof![
        6 => tensor(batch_size.clone()).prop_map(Item::from),
        1 => tensor(vec![]).prop_map(|tensor| Item::from(tensor.unbatched())),
        2 => json_value().prop_map(Item::from),
        1 => json_value().prop_map(move |value| NonTensor::new(value).with_batch_size(sizes.clone()).into()),
    ];
    let mut options = vec![(6, plain.boxed())];
    if let (Some(rows), 1) = (rows, rank) {
        options.push((1, jagged(rows).prop_map(Item::from).boxed()));
        let values = prop::collection::vec(json_value(), rows);
        options.push((1, values.prop_map(|values| stack(TensorDict::non_tensor_stack(values, 0))).boxed()));
    }
    if depth > 0 {
        options.push((2, tensor_dict(batch_size.clone(), depth - 1).prop_map(Item::from).boxed()));
        for dim in 0..rank {
            let mut rest = batch_size.clone();
            let count = rest.remove(dim);
            let elements = prop::collection::vec(tensor_dict(rest, depth - 1), count);
            options.push((1, elements.prop_map(move |elements| stack(TensorDict::lazy_stack(elements, dim))).boxed()));
        }
    }
    prop::strategy::Union::new_weighted(options).boxed()
}

fn stack(made: Result<TensorDict, tensordict_pipe::DataError>) -> Item {
    made.expect("equal batch sizes").into()
}

fn tensor(batch_size: Vec<usize>) -> impl Strategy<Value = Tensor> {
    let dtypes: Vec<DType> = DType::ALL.iter().copied().filter(|dtype| dtype.is_packable()).collect();
    let dtypes: Vec<DType> = dtypes.into_iter().filter(|dtype| !dtype.name().starts_with('q')).collect();
    let dtypes: Vec<DType> = dtypes.into_iter().filter(|dtype| !dtype.name().starts_with("quint")).collect();
    (prop::sample::select(dtypes), prop::collection::vec(0..4_usize, 0..3), any::<u8>()).prop_map(
        move |(dtype, more, seed)| {
            let mut shape = batch_size.clone();
            shape.extend(more);
            let len = shape.iter().product::<usize>() * dtype.item_size();
            let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) & 1).collect();
            Tensor::from_bytes(dtype, shape, &bytes).expect("sized")
        },
    )
}

fn jagged(rows: usize) -> impl Strategy<Value = Jagged> {
    (prop::collection::vec(0..3_i64, rows), any::<bool>()).prop_map(|(sizes, with_lengths)| {
        let mut offsets = vec![0];
        offsets.extend(sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        }));
        let values: Vec<f32> = (0..*offsets.last().expect("not empty")).map(|value| value as f32).collect();
        let lengths = with_lengths.then(|| Tensor::from(sizes));
        Jagged::from_parts(Tensor::from(values), lengths, Tensor::from(offsets), 1).expect("fits")
    })
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-1e6..1e6).prop_map(Value::Float),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Value::Float),
        any::<String>().prop_map(Value::Str),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|entries| Value::Map(entries.into_iter().collect())),
        ]
    })
}

fn to_serde(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Str(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(to_serde).collect(),
        Value::Map(entries) => entries.iter().map(|(key, value)| (key.clone(), to_serde(value))).collect(),
        _ => serde_json::Value::Null,
    }
}
