//! The dump of a TensorDict, to the letter the one of `tests/interop/peer.py`, which specifies it.

use std::fmt::Write;

use serde_json::json;
use tensordict_pipe::{Device, Entry, Kind, NonTensor, Shape, TensorDict, TensorView, Value};

/// The lines of a TensorDict; with `whole` all bytes in hexadecimal, for a comparison to the bit.
pub(crate) fn lines(td: &TensorDict, whole: bool) -> String {
    let mut dump = Dump { text: String::new(), whole };
    dump.node(td, &mut Vec::new());
    dump.text
}

struct Dump {
    text: String,
    whole: bool,
}

impl Dump {
    fn node(&mut self, td: &TensorDict, path: &mut Vec<String>) {
        let locked = td.is_locked();
        let count = td.len();
        let kind = match td.kind() {
            Kind::Dict => {
                let names = json!(td.dim_names());
                let (batch, device) = (sizes(td.batch_size()), device(td.device()));
                self.line(
                    path,
                    format!("dict batch={batch} names={names} device={device} locked={locked} entries={count}"),
                );
                let mut entries: Vec<_> = td.iter().collect();
                entries.sort_by_key(|(_, entry)| rank(entry));
                entries.iter().for_each(|(name, entry)| self.child(name, entry, path));
                return;
            }
            Kind::LazyStack => "lazy-stack",
            _ => "value-stack",
        };
        let (dim, name) = (json!(td.stack_dim()), json!(td.stack_dim_name()));
        self.line(path, format!("{kind} dim={dim} name={name} locked={locked} entries={count}"));
        td.elements().enumerate().for_each(|(index, element)| self.child(&index.to_string(), &element, path));
    }

    fn child(&mut self, name: &str, entry: &Entry<'_>, path: &mut Vec<String>) {
        path.push(name.to_owned());
        match entry {
            Entry::Tensor(tensor) if tensor.is_unbatched() => self.tensor("unbatched", *tensor, path),
            Entry::Tensor(tensor) => self.tensor("tensor", *tensor, path),
            Entry::Jagged(jagged) => {
                let lengths = jagged.lengths();
                self.line(path, format!("jagged ragged={} lengths={}", jagged.ragged_index(), lengths.is_some()));
                let parts =
                    [("values", Some(jagged.values())), ("lengths", lengths), ("offsets", Some(jagged.offsets()))];
                for (name, part) in parts {
                    if let Some(part) = part {
                        path.push(name.to_owned());
                        self.tensor("tensor", part, path);
                        path.pop();
                    }
                }
            }
            Entry::NonTensor(data) => self.value(data, path),
            Entry::Dict(td) | Entry::LazyStack(td) | Entry::NonTensorStack(td) => self.node(td, path),
            other => self.line(path, format!("unknown {other:?}")),
        }
        path.pop();
    }

    fn tensor(&mut self, kind: &str, tensor: TensorView<'_>, path: &[String]) {
        let bytes = tensor.bytes();
        let shown = match self.whole || bytes.len() <= 64 {
            true => hex(bytes),
            false => format!("{}:{:08x}", bytes.len(), crc32(bytes)),
        };
        self.line(path, format!("{kind} dtype={} shape={} bytes={shown}", tensor.dtype(), sizes(tensor.shape())));
    }

    fn value(&mut self, data: &NonTensor, path: &[String]) {
        let (batch, device, value) = (sizes(data.batch_size()), device(data.device()), spelt(data.value()));
        self.line(path, format!("value batch={batch} device={device} value={value}"));
    }

    fn line(&mut self, path: &[String], rest: String) {
        self.text.push_str(&format!("{} {rest}\n", json!(path)));
    }
}

fn rank(entry: &Entry<'_>) -> u8 {
    match entry {
        Entry::NonTensor(_) => 0,
        Entry::Tensor(_) | Entry::Jagged(_) => 1,
        _ => 2,
    }
}

fn sizes(shape: &Shape) -> serde_json::Value {
    json!(shape[..])
}

fn device(device: Option<&Device>) -> serde_json::Value {
    json!(device.map(ToString::to_string))
}

/// A value with its type.
fn spelt(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(flag) => json!(flag),
        Value::Int(number) => json!({"int": number.to_string()}),
        Value::BigInt(digits) => json!({"int": digits}),
        Value::Float(number) if number.is_nan() => json!({"float": "nan"}),
        Value::Float(number) => json!({"float": format!("{:016x}", number.to_bits())}),
        Value::Str(text) => json!({"str": text}),
        Value::List(elements) => json!({"list": elements.iter().map(spelt).collect::<Vec<_>>()}),
        Value::Map(pairs) => {
            json!({"map": pairs.iter().map(|(key, item)| json!([key, spelt(item)])).collect::<Vec<_>>()})
        }
        _ => serde_json::Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The one of zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
