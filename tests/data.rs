//! TensorDicts as a user sees them: building, reading, editing, cutting, joining, printing.

#[path = "common/variants.rs"]
mod variants;

use std::collections::BTreeSet;

use tensordict_pipe::{
    tensordict, DType, DataError, Device, Entry, Item, Jagged, Kind, NonTensor, Shape, Storage, Tensor, TensorDict,
    Value, DIFFERING,
};

type Result<T = (), E = DataError> = std::result::Result<T, E>;

fn zeros(shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::zeros(DType::Float32, shape)
}

/// Something of everything.
fn sample() -> Result<TensorDict> {
    let mut td = tensordict!([3];
        "a" => Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2])?,
        "n" => {
            "x" => Tensor::from_slice(&[7_u8, 8, 9], [3, 1])?,
            "deep" => { "z" => vec![10_i64, 11, 12] },
        },
        "b" => [true, false, true],
        "s" => "hello",
        "m" => { "y" => vec![13_i16, 14, 15] },
        "jagged" => Jagged::new(Tensor::from(vec![1_i32, 2, 3, 4]), Tensor::from(vec![0_i64, 1, 3, 4]))?,
        "task" => TensorDict::non_tensor_stack(["walk", "run", "hop"], 0)?,
        "empty" => {},
    )?;
    let step = |n: usize| tensordict!([]; "tokens" => vec![n as f64; n]);
    td.insert("lazy", TensorDict::lazy_stack([step(1)?, step(2)?, step(3)?], 0)?)?;
    Ok(td)
}

fn paths(td: &TensorDict) -> Vec<String> {
    td.leaves().into_iter().map(|(path, _)| path.join("/")).collect()
}

#[test]
fn every_dtype_keeps_its_bytes() -> Result {
    for &dtype in DType::ALL {
        let bytes: Vec<u8> = (0..6 * dtype.item_size()).map(|byte| byte as u8).collect();
        let mut td = TensorDict::new([2]);
        td.insert("x", Tensor::from_bytes(dtype, [2, 3], &bytes)?)?;
        let packed = td.consolidate();
        assert_eq!(packed.get("x")?.bytes(), bytes, "{dtype}");
        assert_eq!((packed.get("x")?.dtype(), packed.get("x")?.element_count()), (dtype, 6));
        assert_eq!(packed.index(0, 1)?.get("x")?.bytes(), &bytes[bytes.len() / 2..]);
    }
    Ok(())
}

#[test]
fn entries_come_in_order_and_say_what_they_are() -> Result {
    for td in [sample()?, sample()?.consolidate()] {
        let kind = |entry: Entry<'_>| match entry {
            Entry::Tensor(tensor) => tensor.to_string(),
            Entry::Jagged(jagged) => format!("{} rows", jagged.rows()),
            Entry::NonTensor(data) => data.value().to_string(),
            Entry::Dict(dict) => dict.keys().collect::<Vec<_>>().join(" "),
            Entry::LazyStack(stack) => format!("{} TensorDicts", stack.len()),
            Entry::NonTensorStack(stack) => format!("{} values", stack.len()),
            other => panic!("{other:?}"),
        };
        let entries: Vec<_> = td.iter().map(|(name, entry)| format!("{name}: {}", kind(entry))).collect();
        let expected = [
            "a: f32[3,2]",
            "n: x deep",
            "b: bool[3]",
            "s: 'hello'",
            "m: y",
            "jagged: 3 rows",
            "task: 3 values",
            "empty: ",
            "lazy: 3 TensorDicts",
        ];
        assert_eq!(entries, expected);
        assert_eq!((td.len(), td.is_empty(), td.batch_size()), (9, false, &Shape::from([3])));
    }
    Ok(())
}

#[test]
fn another_shape_of_the_same_bytes() -> Result {
    let tensor = Tensor::from(vec![1_i16, 2, 3, 4, 5, 6]);
    let wide = tensor.reshape([2, 3])?;
    assert_eq!(wide.index(0, 1)?.as_slice::<i16>()?, [4, 5, 6]);
    assert_eq!(wide.bytes().as_ptr(), tensor.bytes().as_ptr(), "no copy");
    assert_eq!(wide.reshape([6])?, tensor);
    assert_ne!(wide, tensor);
    assert_eq!(Tensor::scalar(true).reshape([1, 1])?.shape()[..], [1, 1]);
    assert!(tensor.reshape([4]).is_err() && tensor.reshape([]).is_err() && tensor.reshape([usize::MAX, 2]).is_err());
    Ok(())
}

