use proptest::prelude::*;

use super::{read_value, write_value, Reader, Writer};
use crate::data::Value;
use crate::wire::{DecodeError, EncodeError, Limits};

fn read(json: &str) -> Result<Value, DecodeError> {
    let mut reader = Reader::new(json.as_bytes(), Limits::default())?;
    let value = read_value(&mut reader)?;
    reader.end().map(|()| value)
}

fn write(value: &Value) -> Result<String, EncodeError> {
    let mut out = Writer::new();
    write_value(&mut out, value)?;
    out.finish()
}

/// Each text is what `json.dumps(json.loads(text))` gives in Python.
#[test]
fn what_python_writes_is_read_and_written_again() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "-123456789012345678901234567890",
        "0.0",
        "-0.0",
        "1.0",
        "0.1",
        "1e-05",
        "0.0001",
        "123456.789",
        "1000000000000000.0",
        "1e+16",
        "1.5e+300",
        "5e-324",
        "2.2250738585072014e-308",
        "1.7976931348623157e+308",
        "9007199254740992.0",
        "8941883652056.312",
        "-247.55166625976562",
        "5.684341886080802e-14",
        "NaN",
        "Infinity",
        "-Infinity",
        r#""""#,
        r#""a\"\\\b\f\n\r\t/\u0000\u001f\u007f""#,
        r#""gr\u00fc\u00df \ud83e\udd80""#,
        "[]",
        "{}",
        r#"[1, [2, {"a": null, "": []}], "x"]"#,
    ] {
        assert_eq!(write(&read(text).expect(text)).expect(text), text);
    }
}

#[test]
fn other_spellings_mean_the_same() {
    for (text, same) in [
        (" [ 1 ,\t2\r\n] ", "[1, 2]"),
        ("1E2", "100.0"),
        ("1e400", "Infinity"),
        ("-0", "0"),
        (r#""\/\u00FC""#, r#""/\u00fc""#),
        ("\"\u{fc}\"", r#""\u00fc""#),
        (r#"{"a": 1, "a": 2}"#, r#"{"a": 1, "a": 2}"#),
    ] {
        assert_eq!(write(&read(text).expect(text)).expect(text), same);
    }
}

#[test]
fn what_python_refuses_is_refused() {
    for text in [
        "",
        " ",
        "nul",
        "tru",
        "-",
        "+1",
        "01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "--1",
        "0x10",
        "inf",
        "nan",
        "-NaN",
        "\"",
        "\"\\\"",
        r#""\x""#,
        r#""\u12""#,
        r#""\u12g4""#,
        "\"\n\"",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,]",
        "[1 2]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{a:1}",
        "{1:2}",
        "]",
        "}",
        "1 1",
        "'a'",
        "\u{feff}1",
        "// 1",
    ] {
        assert!(matches!(read(text), Err(DecodeError::Json { .. })), "{text:?}");
    }
    let invalid = Reader::new(b"\"\xff\"", Limits::default());
    assert!(matches!(invalid, Err(DecodeError::Json { offset: 1, .. })));
}

#[test]
fn a_lone_surrogate_is_told() {
    for (text, held) in [
        (r#""\ud800""#, "\u{fffd}d800"),
        (r#""a\udfffb""#, "a\u{fffd}dfffb"),
        (r#""\ud800\ud800\udc00""#, "\u{fffd}d800\u{10000}"),
        (r#""\ud800\n""#, "\u{fffd}d800\n"),
    ] {
        let mut reader = Reader::new(text.as_bytes(), Limits::default()).expect("UTF-8");
        assert_eq!(reader.string().expect("a string"), held);
        assert!(reader.take_lone_surrogate());
        assert!(!reader.take_lone_surrogate());
    }
}

#[test]
fn nesting_is_limited_in_both_directions() {
    let nested = |levels| "[".repeat(levels) + &"]".repeat(levels);
    assert!(read(&nested(128)).is_ok());
    assert_eq!(read(&nested(129)), Err(DecodeError::TooDeep { limit: 128 }));
    assert_eq!(read(&"[".repeat(1 << 20)), Err(DecodeError::TooDeep { limit: 128 }));
    assert_eq!(read(&"{\"a\":".repeat(1 << 20)), Err(DecodeError::TooDeep { limit: 128 }));
    let deep = (0..300).fold(Value::Null, |value, _| Value::List(vec![value]));
    assert_eq!(write(&deep), Err(EncodeError::TooDeep { limit: 128 }));
}

#[test]
fn the_deepest_nesting_fits_a_small_stack() {
    let levels = 128;
    let text = "[".repeat(levels) + &"]".repeat(levels);
    let read = move || {
        let limits = Limits::default().max_depth(usize::MAX);
        read_value(&mut Reader::new(text.as_bytes(), limits)?).map(drop)
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(read).expect("a thread");
    assert_eq!(thread.join().expect("no overflow"), Ok(()));
}

#[test]
fn entries_are_limited() {
    let limits = Limits::default().max_leaves(3);
    let read = |text: &str| read_value(&mut Reader::new(text.as_bytes(), limits)?);
    assert!(read("[1, 2]").is_ok());
    assert_eq!(read("[1, 2, 3]"), Err(DecodeError::TooManyLeaves { limit: 3 }));
}

#[test]
fn integers_that_python_does_not_read_are_refused() {
    for digits in ["", "-", "1a", "01", "+1", "1.5", &"9".repeat(4301)] {
        assert!(matches!(write(&Value::BigInt(digits.into())), Err(EncodeError::Integer { .. })), "{digits}");
    }
    assert!(write(&Value::BigInt("9".repeat(4300).into())).is_ok());
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>, text in r#"[\[\]{}",:\\u0-9a-fNI.eE+ -]{0,40}"#) {
        for json in [&bytes[..], text.as_bytes()] {
            if let Ok(mut reader) = Reader::new(json, Limits::default()) {
                let _ = read_value(&mut reader);
            }
        }
    }
}
