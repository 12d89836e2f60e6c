//! [`Value`]s in JSON, both ways.

use super::{Kind, Number, Reader, Writer};
use crate::data::Value;
use crate::wire::{DecodeError, EncodeError, KeyPath};

/// Reads any value. Every element of a list or object counts as an entry.
pub(in crate::wire) fn read_value(reader: &mut Reader<'_>) -> Result<Value, DecodeError> {
    reader.count_entry()?;
    Ok(match reader.peek()? {
        Kind::Null => reader.null().map(|()| Value::Null)?,
        Kind::Bool => Value::Bool(reader.bool()?),
        Kind::Number => match reader.number()? {
            Number::Int(number) => Value::Int(number),
            Number::Big(digits) => Value::BigInt(digits.into()),
            Number::Float(number) => Value::Float(number),
        },
        Kind::Str => Value::Str(reader.string()?.into_owned()),
        Kind::List => {
            let mut items = Vec::new();
            reader.list(|reader| read_value(reader).map(|item| items.push(item)))?;
            Value::List(items)
        }
        Kind::Map => {
            let mut entries = Vec::new();
            reader.map(|reader, key| read_value(reader).map(|value| entries.push((key.into_owned(), value))))?;
            Value::Map(entries)
        }
    })
}

/// Writes any value that Python can read back.
pub(in crate::wire) fn write_value(out: &mut Writer, value: &Value) -> Result<(), EncodeError> {
    match value {
        Value::Null => out.null(),
        Value::Bool(flag) => out.bool(*flag),
        Value::Int(number) => out.int(number),
        Value::BigInt(digits) if is_integer(digits) => out.int(digits),
        Value::BigInt(digits) => {
            let digits = digits.chars().take(32).collect();
            return Err(EncodeError::Integer { path: KeyPath::default(), digits });
        }
        Value::Float(number) => out.float(*number),
        Value::Str(text) => out.string(text),
        Value::List(items) => return out.list(|out| items.iter().try_for_each(|item| write_value(out, item))),
        Value::Map(entries) => {
            return out.map(|out| {
                entries.iter().try_for_each(|(key, value)| {
                    out.key(key);
                    write_value(out, value)
                })
            });
        }
    }
    Ok(())
}

/// Whether Python reads the text as an integer.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = digits == "0" || !digits.starts_with('0');
    canonical && (1..=MAX_DIGITS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Python refuses to read integers with more digits (`sys.get_int_max_str_digits`).
const MAX_DIGITS: usize = 4300;