#[test]
fn half_precision_is_typed() -> Result {
    let values = [half::bf16::from_f32(1.5), half::bf16::NAN];
    let tensor = Tensor::from(values);
    assert_eq!(tensor.dtype(), DType::BFloat16);
    assert_eq!(tensor.as_slice::<half::bf16>()?[0].to_f32(), 1.5);
    assert_eq!(tensor, tensor.reshape([2, 1])?.reshape([2])?, "a NaN equals itself");
    assert!(tensor.as_slice::<half::f16>().is_err());
    let tensor = Tensor::from([half::f16::from_f32(0.1)]);
    assert_eq!((tensor.dtype(), tensor.item::<half::f16>()?.to_bits()), (DType::Float16, 0x2e66));
    Ok(())
}

#[cfg(feature = "num-complex")]
#[test]
fn complex_numbers_are_typed() -> Result {
    use num_complex::Complex;
    let mut tensor = Tensor::from([Complex::new(1.0_f32, 2.0), Complex::new(3.0, -4.0)]);
    assert_eq!(tensor.dtype(), DType::Complex64);
    assert_eq!(tensor.bytes(), [1.0_f32, 2.0, 3.0, -4.0].map(f32::to_ne_bytes).concat());
    tensor.as_slice_mut::<Complex<f32>>()?[0] *= Complex::new(0.0, 1.0);
    assert_eq!(tensor.to_vec::<Complex<f32>>()?, [Complex::new(-2.0, 1.0), Complex::new(3.0, -4.0)]);
    assert_eq!(Tensor::scalar(Complex::new(1.0_f64, 2.0)).dtype(), DType::Complex128);
    assert_eq!(Tensor::scalar(Complex::new(half::f16::ONE, half::f16::ZERO)).dtype(), DType::Complex32);
    assert!(tensor.as_slice::<Complex<f64>>().is_err() && tensor.as_slice::<f32>().is_err());
    Ok(())
}

#[test]
fn empty_tensors_and_dicts_survive() -> Result {
    let td = tensordict!([]; "a" => zeros([0])?, "b" => zeros([0, 3])?, "c" => { "d" => {} }, "e" => zeros([2, 0])?)?;
    let packed = td.consolidate();
    assert_eq!(packed, td);
    assert_eq!(packed.get("b")?.shape()[..], [0, 3]);
    assert!(packed.get("e")?.as_slice::<f32>()?.is_empty());
    assert!(packed.dict(("c", "d"))?.is_empty());
    assert!(TensorDict::new([]).consolidate().is_consolidated());
    Ok(())
}

#[test]
fn packing_follows_insertion_order_depth_first() -> Result {
    let td = sample()?;
    let expected = "a n/x n/deep/z b s m/y jagged task lazy/0/tokens lazy/1/tokens lazy/2/tokens";
    assert_eq!(paths(&td).join(" "), expected);
    assert!(!td.is_consolidated());
    let packed = td.consolidate();
    assert!(packed.is_consolidated());
    assert_eq!(packed, td);
    assert_eq!(paths(&packed).join(" "), expected);
    let address = |path: &[&str]| packed.get(path).map(|view| view.bytes().as_ptr() as usize);
    let start = address(&["a"])?;
    for (path, offset) in [(&["n", "x"][..], 24), (&["n", "deep", "z"], 32), (&["b"], 56), (&["m", "y"], 64)] {
        assert_eq!(address(path)? - start, offset, "{path:?}");
    }
    Ok(())
}

#[test]
fn values_are_written_in_place_and_never_in_a_clone() -> Result {
    for td in [sample()?, sample()?.consolidate()] {
        let mut written = td.clone();
        written.get_mut(("n", "x"))?.as_slice_mut::<u8>()?[0] = 70;
        written.get_mut("a")?.copy_from_slice(&[0.0_f32; 6])?;
        assert_eq!(written.is_consolidated(), td.is_consolidated(), "an edit of values keeps it packed");
        assert_eq!(td.get(("n", "x"))?.as_slice::<u8>()?, [7, 8, 9]);
        assert_eq!(written.get(("n", "x"))?.as_slice::<u8>()?, [70, 8, 9]);
        assert_ne!(written, td);
        let address = written.get("a")?.bytes().as_ptr();
        written.get_mut("a")?.copy_from(td.get("a")?)?;
        assert_eq!(written.get("a")?.bytes().as_ptr(), address, "nobody shares the bytes any more");
        assert_eq!(written.get("a")?, td.get("a")?);
        assert!(written.get_mut("a")?.copy_from(td.get(("n", "x"))?).is_err());
        assert!(written.get_mut("s").is_err());
    }
    Ok(())
}

#[test]
fn a_nested_dict_of_a_packed_one_is_a_value() -> Result {
    let packed = sample()?.consolidate();
    let mut nested = packed.dict("n")?;
    assert_eq!(nested, sample()?.dict("n")?);
    nested.get_mut("x")?.as_slice_mut::<u8>()?[1] = 0;
    nested.insert("new", vec![1_u8, 2, 3])?;
    assert_eq!(nested.get("x")?.as_slice::<u8>()?, [7, 0, 9]);
    assert_eq!(packed.get(("n", "x"))?.as_slice::<u8>()?, [7, 8, 9]);
    assert_eq!(nested.consolidate(), nested);
    assert_eq!(packed.dict("n")?.consolidate(), packed.dict("n")?);
    Ok(())
}

