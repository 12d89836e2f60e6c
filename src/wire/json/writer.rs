//! [`Writer`]: the text that Python's `json.dumps` would write, to the byte.

use std::fmt::Write as _;

use crate::wire::limits::MAX_DEPTH;
use crate::wire::EncodeError;

/// Builds a JSON text: `", "` and `": "` between its parts, everything beyond ASCII escaped, floats as Python's `repr`.
#[derive(Debug)]
pub(in crate::wire) struct Writer {
    out: String,
    first: bool,
    depth: usize,
    deepest: usize,
}

impl Writer {
    pub(in crate::wire) fn new() -> Self {
        Self { out: String::new(), first: true, depth: 0, deepest: 0 }
    }

    /// The text, if it is not nested deeper than any receiver of ours reads.
    pub(in crate::wire) fn finish(self) -> Result<String, EncodeError> {
        if self.deepest > MAX_DEPTH {
            return Err(EncodeError::TooDeep { limit: MAX_DEPTH });
        }
        Ok(self.out)
    }

    pub(in crate::wire) fn map<R>(&mut self, entries: impl FnOnce(&mut Self) -> R) -> R {
        self.between('{', '}', entries)
    }

    pub(in crate::wire) fn list<R>(&mut self, items: impl FnOnce(&mut Self) -> R) -> R {
        self.between('[', ']', items)
    }

    /// The key of the value written next.
    pub(in crate::wire) fn key(&mut self, key: &str) {
        self.string(key);
        self.out.push_str(": ");
        self.first = true;
    }

    pub(in crate::wire) fn null(&mut self) {
        self.raw("null");
    }

    pub(in crate::wire) fn bool(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    pub(in crate::wire) fn int(&mut self, value: impl std::fmt::Display) {
        self.separate();
        let _ = write!(self.out, "{value}");
    }

    pub(in crate::wire) fn ints<T: std::fmt::Display>(&mut self, values: impl IntoIterator<Item = T>) {
        self.list(|out| values.into_iter().for_each(|value| out.int(value)));
    }

    pub(in crate::wire) fn float(&mut self, value: f64) {
        self.separate();
        push_float(&mut self.out, value);
    }

    pub(in crate::wire) fn string(&mut self, text: &str) {
        self.separate();
        self.out.push('"');
        push_escaped(&mut self.out, text);
        self.out.push('"');
    }

    fn raw(&mut self, word: &str) {
        self.separate();
        self.out.push_str(word);
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push_str(", ");
        }
    }

    fn between<R>(&mut self, open: char, close: char, inside: impl FnOnce(&mut Self) -> R) -> R {
        self.separate();
        self.out.push(open);
        self.first = true;
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        let result = inside(self);
        self.depth -= 1;
        self.out.push(close);
        self.first = false;
        result
    }
}

fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
}

/// Python's `repr`: the shortest digits that read back as the same number, with an exponent of at least two digits
/// below 1e-4 and from 1e16 on.
fn push_float(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
        // `Debug` adds the ".0" of a whole number, and switches to exponents only outside this range.
        let _ = write!(out, "{value:?}");
    } else {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
    }
}
