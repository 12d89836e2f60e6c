//! The frozen messages of the Python peer (see `golden/make.py`): read to the same values, written to the same bytes.

use std::fs;
use std::path::{Path, PathBuf};

use tensordict_pipe::wire::{DecodeError, Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{Storage, TensorDict};

/// One case: the messages and, if Rust can hold them, the values.
struct Case {
    name: String,
    header: Vec<u8>,
    bytes: Vec<u8>,
    expected: Option<serde_json::Value>,
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
        let (header, bytes) = send(Format::Consolidated, &td);
        assert_eq!(text(&header), text(&case.header), "{}", case.name);
        assert_eq!(bytes, case.bytes, "{}", case.name);
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

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}