#[test]
fn entries_are_inserted_replaced_removed_and_renamed() -> Result {
    let mut td = sample()?.consolidate();
    td.insert(("new", "deep", "t"), zeros([3])?)?;
    assert!(!td.is_consolidated());
    assert_eq!(td.dict(("new", "deep"))?.batch_size()[..], [3]);
    td.insert("a", vec![1_u8, 2, 3])?;
    assert_eq!(td.keys().next(), Some("a"), "replaced in its place");
    assert_eq!(td.keys().last(), Some("new"), "at the end");
    let Item::Tensor(tensor) = td.remove("a")? else { panic!("a tensor") };
    assert_eq!(tensor.as_slice::<u8>()?, [1, 2, 3]);
    let keys = ["n", "b", "s", "m", "jagged", "task", "empty", "lazy", "new"];
    assert_eq!(td.keys().collect::<Vec<_>>(), keys, "the others stay in order");
    td.rename("b", ("m", "b"))?;
    assert_eq!(td.dict("m")?.keys().collect::<Vec<_>>(), ["y", "b"]);
    assert!(matches!(td.rename("s", "task"), Err(DataError::Duplicate { .. })));
    assert!(matches!(td.rename("s", ("jagged", "s")), Err(DataError::Kind { .. })));
    assert!(td.contains("s"), "a failed rename changes nothing");
    td.rename("s", "s")?;
    assert_eq!(td.consolidate(), td);
    Ok(())
}

#[test]
fn wrong_paths_say_what_is_there() -> Result {
    let mut td = sample()?;
    let text = |error: DataError| error.to_string();
    assert_eq!(td.get("zz").map_err(text).unwrap_err(), "no entry 'zz'");
    assert_eq!(td.get(("n", "zz")).map_err(text).unwrap_err(), "no entry ('n', 'zz')");
    assert_eq!(td.get("n").map_err(text).unwrap_err(), "'n' is a TensorDict, not a tensor");
    assert_eq!(td.value("lazy").map_err(text).unwrap_err(), "'lazy' is a lazy stack, not a non-tensor");
    assert_eq!(td.dict("jagged").map_err(text).unwrap_err(), "'jagged' is a jagged tensor, not a TensorDict");
    assert_eq!(td.insert(("a", "x"), "s").map_err(text).unwrap_err(), "'a' is a tensor, not a TensorDict");
    assert_eq!(td.get([""; 0]).map_err(text).unwrap_err(), "the path is empty");
    assert!(td.insert([""; 0], "s").is_err());
    assert!(td.insert(("lazy", "0"), zeros([])?).is_err(), "the elements of a stack are fixed");
    assert!(td.insert(("lazy", "00", "x"), zeros([])?).is_err());
    assert!(td.remove(("lazy", "0")).is_err());
    td.insert(("lazy", "0", "x"), zeros([5])?)?;
    assert!(td.contains(("lazy", "0", "x")));
    Ok(())
}

#[test]
fn shapes_start_with_the_batch_size() -> Result {
    let mut td = TensorDict::new([3]);
    let error = td.insert("x", zeros([2, 3])?).unwrap_err();
    assert_eq!(error.to_string(), "x: the shape [2,3] does not start with the batch size [3]");
    assert!(td.insert(("new", "x"), zeros([2])?).is_err());
    assert!(td.is_empty(), "nothing is made on the way to a refused entry");
    td.insert("u", zeros([2])?.unbatched())?;
    assert!(td.get("u")?.is_unbatched());
    td.insert("x", zeros([3, 4])?)?;
    td.insert("s", "text")?;
    assert!(matches!(td.entry("s")?, Entry::NonTensor(data) if data.batch_size()[..] == [3]));
    td.set_batch_size([3, 4])?;
    assert!(td.set_batch_size([4]).is_err());
    assert_eq!(td.batch_size()[..], [3, 4]);
    td.set_batch_size([])?;
    assert!(matches!(td.entry("s")?, Entry::NonTensor(data) if data.batch_size()[..] == [3, 4]));
    Ok(())
}

