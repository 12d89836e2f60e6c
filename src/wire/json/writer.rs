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
        return out.push_str("NaN");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let text = shortest(value);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let digits = match digits.strip_prefix('-') {
        Some(digits) => {
            out.push('-');
            digits.replace('.', "")
        }
        None => digits.replace('.', ""),
    };
    let Ok(point) = usize::try_from(exponent) else {
        out.push_str("0.");
        out.extend((exponent + 1..0).map(|_| '0'));
        return out.push_str(&digits);
    };
    let (whole, fraction) = digits.split_at((point + 1).min(digits.len()));
    let _ = write!(out, "{whole:0<width$}.{}", if fraction.is_empty() { "0" } else { fraction }, width = point + 1);
}

/// The shortest digits, in the form `-1.5e-7`.
///
/// Rust's own choice, except where two are equally short and equally near: there Python takes the even one, which is
/// what rounding the exact value to that many digits gives.
fn shortest(value: f64) -> String {
    let shortest = format!("{value:e}");
    let mantissa = shortest.split('e').next().unwrap_or_default();
    let precision = mantissa.split('.').nth(1).map_or(0, str::len);
    let rounded = format!("{value:.precision$e}");
    if rounded.parse() == Ok(value) {
        rounded
    } else {
        shortest
    }
}
