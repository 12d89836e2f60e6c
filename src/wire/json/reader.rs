//! [`Reader`]: takes a JSON text apart, one value at a time, without building a tree.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::wire::{DecodeError, Limits};

/// A cursor in a JSON text. The caller asks for what it expects; anything else is an error.
///
/// Strings are borrowed from the text unless they hold escapes. Nesting and the number of entries are limited.
#[derive(Debug)]
pub(in crate::wire) struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    entries: usize,
    limits: Limits,
    lone_surrogate: bool,
}

/// What stands at the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::wire) enum Kind {
    Null,
    Bool,
    Number,
    Str,
    List,
    Map,
}

/// A number: `Big` is an integer beyond `i64`, in decimal digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::wire) enum Number<'a> {
    Int(i64),
    Big(&'a str),
    Float(f64),
}

impl<'a> Reader<'a> {
    pub(in crate::wire) fn new(json: &'a [u8], limits: Limits) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(json)
            .map_err(|error| DecodeError::Json { offset: error.valid_up_to(), problem: "not UTF-8" })?;
        Ok(Self { text, at: 0, depth: 0, entries: 0, limits, lone_surrogate: false })
    }

    /// The kind of the next value, from its first character.
    pub(in crate::wire) fn peek(&mut self) -> Result<Kind, DecodeError> {
        match self.next_byte() {
            Some(b'n') => Ok(Kind::Null),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'-' | b'0'..=b'9' | b'N' | b'I') => Ok(Kind::Number),
            Some(b'"') => Ok(Kind::Str),
            Some(b'[') => Ok(Kind::List),
            Some(b'{') => Ok(Kind::Map),
            _ => Err(self.error("expected a value")),
        }
    }

    pub(in crate::wire) fn null(&mut self) -> Result<(), DecodeError> {
        self.literal("null")
    }

    pub(in crate::wire) fn bool(&mut self) -> Result<bool, DecodeError> {
        let value = self.next_byte() == Some(b't');
        self.literal(if value { "true" } else { "false" })?;
        Ok(value)
    }

    pub(in crate::wire) fn number(&mut self) -> Result<Number<'a>, DecodeError> {
        match self.next_byte() {
            Some(b'N') => return self.literal("NaN").map(|()| Number::Float(f64::NAN)),
            Some(b'I') => return self.literal("Infinity").map(|()| Number::Float(f64::INFINITY)),
            _ => {}
        }
        let start = self.at;
        self.take(b'-');
        if self.at > start && self.byte() == Some(b'I') {
            return self.literal("Infinity").map(|()| Number::Float(f64::NEG_INFINITY));
        }
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut integer = true;
        if self.take(b'.') {
            integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            integer = false;
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let digits = &self.text[start..self.at];
        if integer {
            Ok(digits.parse().map_or(Number::Big(digits), Number::Int))
        } else {
            digits.parse().map(Number::Float).map_err(|_| self.error("a number that is none"))
        }
    }

    pub(in crate::wire) fn string(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        self.expect(b'"', "expected a string")?;
        let plain = self.plain()?;
        if self.take(b'"') {
            return Ok(Cow::Borrowed(plain));
        }
        let mut owned = String::from(plain);
        while !self.take(b'"') {
            self.escape(&mut owned)?;
            owned.push_str(self.plain()?);
        }
        Ok(Cow::Owned(owned))
    }

    /// Reads a list; `item` must consume one element each time it is called.
    pub(in crate::wire) fn list<E: From<DecodeError>>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[', "expected a list")?;
        self.enter()?;
        self.skip_space();
        if !self.take(b']') {
            loop {
                item(self)?;
                self.skip_space();
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b']', "expected ',' or ']'")?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads an object; `entry` gets each key and must consume its value. Repeated keys are the caller's business.
    pub(in crate::wire) fn map<E: From<DecodeError>>(
        &mut self,
        mut entry: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "expected an object")?;
        self.enter()?;
        self.skip_space();
        if !self.take(b'}') {
            loop {
                let key = self.string()?;
                self.expect(b':', "expected ':'")?;
                entry(self, key)?;
                self.skip_space();
                if !self.take(b',') {
                    break;
                }
            }
            self.expect(b'}', "expected ',' or '}'")?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Checks that nothing follows.
    pub(in crate::wire) fn end(&mut self) -> Result<(), DecodeError> {
        match self.next_byte() {
            None => Ok(()),
            Some(_) => Err(self.error("expected the end")),
        }
    }

    /// Counts one entry against the limit.
    pub(in crate::wire) fn count_entry(&mut self) -> Result<(), DecodeError> {
        self.entries += 1;
        if self.entries > self.limits.leaves {
            return Err(DecodeError::TooManyLeaves { limit: self.limits.leaves });
        }
        Ok(())
    }

    /// Whether a string since the last call held half of a surrogate pair, which stands in it as U+FFFD and its number.
    pub(in crate::wire) fn take_lone_surrogate(&mut self) -> bool {
        std::mem::take(&mut self.lone_surrogate)
    }

    /// An error at the cursor.
    pub(in crate::wire) fn error(&self, problem: &'static str) -> DecodeError {
        DecodeError::Json { offset: self.at, problem }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next_byte(&mut self) -> Option<u8> {
        self.skip_space();
        self.byte()
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let taken = self.byte() == Some(byte);
        self.at += usize::from(taken);
        taken
    }

    fn expect(&mut self, byte: u8, problem: &'static str) -> Result<(), DecodeError> {
        self.skip_space();
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.error(problem))
        }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), DecodeError> {
        self.skip_space();
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.error("an unknown word"));
        }
        self.at += word.len();
        Ok(())
    }

    fn digits(&mut self) -> Result<(), DecodeError> {
        let start = self.at;
        while matches!(self.byte(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error("expected a digit"));
        }
        Ok(())
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        if self.depth >= self.limits.depth {
            return Err(DecodeError::TooDeep { limit: self.limits.depth });
        }
        self.depth += 1;
        Ok(())
    }

    /// The part of a string up to its end or its next escape.
    fn plain(&mut self) -> Result<&'a str, DecodeError> {
        let rest = &self.text.as_bytes()[self.at..];
        let Some(len) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)) else {
            return Err(self.error("a string without end"));
        };
        if rest[len] < 0x20 {
            return Err(self.error("a control character in a string"));
        }
        let plain = &self.text[self.at..self.at + len];
        self.at += len;
        Ok(plain)
    }

    fn escape(&mut self, out: &mut String) -> Result<(), DecodeError> {
        self.expect(b'\\', "expected an escape")?;
        let byte = self.byte();
        self.at += 1;
        out.push(match byte {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(out),
            _ => return Err(self.error("an unknown escape")),
        });
        Ok(())
    }

    /// The character of `\uXXXX`, after the `u`; of two of them when they are a surrogate pair.
    fn unicode(&mut self, out: &mut String) -> Result<(), DecodeError> {
        let unit = self.hex()?;
        let mut code = u32::from(unit);
        if (0xd800..0xdc00).contains(&unit) && self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            let first = self.at;
            self.at += 2;
            let low = self.hex()?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10) + (u32::from(low) - 0xdc00);
            } else {
                self.at = first;
            }
        }
        match char::from_u32(code) {
            Some(c) => out.push(c),
            None => {
                // Its number keeps names apart that differ only in it.
                self.lone_surrogate = true;
                let _ = write!(out, "\u{fffd}{unit:04x}");
            }
        }
        Ok(())
    }

    fn hex(&mut self) -> Result<u16, DecodeError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        let mut unit = 0;
        for &digit in digits {
            let Some(value) = char::from(digit).to_digit(16) else { return Err(self.error("expected a hex digit")) };
            unit = unit << 4 | value as u16;
        }
        if digits.len() < 4 {
            return Err(self.error("expected four hex digits"));
        }
        self.at += 4;
        Ok(unit)
    }
}