#[test]
fn nested_dicts_take_batch_size_names_and_device_of_their_parent() -> Result {
    let mut td = TensorDict::new([3]);
    td.set_dim_names([Some("time")])?;
    td.set_device(Device::Cuda(1));
    td.insert("wide", tensordict!([3, 4]; "x" => zeros([3, 4])?)?)?;
    td.insert("narrow", tensordict!([]; "x" => zeros([3, 4])?)?)?;
    assert_eq!(td.dict("wide")?.batch_size()[..], [3, 4]);
    assert_eq!(td.dict("wide")?.dim_names(), [Some("time".to_owned()), None]);
    assert_eq!(td.dict("narrow")?.batch_size()[..], [3]);
    assert_eq!(td.dict("narrow")?.device(), Some(&Device::Cuda(1)));
    assert!(td.insert("bad", tensordict!([]; "x" => zeros([4])?)?).is_err());
    assert!(td.set_dim_names([None, None]).is_err());
    Ok(())
}

#[test]
fn a_lock_guards_the_structure_but_not_the_values() -> Result {
    let mut td = sample()?;
    td.lock();
    assert!(td.is_locked() && td.dict("n")?.is_locked() && td.dict(("lazy", "0"))?.is_locked());
    assert_eq!(td.insert("x", "s"), Err(DataError::Locked));
    assert_eq!(td.insert(("n", "x"), "s"), Err(DataError::Locked));
    assert_eq!(td.remove("a"), Err(DataError::Locked));
    assert_eq!(td.set_batch_size([]), Err(DataError::Locked));
    td.get_mut("b")?.as_slice_mut::<bool>()?[0] = false;
    assert!(td.consolidate().is_locked());
    td.unlock();
    td.insert(("n", "x"), "s")?;
    let mut locked = tensordict!([3])?;
    locked.lock();
    td.insert("locked", locked)?;
    assert_eq!(td.insert(("locked", "x"), "s"), Err(DataError::Locked));
    Ok(())
}

#[test]
fn select_exclude_flatten_and_unflatten_as_in_python() -> Result {
    let td = tensordict!([3];
        "a" => zeros([3])?, "n" => { "x" => zeros([3])?, "y" => zeros([3])? }, "b" => zeros([3])?, "e" => {},
    )?;
    assert_eq!(paths(&td.select(["b", "a"])?), ["b", "a"]);
    assert_eq!(paths(&td.select([vec!["b"], vec!["n", "y"], vec!["a"]])?), ["b", "n/y", "a"]);
    assert_eq!(paths(&td.select([vec!["n", "y"], vec!["n"]])?), ["n/x", "n/y"]);
    assert!(td.select(["zz"]).is_err());
    assert!(td.select([["a", "b"]]).is_err());
    assert_eq!(paths(&td.exclude([vec!["zz"], vec!["a"], vec!["n", "x"]])?), ["n/y", "b"]);
    let flat = td.flatten_keys(".")?;
    assert_eq!(flat.keys().collect::<Vec<_>>(), ["a", "n.x", "n.y", "b"]);
    assert_eq!(flat.unflatten_keys(".")?, td.exclude(["e"])?);
    let clash = tensordict!([]; "a" => { "b" => zeros([])? }, "a.b" => zeros([])?)?;
    assert_eq!(clash.flatten_keys("."), Err(DataError::Duplicate { name: "a.b".into() }));
    assert!(clash.unflatten_keys(".").is_err());
    assert!(tensordict!([]; "a" => zeros([])?, "a.b" => zeros([])?)?.unflatten_keys(".").is_err());
    Ok(())
}

#[test]
fn index_and_slice_reach_everything() -> Result {
    for td in [sample()?, sample()?.consolidate()] {
        let row = td.index(0, 1)?;
        assert!(row.batch_size().is_empty());
        assert_eq!(row.get("a")?.as_slice::<f32>()?, [3.0, 4.0]);
        assert_eq!(row.get("a")?.bytes().as_ptr(), td.get("a")?.bytes()[8..].as_ptr(), "shares the bytes");
        assert_eq!(row.get(("n", "deep", "z"))?.item::<i64>()?, 11);
        assert_eq!(row.get("jagged")?.as_slice::<i32>()?, [2, 3]);
        assert_eq!(row.value("task")?.as_str(), Some("run"));
        assert_eq!(row.get(("lazy", "tokens"))?.as_slice::<f64>()?, [2.0, 2.0]);
        let rows = td.slice(0, 1..)?;
        assert_eq!(rows.batch_size()[..], [2]);
        let Entry::Jagged(jagged) = rows.entry("jagged")? else { panic!("jagged") };
        assert_eq!(jagged.offsets().as_slice::<i64>()?, [0, 2, 3]);
        assert_eq!(jagged.values().as_slice::<i32>()?, [2, 3, 4]);
        assert_eq!(rows.dict("lazy")?.len(), 2);
        assert_eq!(rows.index(0, 0)?, row);
        assert_eq!(td.slice(0, ..)?, td);
        assert!(td.index(0, 3).is_err() && td.index(1, 0).is_err() && td.slice(0, 2..5).is_err());
        let parts = td.split(0, &[1, 0, 2])?;
        assert_eq!(parts.iter().map(|part| part.batch_size()[0]).collect::<Vec<_>>(), [1, 0, 2]);
        assert!(td.split(0, &[1, 1]).is_err());
        let chunks = td.chunk(0, 2)?;
        assert_eq!(chunks, [td.slice(0, ..2)?, td.slice(0, 2..)?]);
        assert_eq!(td.chunk(0, 7)?.len(), 3, "none is empty");
    }
    assert_eq!(TensorDict::new([0]).chunk(0, 2)?, [TensorDict::new([0])]);
    Ok(())
}

