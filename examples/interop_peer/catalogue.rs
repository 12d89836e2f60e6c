//! The TensorDicts that are sent, each with a name. Leaf by leaf the entries arrive sorted, so here they are.

use half::{bf16, f16};
use tensordict_pipe::{tensordict, DType, DataError, Device, Jagged, NonTensor, Shape, Tensor, TensorDict, Value};

type Result<T, E = DataError> = std::result::Result<T, E>;
type Named = Vec<(String, TensorDict)>;

/// Everything that the kind of pipe carries.
pub(crate) fn all(consolidated: bool) -> Result<Named> {
    let mut named = Vec::new();
    plain(&mut named)?;
    values(&mut named)?;
    sequences(&mut named)?;
    if consolidated {
        labels(&mut named)?;
        stacks(&mut named)?;
        jagged(&mut named)?;
    } else {
        leaves_only(&mut named)?;
    }
    add(&mut named, "last", tensordict!([]; "done" => [true])?);
    Ok(named)
}

/// Messages of one structure whose numbers all depend on the step.
pub(crate) fn steady(step: usize) -> Result<TensorDict> {
    tensordict!([4];
        "frame" => Tensor::from_slice(&[(step % 251) as u8; 36], [4, 9])?,
        "obs" => floats([4, 21], step),
        "step" => [step as i64; 4],
        "next" => { "reward" => Tensor::from_slice(&[step as f64 / 8.0; 4], [4, 1])? },
    )
}

fn plain(named: &mut Named) -> Result<()> {
    add(named, "empty", TensorDict::new([]));
    add(named, "one", tensordict!([3]; "obs" => floats([3, 4], 1))?);
    add(named, "one again", tensordict!([3]; "obs" => floats([3, 4], 100))?);
    add(named, "empty again", TensorDict::new([]));
    let nested = tensordict!([3];
        "obs" => floats([3, 2], 1),
        "info" => { "reward" => floats([3, 1], 1), "x" => { "done" => [false, true, true] } },
    )?;
    add(named, "nested", nested);
    let dtypes = tensordict!([];
        "bfloat16" => [1.0, -2.5, f32::INFINITY].map(bf16::from_f32),
        "bool" => [true, false, true],
        // Python can pack this one only at a multiple of 16.
        "complex128" => complex(DType::Complex128, &[1.0_f64, 2.0, 3.0, -4.0].map(f64::to_le_bytes))?,
        "complex32" => complex(DType::Complex32, &[1.0, 2.0, 3.0, -4.0].map(|x| f16::from_f32(x).to_le_bytes()))?,
        "complex64" => complex(DType::Complex64, &[1.0_f32, 2.0, 3.0, -4.0].map(f32::to_le_bytes))?,
        "float16" => [1.0, -2.5, f32::INFINITY].map(f16::from_f32),
        "float32" => [1.0_f32, f32::MIN_POSITIVE, f32::MAX],
        "float64" => [1.0_f64, f64::MIN_POSITIVE, f64::MAX],
        "int16" => [1, i16::MIN, i16::MAX],
        "int32" => [1, i32::MIN, i32::MAX],
        "int64" => [1, i64::MIN, i64::MAX],
        "int8" => [1, i8::MIN, i8::MAX],
        "uint16" => [1, 0, u16::MAX],
        "uint32" => [1, 0, u32::MAX],
        "uint64" => [1, 0, u64::MAX],
        "uint8" => [1, 0, u8::MAX],
    )?;
    add(named, "dtypes", dtypes);
    // Bits that arithmetic would not leave alone.
    let bits = tensordict!([];
        "bfloat16" => [0x7fc1, 0x7f81].map(bf16::from_bits),
        "float32" => [0x7fc0_0001, 0x7f80_0001, 0x8000_0000, 1].map(f32::from_bits),
        "float64" => [0x7ff0_0000_0000_0001, 1 << 63].map(f64::from_bits),
    )?;
    add(named, "bits", bits);
    let none = tensordict!([];
        "a" => floats([0], 1), "b" => floats([0, 3], 1), "c" => floats([2, 0], 1), "d" => floats([3], 1), "e" => floats([0], 1),
    )?;
    add(named, "no elements", none);
    add(named, "scalars", tensordict!([]; "a" => Tensor::scalar(1.5_f32), "n" => { "b" => Tensor::scalar(7_i64) })?);
    add(named, "zero batch", tensordict!([0]; "a" => floats([0, 4], 1), "b" => Tensor::from([0_i64; 0]))?);
    let paddings = tensordict!([]; "f" => floats([2], 1), "u1" => bytes(1, 1), "u3" => bytes(3, 1), "u5" => bytes(5, 1), "u8" => bytes(8, 1))?;
    add(named, "paddings", paddings);
    let names = tensordict!([];
        "" => floats([1], 1), "." => floats([1], 2), "a.b" => floats([1], 3), "q\"\\\n" => floats([1], 4),
        "sp ace" => floats([1], 5), "\u{7f}\0" => floats([1], 6), "gr\u{fc}\u{df} \u{65e5}\u{672c}" => { "\u{1f980}" => floats([2], 1) },
    )?;
    add(named, "names of entries", names);
    // As nested TensorDicts these are refused. Python's stateless functions cannot read "cls" and "leaves" together.
    let reserved = ["_device", "_total_bytes", "cls_metadata", "leaves", "non_tensors", "size"];
    let mut td = TensorDict::new([]);
    reserved.iter().try_for_each(|&name| td.insert(name, floats([2], 1)))?;
    add(named, "reserved names", td);
    add(named, "reserved name", tensordict!([]; "cls" => floats([2], 1))?);
    let mut td = TensorDict::new([]);
    (0..200).try_for_each(|n| td.insert(format!("leaf {n:03}"), floats([n % 7], n)))?;
    add(named, "many", td);
    let mut td = tensordict!([]; "bottom" => floats([1], 1))?;
    for level in 0..20 {
        td = tensordict!([]; format!("level {level}") => td)?;
    }
    add(named, "deep", td);
    let strided = Tensor::from_strided(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2], &[1, 3])?;
    add(named, "strided", tensordict!([]; "t" => strided)?);
    Ok(())
}

