//! The frozen messages of the Python peer (see `golden/make.py`): read to the same values, written to the same bytes.

use serde_json::{json, Map, Value as Json};
use std::fs;
use std::path::{Path, PathBuf};

use tensordict_pipe::wire::{DecodeError, Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{Device, Entry, Kind, Storage, TensorDict, TensorView, Value};

/// One case: the messages and, if Rust can hold them, the values.
struct Case {
    name: String,
    header: Vec<u8>,
    bytes: Vec<u8>,
    expected: Option<Json>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn cases(folder_name: &str, header: &str, bytes: &str) -> Vec<Case> {
    let folder = folder().join(folder_name);
    let mut cases = Vec::new();
    for file in fs::read_dir(&folder).expect("golden folder") {
        let file = file.expect("entry").file_name().into_string().expect("UTF-8");
        let Some(name) = file.strip_suffix(&format!(".{header}.json")) else { continue };
        cases.push(Case {
            name: name.to_owned(),
            header: fs::read(folder.join(&file)).expect("header"),
            bytes: fs::read(folder.join(format!("{name}.{bytes}.bin"))).expect("bytes"),
            expected: fs::read(folder.join(format!("{name}.expected.json")))
                .ok()
                .map(|text| serde_json::from_slice(&text).expect("expected values")),
        });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() > 10, "{folder:?} has its files");
    cases
}

fn receive(format: Format, header: &[u8], bytes: &[u8]) -> Result<TensorDict, DecodeError> {
    let mut session = RecvSession::new(format, Limits::default());
    session.accept_header(header)?;
    if format != Format::LeafByLeaf {
        assert_eq!(session.body_len(), Some(bytes.len()));
        return session.finish(Storage::from_bytes(bytes));
    }
    let mut rest = bytes;
    let mut storages = Vec::new();
    for &len in session.leaf_lens() {
        let (leaf, after) = rest.split_at(len);
        storages.push(Storage::from_bytes(leaf));
        rest = after;
    }
    assert!(rest.is_empty());
    session.finish_leaves(&storages)
}

/// The same with tensors that are not consolidated, where that is possible without a trace.
fn loosened(mut td: TensorDict) -> TensorDict {
    if td.kind() == Kind::Dict && !td.is_locked() {
        td.insert("passing through", TensorDict::new(td.batch_size())).expect("not locked");
        td.remove("passing through").expect("just inserted");
        assert!(!td.is_consolidated());
    }
    td
}

/// The header and the bodies one after the other.
fn send(format: Format, td: &TensorDict) -> (Vec<u8>, Vec<u8>) {
    let mut session = SendSession::new(format);
    let message = session.encode(td).expect("what Python sent can be sent");
    let header = message.header().expect("the first message has one").as_bytes().to_vec();
    (header, message.bodies().iter().flat_map(|body| body.bytes().to_vec()).collect())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn consolidated_messages_are_read_and_written_again() {
    for case in cases("consolidated", "metadata", "storage") {
        let received = receive(Format::Consolidated, &case.header, &case.bytes);
        if case.expected.is_none() {
            let error = received.err().unwrap_or_else(|| panic!("{}: Rust cannot hold this", case.name));
            assert!(error.is_recoverable(), "{}: {error}", case.name);
            continue;
        }
        let td = received.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        assert_eq!(Some(describe(&td)), case.expected, "{}", case.name);
        for td in [loosened(td.clone()), td] {
            let (header, bytes) = send(Format::Consolidated, &td);
            assert_eq!(text(&header), text(&case.header), "{}", case.name);
            assert_eq!(bytes, case.bytes, "{}", case.name);
        }
    }
}

#[test]
fn stateless_messages_lack_the_last_two_fields() {
    for case in cases("consolidated", "metadata", "storage").into_iter().filter(|case| case.expected.is_some()) {
        let whole = text(&case.header);
        let cut = &whole[..whole.rfind(r#", "_total_bytes""#).expect("the field")];
        let metadata = format!("{cut}}}");
        let td = receive(Format::Stateless, metadata.as_bytes(), &case.bytes).expect("the same message");
        if case.name.starts_with("reserved_as") {
            // Python's stateless receiver fails on this one.
            SendSession::new(Format::Stateless).encode(&td).expect_err("refused");
            continue;
        }
        let (header, bytes) = send(Format::Stateless, &td);
        assert_eq!(text(&header), metadata, "{}", case.name);
        assert_eq!(bytes, case.bytes, "{}", case.name);
    }
}

#[test]
fn leaf_by_leaf_messages_are_read_and_written_again() {
    for case in cases("leaves", "header", "bodies") {
        let td = receive(Format::LeafByLeaf, &case.header, &case.bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", case.name));
        assert_eq!(Some(describe(&td)), case.expected, "{}", case.name);
        let (header, bytes) = send(Format::LeafByLeaf, &td);
        assert_eq!(text(&header), text(&case.header), "{}", case.name);
        assert_eq!(bytes, case.bytes, "{}", case.name);
    }
}

/// `stream.json`: what one Python pipe sent, message by message.
#[test]
fn a_stream_is_followed_and_sent_again() {
    let log = fs::read(folder().join("stream.json")).expect("stream");
    let log: Vec<Vec<String>> = serde_json::from_slice(&log).expect("lists of hex");
    let mut receiver = RecvSession::new(Format::Consolidated, Limits::default());
    let mut sender = SendSession::new(Format::Consolidated);
    for messages in log {
        let messages: Vec<Vec<u8>> = messages.iter().map(|hex| unhex(hex)).collect();
        if receiver.accept_flag(messages[0][0]).expect("flag") {
            let len = u64::from_le_bytes(messages[1].as_slice().try_into().expect("8 bytes"));
            assert_eq!(receiver.check_header_len(len), Ok(messages[2].len()));
            receiver.accept_header(&messages[2]).expect("metadata");
        }
        let body = messages.last().expect("a storage");
        let mut buffer = receiver.buffer();
        assert_eq!(receiver.body_len(), Some(body.len()));
        buffer.make_mut()[..body.len()].copy_from_slice(body);
        let td = receiver.finish(buffer).expect("a TensorDict");

        let message = sender.encode(&td).expect("sendable");
        let mut sent = vec![vec![message.flag().expect("a flag")]];
        if let Some(header) = message.header() {
            sent.push((header.len() as u64).to_le_bytes().to_vec());
            sent.push(header.as_bytes().to_vec());
        }
        sent.extend(message.bodies().iter().map(|body| body.bytes().to_vec()));
        assert_eq!(sent, messages);
        sender.commit();
    }
}

/// The twin of `describe` in `make.py`.
fn describe(td: &TensorDict) -> Json {
    if td.kind() != Kind::Dict {
        return json!({
            "kind": if td.kind() == Kind::LazyStack { "lazy stack" } else { "non-tensor stack" },
            "stack_dim": td.stack_dim(),
            "name": td.stack_dim_name(),
            "locked": td.is_locked(),
            "items": td.elements().map(|entry| describe_entry(&entry)).collect::<Json>(),
        });
    }
    let entries: Map<String, Json> = td.iter().map(|(name, entry)| (name.to_owned(), describe_entry(&entry))).collect();
    json!({
        "kind": "dict",
        "batch_size": td.batch_size()[..],
        "names": td.dim_names(),
        "device": td.device().map(Device::to_string),
        "locked": td.is_locked(),
        "entries": entries,
    })
}

fn describe_entry(entry: &Entry<'_>) -> Json {
    match entry {
        Entry::Tensor(view) => tensor(if view.is_unbatched() { "unbatched" } else { "tensor" }, *view),
        Entry::Jagged(view) => json!({
            "kind": "jagged",
            "values": tensor("", view.values()),
            "offsets": tensor("", view.offsets()),
            "lengths": view.lengths().map(|lengths| tensor("", lengths)),
            "ragged": view.ragged_index(),
        }),
        Entry::NonTensor(data) => json!({
            "kind": "value",
            "value": value(data.value()),
            "batch_size": data.batch_size()[..],
            "device": data.device().map(Device::to_string),
        }),
        Entry::Dict(td) | Entry::LazyStack(td) | Entry::NonTensorStack(td) => describe(td),
        other => panic!("{other:?}"),
    }
}

fn tensor(kind: &str, view: TensorView<'_>) -> Json {
    let bytes: String = view.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut tensor = Map::new();
    if !kind.is_empty() {
        tensor.insert("kind".to_owned(), kind.into());
    }
    tensor.insert("dtype".to_owned(), view.dtype().to_string().into());
    tensor.insert("shape".to_owned(), view.shape().iter().copied().collect());
    tensor.insert("bytes".to_owned(), bytes.into());
    tensor.into()
}

fn value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => json!({"int": number.to_string()}),
        Value::BigInt(digits) => json!({"int": digits}),
        Value::Float(number) if number.is_nan() => json!({"float": "nan"}),
        Value::Float(number) => json!({"float": format!("{:016x}", number.to_bits())}),
        Value::Str(text) => json!({"str": text}),
        Value::List(items) => json!({"list": items.iter().map(self::value).collect::<Json>()}),
        Value::Map(entries) => {
            json!({"map": entries.iter().map(|(key, item)| json!([key, self::value(item)])).collect::<Json>()})
        }
        other => panic!("{other:?}"),
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}