#[test]
fn inner_batch_dimensions_are_cut_too() -> Result {
    let element = |n: i32| tensordict!([2]; "x" => vec![n, n + 10]);
    let mut td = tensordict!([2, 3]; "y" => Tensor::from_slice(&[1_u8, 2, 3, 4, 5, 6], [2, 3])?)?;
    td.insert("lazy", TensorDict::lazy_stack([element(0)?, element(1)?, element(2)?], 1)?)?;
    td.set_dim_names([Some("b"), Some("t")])?;
    assert_eq!(td.dict("lazy")?.stack_dim_name(), Some("t"));
    let column = td.index(1, 2)?;
    assert_eq!(column.get("y")?.as_slice::<u8>()?, [3, 6]);
    assert_eq!(column.get(("lazy", "x"))?.as_slice::<i32>()?, [2, 12]);
    assert_eq!(column.dim_names(), [Some("b".to_owned())]);
    let row = td.index(0, 1)?;
    assert_eq!(row.dict("lazy")?.stack_dim(), Some(0));
    assert_eq!(row.get(("lazy", "2", "x"))?.item::<i32>()?, 12);
    Ok(())
}

#[test]
fn stack_and_cat_are_undone_by_index_and_split() -> Result {
    let td = |n: u8| -> Result<TensorDict> {
        let mut td = tensordict!([2]; "x" => vec![n; 2], "n" => { "y" => Tensor::from_slice(&[n; 4], [2, 2])? })?;
        td.insert("u", zeros([5])?.unbatched())?;
        td.insert("same", "s")?;
        td.insert("other", Value::from(i64::from(n)))?;
        td.insert("task", TensorDict::non_tensor_stack(["a", "b"], 0)?)?;
        td.insert("lazy", TensorDict::lazy_stack([tensordict!([])?, tensordict!([])?], 0)?)?;
        Ok(td)
    };
    let tds = [td(1)?, td(2)?, td(3)?];
    for dim in 0..2 {
        let stacked = TensorDict::stack(&tds, dim)?;
        assert_eq!(stacked.batch_size()[dim], 3);
        for (i, td) in tds.iter().enumerate() {
            assert_eq!(stacked.index(dim, i)?, *td);
        }
    }
    let joined = TensorDict::cat(&tds, 0)?;
    assert_eq!(joined.batch_size()[..], [6]);
    assert_eq!(joined.value("same")?.as_str(), Some("s"));
    assert_eq!(joined.value(("other", "2"))?.as_i64(), Some(2));
    assert_eq!(joined.dict("lazy")?.len(), 6);
    for (part, td) in joined.split(0, &[2, 2, 2])?.into_iter().zip(&tds) {
        // Equal values have become a stack of them.
        assert_eq!(part.exclude(["other"])?, td.exclude(["other"])?);
    }
    assert_eq!(joined.get(("n", "y"))?.shape()[..], [6, 2]);
    let text = |result: Result<TensorDict>| result.unwrap_err().to_string();
    assert_eq!(text(TensorDict::stack(&[], 0)), "stack: there are none");
    let other = td(1)?.exclude(["x"])?;
    assert_eq!(text(TensorDict::cat(&[td(1)?, other.clone()], 0)), "cat: not all have an entry \"x\"");
    assert_eq!(text(TensorDict::cat(&[other, td(1)?], 0)), "cat: not all have an entry \"x\"");
    assert!(TensorDict::stack(&tds, 2).is_err() && TensorDict::cat(&tds, 1).is_err());
    Ok(())
}