fn values(named: &mut Named) -> Result<()> {
    let huge = |digits: &str| Value::BigInt(digits.into());
    let integers = [0, -1, i64::from(i32::MAX) + 1, i64::MAX, i64::MIN].map(Value::Int);
    let integers = [&integers[..], &[huge("9223372036854775808"), huge(&format!("-1{}", "0".repeat(40)))]].concat();
    let nested = vec![
        ("a".to_owned(), Value::List(vec![Value::Int(1), Value::Map(vec![("b".to_owned(), Value::List(Vec::new()))])])),
        (String::new(), Value::Map(Vec::new())),
        ("c".to_owned(), Value::Null),
    ];
    let all = tensordict!([];
        "empty" => "",
        "escapes" => "quote \" backslash \\ slash / \u{8}\u{c}\n\r\t \0 \u{1f} \u{7f}",
        "flags" => Value::from(vec![true, false]),
        "floats" => Value::from(vec![0.0, -0.0, 1.0, 0.1, 1e-5, 1e16, 1e22, 5e-324, f64::MAX, 1.0 / 3.0]),
        "integers" => Value::List(integers),
        "nested" => Value::Map(nested),
        "nothing" => Value::Null,
        "special" => Value::from(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
        "text" => "hello",
        "unicode" => "gr\u{fc}\u{df} \u{65e5}\u{672c} \u{1f980} \u{2028}",
    )?;
    add(named, "values", all);
    for (name, word) in [("values and tensors", "hello"), ("another value", "goodbye")] {
        let td =
            tensordict!([2]; "s" => word, "a" => floats([2], 1), "n" => { "t" => "there", "b" => floats([2], 1) })?;
        add(named, name, td);
    }
    let stack = TensorDict::non_tensor_stack(["a", "b", "c"], 0)?;
    add(named, "value stack", tensordict!([3]; "a" => floats([3], 1), "s" => stack)?);
    Ok(())
}

/// What follows one another matters here.
fn sequences(named: &mut Named) -> Result<()> {
    for turn in 0..6 {
        let a = match turn % 2 {
            0 => floats([4], turn),
            _ => Tensor::from([turn as i32; 4]),
        };
        add(named, format!("turn {turn}"), tensordict!([]; "a" => a)?);
    }
    for power in [3, 7, 12, 16, 13, 20, 23] {
        add(named, format!("2^{power} bytes"), tensordict!([]; "a" => bytes(1 << power, power))?);
    }
    Ok(())
}

fn labels(named: &mut Named) -> Result<()> {
    let order = tensordict!([]; "z" => floats([3], 1), "a" => floats([3], 1), "m" => { "y" => floats([2], 1), "x" => floats([1], 1) })?;
    add(named, "order", order);
    let order = tensordict!([]; "a" => floats([3], 1), "z" => floats([3], 1), "m" => { "x" => floats([1], 1), "y" => floats([2], 1) })?;
    add(named, "other order", order);
    let mut td = tensordict!([3]; "a" => floats([3, 4], 1), "n" => { "b" => floats([3], 1) })?;
    td.set_dim_names([Some("time")])?;
    add(named, "names", td);
    let mut td = tensordict!([3, 4]; "a" => floats([3, 4], 1))?;
    td.set_dim_names([None, Some("x")])?;
    add(named, "some names", td);
    let unlocked = tensordict!([3]; "a" => floats([3], 1), "n" => { "b" => floats([3], 1) })?;
    let mut locked = unlocked.clone();
    locked.lock();
    add(named, "locked", locked);
    add(named, "unlocked", unlocked);
    let mut td = tensordict!([3]; "s" => "x", "a" => floats([3], 1), "n" => { "b" => floats([3], 1) })?;
    td.set_device(Device::Cpu);
    add(named, "device", td);
    add(named, "empty nested", tensordict!([]; "a" => floats([2], 1), "n" => { "m" => {} }, "o" => {})?);
    add(named, "nested only", tensordict!([3]; "n" => {})?);
    let wide = tensordict!([3, 2]; "b" => floats([3, 2], 1))?;
    add(named, "batch of a nested one", tensordict!([3]; "n" => wide)?);
    let value = NonTensor::new("x").with_batch_size([3, 4]);
    add(named, "batch of a value", tensordict!([3]; "s" => value, "t" => "y")?);
    Ok(())
}

fn stacks(named: &mut Named) -> Result<()> {
    let values = |a: Value, b: Value| TensorDict::non_tensor_stack([a, b], 0);
    let stacks = [values("a".into(), "b".into())?, values("c".into(), Value::Null)?];
    add(named, "stack of stacks", tensordict!([2]; "s" => TensorDict::non_tensor_stack(stacks, 0)?)?);
    add(named, "value stack at root", values("x".into(), "y".into())?);
    let td = tensordict!([3]; "s" => TensorDict::non_tensor_stack(["a", "b", "c"], 0)?)?;
    add(named, "stack dim 1", TensorDict::stack(&[td.clone(), td], 1)?);

    let lazy = || -> Result<_> {
        let short = tensordict!([]; "s" => "p", "a" => floats([2], 1))?;
        TensorDict::lazy_stack([short, tensordict!([]; "a" => floats([3], 1), "b" => floats([1], 1))?], 0)
    };
    add(named, "lazy", lazy()?);
    add(named, "lazy nested", tensordict!([]; "first" => floats([1], 1), "last" => floats([1], 1), "l" => lazy()?)?);
    let inner = || -> Result<_> {
        TensorDict::lazy_stack([tensordict!([]; "a" => floats([1], 1))?, tensordict!([]; "a" => floats([2], 1))?], 0)
    };
    add(named, "lazy of lazy", TensorDict::lazy_stack([inner()?, inner()?], 1)?);
    let twelve: Result<Vec<_>> = (0..12).map(|n| tensordict!([]; "a" => floats([1], n))).collect();
    add(named, "lazy twelve", TensorDict::lazy_stack(twelve?, 0)?);
    let mut elements = Vec::new();
    for start in [0, 10] {
        let mut td = tensordict!([2]; "a" => floats([2, 3], start))?;
        td.set_dim_names([Some("x")])?;
        elements.push(td);
    }
    let mut td = TensorDict::lazy_stack(elements, 1)?;
    td.set_stack_dim_name(Some("time"))?;
    td.lock();
    add(named, "lazy named", td);
    Ok(())
}

fn jagged(named: &mut Named) -> Result<()> {
    let offsets = || Tensor::from([0_i64, 3, 10]);
    add(named, "jagged", tensordict!([2]; "j" => Jagged::new(floats([10], 1), offsets())?)?);
    let lengths = Jagged::from_parts(floats([10], 1), Some(Tensor::from([2_i64, 5])), offsets(), 1)?;
    add(named, "jagged with lengths", tensordict!([2]; "k" => floats([2], 1), "j" => lengths)?);
    let last = Jagged::from_parts(floats([2, 6], 1), None, Tensor::from([0_i64, 1, 3, 6]), 2)?;
    add(named, "ragged last", tensordict!([3]; "j" => last)?);
    Ok(())
}

fn leaves_only(named: &mut Named) -> Result<()> {
    let mut td = TensorDict::new([]);
    for dtype in DType::ALL.iter().filter(|dtype| dtype.name().starts_with("float8")) {
        td.insert(dtype.name(), Tensor::from_bytes(*dtype, [4], &[0, 1, 127, 255])?)?;
    }
    add(named, "float8", td);
    add(named, "unbatched", tensordict!([3]; "a" => floats([3], 1), "u" => floats([7], 1).unbatched())?);
    Ok(())
}

fn add(named: &mut Named, name: impl Into<String>, td: TensorDict) {
    named.push((name.into(), td));
}

/// `start`, `start + 1`, ...
fn floats(shape: impl Into<Shape>, start: usize) -> Tensor {
    let shape = shape.into();
    let end = start + shape.element_count().expect("small");
    let elements: Vec<_> = (start..end).map(|n| n as f32).collect();
    Tensor::from_slice(&elements, shape).expect("counted")
}

/// The same, modulo 256.
fn bytes(len: usize, start: usize) -> Tensor {
    (start..start + len).map(|n| n as u8).collect::<Vec<_>>().into()
}

fn complex<const N: usize>(dtype: DType, parts: &[[u8; N]; 4]) -> Result<Tensor> {
    Tensor::from_bytes(dtype, [2], &parts.concat())
}