#[test]
fn jagged_tensors_are_kept_side_by_side_but_not_joined() -> Result {
    let td = |start: i64| -> Result<TensorDict> {
        let jagged = Jagged::new(vec![start, start + 1, start + 2].into(), vec![0_i64, 1, 3].into())?;
        tensordict!([2]; "n" => { "j" => jagged })
    };
    let tds = [td(0)?, td(10)?];
    let refused = DataError::Jagged { reason: "jagged tensors cannot be joined; use a lazy stack" };
    for dim in 0..2 {
        assert_eq!(TensorDict::stack(&tds, dim), Err(refused.clone()));
    }
    assert_eq!(TensorDict::cat(&tds, 0), Err(refused.clone()));
    assert_eq!(TensorDict::cat(&tds[..1], 0), Err(refused), "not even one alone");

    for dim in 0..2 {
        let stack = TensorDict::lazy_stack(tds.clone(), dim)?;
        assert_eq!(stack.index(dim, 1)?, tds[1]);
        let row = stack.index(dim, 1)?.index(0, 1)?;
        assert_eq!(row.get(("n", "j"))?.as_slice::<i64>()?, [11, 12]);
        let longer = TensorDict::cat(&[stack.clone(), stack.clone()], dim)?;
        assert_eq!((longer.len(), longer.index(dim, 3)?), (4, tds[1].clone()), "lazy stacks are joined as they are");
        let twice = TensorDict::stack(&[stack.clone(), stack.clone()], 0)?;
        assert_eq!((twice.kind(), twice.index(0, 1)?), (Kind::LazyStack, stack));
    }
    let wide = Jagged::from_parts(zeros([4, 3])?, None, vec![0_i64, 1, 3].into(), 2)?;
    let wide = tensordict!([2, 4]; "j" => wide)?;
    assert_eq!(wide.index(0, 1)?.get("j")?.shape()[..], [4, 2]);
    assert_eq!(wide.index(1, 0), Err(DataError::Jagged { reason: "only its rows can be indexed" }));
    Ok(())
}

#[test]
fn lazy_stacks_hold_what_differs() -> Result {
    let inner = |n: usize| TensorDict::lazy_stack([tensordict!([n]; "x" => zeros([n])?)?], 0);
    let stack = TensorDict::lazy_stack([inner(2)?, inner(3)?], 1)?;
    assert_eq!((stack.kind(), stack.stack_dim(), stack.len()), (Kind::LazyStack, Some(1), 2));
    assert_eq!(stack.batch_size()[..], [1, 2, DIFFERING]);
    assert_eq!(stack.elements().count(), 2);
    assert_eq!(stack.keys().count(), 0);
    assert_eq!(paths(&stack), ["0/0/x", "1/0/x"]);
    assert_eq!(stack.consolidate(), stack);
    assert!(TensorDict::lazy_stack([tensordict!([])?, tensordict!([1])?], 0).is_err());
    assert!(TensorDict::lazy_stack([tensordict!([])?], 1).is_err());
    assert!(TensorDict::lazy_stack([TensorDict::non_tensor_stack(["a"], 0)?], 0).is_err());
    assert!(TensorDict::non_tensor_stack([Tensor::scalar(1)], 0).is_err());
    let mut named = stack;
    named.set_stack_dim_name(Some("t"))?;
    assert_eq!(named.stack_dim_name(), Some("t"));
    let empty = TensorDict::lazy_stack([], 0)?;
    assert_eq!(empty.batch_size()[..], [0]);
    Ok(())
}

#[test]
fn stacks_of_non_tensors_give_lists() -> Result {
    let row = |a: &str, b: &str| TensorDict::non_tensor_stack([a, b], 0);
    let list = |dim: usize| -> Result<String> {
        let stack = TensorDict::non_tensor_stack([row("a", "b")?, row("c", "d")?], dim)?;
        Ok(Entry::NonTensorStack(stack).to_value().expect("a list").to_string())
    };
    assert_eq!(list(0)?, "[['a', 'b'], ['c', 'd']]");
    assert_eq!(list(1)?, "[['a', 'c'], ['b', 'd']]");
    let wide = NonTensor::new("x").with_batch_size([2]);
    let stack = TensorDict::non_tensor_stack([wide], 0)?;
    assert_eq!(Entry::NonTensorStack(stack).to_value().expect("a list").to_string(), "[['x', 'x']]");
    let huge = NonTensor::new("x").with_batch_size([usize::MAX - 1]);
    assert_eq!(Entry::NonTensorStack(TensorDict::non_tensor_stack([huge], 0)?).to_value(), None);
    Ok(())
}

#[test]
fn equality_is_of_values() -> Result {
    let td = sample()?;
    let mut other = sample()?;
    other.set_device(Device::Cpu);
    other.lock();
    assert_eq!(td, other, "locks and devices do not count");
    let ab = tensordict!([]; "a" => "1", "b" => "2")?;
    let ba = tensordict!([]; "b" => "2", "a" => "1")?;
    assert_eq!(ab, ba, "order does not count");
    assert_ne!(ab, tensordict!([]; "a" => "1")?);
    let mut named = tensordict!([3])?;
    named.set_dim_names([Some("t")])?;
    assert_ne!(named, tensordict!([3])?);
    assert_ne!(tensordict!([]; "x" => 0.0_f32.to_le_bytes())?, tensordict!([]; "x" => [0.0_f32])?);
    Ok(())
}

#[test]
fn any_name_is_a_name() -> Result {
    let mut td = TensorDict::new([]);
    for name in ["", " ", "a.b", "cls", "leaves", "size", "<NJT>k", "0", "名前", "\"'\\\n\0"] {
        td.insert((name, name), Tensor::scalar(1_u8))?;
        assert_eq!(td.consolidate().get((name, name))?.item::<u8>()?, 1);
    }
    assert_eq!(td.len(), 10);
    Ok(())
}

/// The expected texts are what tensordict 0.15.3 prints.
#[test]
fn prints_as_python() -> Result {
    let mut td = tensordict!([3];
        "obs" => zeros([3, 4])?,
        "n" => { "x" => Tensor::zeros(DType::UInt8, [3, 1])?, "deep" => { "z" => [half::bf16::ZERO; 3] } },
        "done" => [false; 3],
        "s" => "hello",
        "i" => Value::from(vec![1]),
        "t" => TensorDict::non_tensor_stack(["a", "b", "c"], 0)?,
    )?;
    td.insert("q", tensordict!([3, 5]; "w" => zeros([3, 5, 2])?)?)?;
    assert_eq!(
        td.to_string(),
        "TensorDict(batch_size=[3], fields={
    done: bool[],
    i: list,
    n: {deep: {z: bf16[]}, x: u8[1]},
    obs: f32[4],
    q: [5]{w: f32[2]},
    s: str,
    t: NonTensorStack})"
    );
    let mut td = tensordict!([2]; "n" => {})?;
    td.set_device(Device::Cpu);
    assert_eq!(td.to_string(), "TensorDict(batch_size=[2], device=cpu, fields={n: {}})");
    let a = tensordict!([]; "a" => zeros([2])?, "b" => zeros([2])?, "n" => { "m" => zeros([2])? }, "s" => "x")?;
    let b = tensordict!([]; "a" => zeros([3])?, "c" => zeros([1])?, "n" => { "m" => zeros([4])? }, "s" => "y")?;
    assert_eq!(
        TensorDict::lazy_stack([a, b], 0)?.to_string(),
        "LazyStackedTensorDict(batch_size=[2], stack_dim=0, fields={
    a: f32[-1],
    n: {m: f32[-1]},
    s: str}, exclusive_fields={0: {b: f32[2]}, 1: {c: f32[1]}})"
    );
    let element = |n: usize| tensordict!([4]; "a" => zeros([4, n])?);
    let mut td = tensordict!([4, 2]; "a" => zeros([4, 2])?)?;
    td.insert("l", TensorDict::lazy_stack([element(2)?, element(3)?], 1)?)?;
    assert_eq!(
        td.to_string(),
        "TensorDict(batch_size=[4,2], fields={
    a: f32[],
    l: LazyStackedTensorDict{a: f32[-1]}})"
    );
    let row = |a: Value, b: Value| TensorDict::non_tensor_stack([a, b], 0);
    let stack = TensorDict::non_tensor_stack([row("a".into(), "it's".into())?, row("c".into(), Value::Null)?], 0)?;
    assert_eq!(
        stack.to_string(),
        "NonTensorStack(
    [['a', \"it's\"], ['c', None]],
    batch_size=torch.Size([2, 2]),
    device=None)"
    );
    Ok(())
}

#[test]
fn debug_shows_the_first_elements() -> Result {
    let shown = |tensor: &Tensor| format!("{tensor:?}");
    assert_eq!(shown(&Tensor::from(vec![1.0_f32, 2.5])), "f32[2] [1.0, 2.5]");
    assert_eq!(shown(&Tensor::from([half::bf16::ONE])), "bf16[1] [1.0]");
    assert_eq!(shown(&Tensor::from_bytes(DType::Bool, [2], &[1, 2])?), "bool[2] [true, [2]]", "as it is");
    assert_eq!(shown(&Tensor::from((0..9).collect::<Vec<i64>>())), "i64[9] [0, 1, 2, 3, 4, 5, 6, 7, ..]");
    assert_eq!(shown(&Tensor::zeros(DType::Float8E4M3Fn, [1])?), "f8_e4m3fn[1] [..]");
    assert_eq!(Tensor::zeros(DType::Complex64, [])?.to_string(), "c64[]");
    let td = sample()?;
    assert_eq!(format!("{td:?}"), td.to_string());
    let jagged = format!("{:?}", td.entry("jagged")?);
    let parts = "values: i32[4] [1, 2, 3, 4], lengths: None, offsets: i64[4] [0, 1, 3, 4], ragged_index: 1";
    assert_eq!(jagged, format!("Jagged(Jagged {{ {parts} }})"));
    Ok(())
}

#[test]
fn values_are_read_as_what_they_are() {
    let value = Value::Map(vec![
        ("flag".into(), true.into()),
        ("count".into(), 3.into()),
        ("size".into(), u64::MAX.into()),
        ("rate".into(), 0.5.into()),
        ("list".into(), vec!["a", "b"].into()),
        ("twice".into(), 1.into()),
        ("twice".into(), 2.into()),
    ]);
    let at = |name| value.get(name).expect("there");
    assert_eq!((at("flag").as_bool(), at("flag").as_i64()), (Some(true), None));
    assert_eq!((at("count").as_i64(), at("count").as_f64()), (Some(3), None));
    assert_eq!((at("size"), at("size").as_i64()), (&Value::BigInt("18446744073709551615".into()), None));
    assert_eq!((at("rate").as_f64(), at("rate").as_bool()), (Some(0.5), None));
    assert_eq!(at("list").as_list().expect("a list")[1].as_str(), Some("b"));
    assert_eq!((at("list").as_str(), at("rate").as_list()), (None, None));
    assert_eq!(at("twice").as_i64(), Some(2), "the last one counts");
    assert_eq!((value.get("none"), at("list").get("a")), (None, None));
    assert_eq!(Value::from(f64::NAN), Value::from(f64::NAN));
    assert_ne!(Value::from(0.0), Value::from(-0.0));
    assert_ne!(Value::from(1), Value::from(1.0));
}

#[test]
fn every_error_has_an_operation() -> Result {
    let mut td = sample()?;
    let bools = Tensor::from_bytes(DType::Bool, [1], &[2])?;
    let odd = Tensor::from_storage(DType::Int16, [1], Storage::zeroed(4), 1)?;
    let mut locked = sample()?;
    locked.lock();
    let boxed = |shape: &[usize]| Box::new(Shape::from(shape));
    let cases = [
        ("torch.x".parse::<DType>().err(), DataError::UnknownDType { name: "torch.x".into() }),
        (
            Tensor::zeros(DType::UInt8, [usize::MAX, 2]).err(),
            DataError::TooLarge { dtype: DType::UInt8, shape: boxed(&[usize::MAX, 2]) },
        ),
        (Tensor::from_slice(&[1_u8, 2], [3]).err(), DataError::Length { unit: "elements", expected: 3, found: 2 }),
        (td.get("a")?.as_slice::<f64>().err(), DataError::DType { expected: DType::Float64, found: DType::Float32 }),
        (odd.as_slice::<i16>().err(), DataError::Misaligned { dtype: DType::Int16 }),
        (bools.as_slice::<bool>().err(), DataError::InvalidBool),
        (
            zeros([2, 3])?.reshape([7]).err(),
            DataError::Shape { operation: "reshape", expected: boxed(&[2, 3]), found: boxed(&[7]) },
        ),
        (
            td.insert("x", zeros([2])?).err(),
            DataError::BatchSize { name: "x".into(), shape: boxed(&[2]), batch_size: boxed(&[3]) },
        ),
        (td.index(1, 0).err(), DataError::Dim { dim: 1, rank: 1 }),
        (td.slice(0, 2..5).err(), DataError::Range { start: 2, end: 5, size: 3 }),
        (td.remove(("n", "zz")).err(), DataError::NotFound { path: "('n', 'zz')".into() }),
        (td.get_mut("n").err(), DataError::Kind { path: "'n'".into(), expected: "a tensor", found: "a TensorDict" }),
        (td.select([Vec::<String>::new()]).err(), DataError::EmptyPath),
        (td.rename("a", ("n", "x")).err(), DataError::Duplicate { name: "('n', 'x')".into() }),
        (locked.remove("a").err(), DataError::Locked),
        (
            Jagged::new(Tensor::from([1_u8]), Tensor::from([0_u8, 1])).err(),
            DataError::Jagged { reason: "offsets must be int32 or int64 of shape [batch + 1]" },
        ),
        (TensorDict::cat(&[], 0).err(), DataError::Stack { operation: "cat", reason: "there are none".into() }),
    ];
    let mut reached = BTreeSet::new();
    for (found, expected) in cases {
        reached.insert(variants::first_word(&format!("{expected:?}")));
        assert_eq!(found, Some(expected));
    }
    assert_eq!(td, sample()?, "what fails changes nothing");
    assert_eq!(reached, variants::of(include_str!("../src/data/error.rs"), "DataError"));
    Ok(())
}

#[test]
fn a_tensordict_goes_to_another_thread() -> Result {
    fn ensure<T: Send + Sync + 'static>() {}
    ensure::<TensorDict>();
    ensure::<Tensor>();
    ensure::<DataError>();
    let td = sample()?.consolidate();
    let mut theirs = td.clone();
    let written =
        std::thread::spawn(move || theirs.get_mut("b").map(|view| view.into_bytes().fill(0)).map(|()| theirs));
    assert_ne!(written.join().expect("no panic")?, td);
    Ok(())
}
