//! Tensors and TensorDicts of other libraries, each behind its feature.
#![allow(missing_docs)]

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[cfg(feature = "ndarray")]
mod ndarray {
    use super::Result;
    use ndarray::{array, s, Array, ArrayD, Axis, IxDyn};
    use tensordict_pipe::{tensordict, DType, DataError, Tensor};

    #[test]
    fn views_point_into_the_tensor() -> Result {
        let td = tensordict!([2]; "x" => Tensor::from_slice(&[1_i16, 2, 3, 4, 5, 6], [2, 3])?)?.consolidate();
        let view = td.get("x")?;
        let array = view.as_array::<i16>()?;
        assert_eq!(array.as_ptr().cast(), view.bytes().as_ptr());
        assert_eq!(array, array![[1, 2, 3], [4, 5, 6]].into_dyn());
        assert_eq!(array.sum_axis(Axis(0)), array![5, 7, 9].into_dyn());
        assert!(matches!(view.as_array::<i32>(), Err(DataError::DType { .. })));
        Ok(())
    }

    #[test]
    fn writing_a_view_writes_the_tensor_and_no_clone() -> Result {
        let mut td = tensordict!([2]; "x" => vec![1.0_f64, 2.0])?.consolidate();
        let kept = td.clone();
        td.get_mut("x")?.as_array_mut::<f64>()?.map_inplace(|x| *x *= 10.0);
        assert_eq!(td.get("x")?.as_slice::<f64>()?, [10.0, 20.0]);
        assert_eq!(kept.get("x")?.as_slice::<f64>()?, [1.0, 2.0]);
        Ok(())
    }

    #[test]
    fn arrays_of_any_layout_become_tensors() -> Result {
        let cube = Array::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as i64);
        let views = [
            cube.view().into_dyn(),
            cube.view().reversed_axes().into_dyn(),
            cube.slice(s![.., ..;-1, 1..3]).into_dyn(),
            cube.slice(s![1, .., ..;2]).into_dyn(),
            cube.slice(s![.., 0..0, ..]).into_dyn(),
            cube.slice(s![0..1, 0..1, ..]).into_dyn(),
        ];
        for view in views {
            let tensor = Tensor::from(&view);
            assert_eq!(tensor.shape()[..], *view.shape());
            assert_eq!(tensor.as_array::<i64>()?, view);
            assert!(tensor.as_slice::<i64>()?.iter().eq(view.iter()));
        }
        let row = array![1_u8, 2];
        let repeated = row.broadcast((3, 2)).ok_or("a broadcast")?;
        assert_eq!(Tensor::from(&repeated).as_slice::<u8>()?, [1, 2, 1, 2, 1, 2]);
        assert!(Tensor::from(Array::from_elem((), true)).item::<bool>()?);
        Ok(())
    }

    #[test]
    fn ranks_and_sizes_at_the_edge() -> Result {
        let deep = ArrayD::from_elem(IxDyn(&[1; 9]), half::f16::ONE);
        let tensor = Tensor::from(&deep);
        assert_eq!(tensor.as_array::<half::f16>()?, deep);
        let empty = Tensor::zeros(DType::Float32, [0, 1 << 40, 1 << 40])?;
        assert!(matches!(empty.as_array::<f32>(), Err(DataError::TooLarge { .. })));
        Ok(())
    }
}

#[cfg(feature = "candle")]
mod candle {
    use super::Result;
    use candle_core::Device;
    use tensordict_pipe::interop::CandleError;
    use tensordict_pipe::{DType, Tensor};

    #[test]
    fn every_shared_dtype_goes_there_and_back() -> Result {
        let mut shared = 0;
        for &dtype in DType::ALL {
            let bytes: Vec<u8> = (0..6 * dtype.item_size()).map(|i| (i % 2) as u8).collect();
            let tensor = Tensor::from_bytes(dtype, [2, 3], &bytes)?;
            match tensor.to_candle(&Device::Cpu) {
                Ok(candle) => {
                    assert_eq!(candle.dims(), [2, 3]);
                    let back = Tensor::try_from(&candle)?;
                    assert_eq!(back.bytes(), tensor.bytes(), "{dtype}");
                    assert_eq!(back.dtype(), if dtype == DType::Bool { DType::UInt8 } else { dtype });
                    shared += 1;
                }
                Err(CandleError::DType { dtype: named }) => assert_eq!(named, dtype.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        assert_eq!(shared, 11);
        Ok(())
    }

    #[test]
    fn any_layout_is_packed() -> Result {
        let numbers = candle_core::Tensor::arange(0_u32, 24, &Device::Cpu)?.reshape((2, 3, 4))?;
        for view in [
            numbers.clone(),
            numbers.t()?,
            numbers.narrow(1, 1, 2)?,
            numbers.narrow(2, 3, 1)?.squeeze(2)?,
            numbers.get(1)?.broadcast_as((5, 3, 4))?,
            numbers.sum_all()?,
        ] {
            let tensor = Tensor::try_from(&view)?;
            assert_eq!(tensor.shape()[..], *view.dims());
            assert_eq!(tensor.as_slice::<u32>()?, view.flatten_all()?.to_vec1::<u32>()?);
        }
        let empty = Tensor::zeros(DType::Float32, [0, 3])?;
        assert_eq!(Tensor::try_from(&empty.to_candle(&Device::Cpu)?)?, empty);
        Ok(())
    }
}

#[cfg(feature = "safetensors")]
mod safetensors {
    use super::Result;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use safetensors::tensor::TensorView as View;
    use safetensors::{Dtype, SafeTensors};
    use tensordict_pipe::interop::SafetensorsError;
    use tensordict_pipe::wire::{Format, Limits, RecvSession};
    use tensordict_pipe::{tensordict, DType, Jagged, Storage, Tensor, TensorDict, Value};

    /// What Python sent, by name.
    fn golden() -> Result<Vec<(String, TensorDict)>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/consolidated");
        let mut cases = Vec::new();
        for file in fs::read_dir(&folder)? {
            let file = file?.file_name().into_string().map_err(|_| "UTF-8")?;
            let Some(name) = file.strip_suffix(".expected.json") else { continue };
            let mut session = RecvSession::new(Format::Consolidated, Limits::default());
            session.accept_header(&fs::read(folder.join(format!("{name}.metadata.json")))?)?;
            let bytes = fs::read(folder.join(format!("{name}.storage.bin")))?;
            cases.push((name.to_owned(), session.finish(Storage::from_bytes(&bytes))?));
        }
        Ok(cases)
    }

    #[test]
    fn what_python_sends_can_be_saved_and_loaded() -> Result {
        let mut refused = Vec::new();
        for (name, td) in golden()? {
            match td.to_safetensors() {
                Ok(file) => {
                    let loaded = TensorDict::from_safetensors(&file)?;
                    assert_eq!(loaded, td, "{name}");
                    assert_eq!(loaded.device(), td.device(), "{name}");
                    assert_eq!(loaded.is_locked(), td.is_locked(), "{name}");
                    assert_eq!(loaded.stack_dim_name(), td.stack_dim_name(), "{name}");
                    assert!(loaded.keys().eq(td.keys()), "{name}");
                }
                Err(SafetensorsError::DType { .. } | SafetensorsError::Value { .. }) => refused.push(name),
                Err(error) => return Err(error.into()),
            }
        }
        refused.sort();
        // complex32 and complex128; NaN.
        assert_eq!(refused, ["dtypes", "values"]);
        Ok(())
    }

    #[test]
    fn any_program_finds_the_tensors() -> Result {
        let td = tensordict!([2];
            "obs" => vec![1.0_f32, 2.0],
            "a" => { "b" => vec![1_u8, 2] },
            "a.b" => vec![3_i64, 4],
            "__metadata__" => vec![true, false],
        )?;
        let bytes = td.to_safetensors()?;
        let file = SafeTensors::deserialize(&bytes)?;
        let mut names = file.names();
        names.sort();
        assert_eq!(names, ["__metadata___", "a.b", "a.b_", "obs"]);
        assert_eq!(file.tensor("obs")?.dtype(), Dtype::F32);
        assert_eq!(TensorDict::from_safetensors(&bytes)?, td);
        Ok(())
    }

    #[test]
    fn files_share_one_storage() -> Result {
        let path = std::env::temp_dir().join(format!("tensordict-pipe-{}.safetensors", std::process::id()));
        let td = tensordict!([2]; "x" => vec![1.0_f64, 2.0], "flags" => vec![true, false], "y" => vec![3_i32, 4])?;
        td.save_safetensors(&path)?;
        let loaded = TensorDict::load_safetensors(&path);
        fs::remove_file(&path)?;
        let loaded = loaded?;
        assert_eq!(loaded, td);
        // Aligned, so that they can be viewed as numbers.
        assert_eq!(loaded.get("x")?.as_slice::<f64>()?, [1.0, 2.0]);
        assert_eq!(loaded.get("y")?.as_slice::<i32>()?, [3, 4]);
        assert!(matches!(TensorDict::load_safetensors(&path), Err(SafetensorsError::Io(_))));
        Ok(())
    }

    #[test]
    fn every_shared_dtype_and_unbatched_ones() -> Result {
        let mut td = TensorDict::new([2]);
        let mut count = 0;
        for &dtype in DType::ALL {
            let bytes: Vec<u8> = (0..2 * dtype.item_size()).map(|i| (i % 2) as u8).collect();
            let tensor = Tensor::from_bytes(dtype, [2], &bytes)?;
            let alone = tensordict!([2]; "x" => tensor.clone())?;
            if alone.to_safetensors().is_ok() {
                td.insert(dtype.name(), tensor)?;
                count += 1;
            }
        }
        td.insert("unbatched", Tensor::from([1_u8, 2, 3]).unbatched())?;
        assert_eq!(count, 19);
        let loaded = TensorDict::from_safetensors(&td.to_safetensors()?)?;
        assert_eq!(loaded, td);
        assert!(loaded.get("unbatched")?.is_unbatched());
        Ok(())
    }

    #[test]
    fn files_of_others_are_flat() -> Result {
        let view = |bytes| View::new(Dtype::I16, vec![1], bytes);
        let bytes = safetensors::serialize([("layer.0.weight", view(&[1, 0])?), ("bias", view(&[2, 0])?)], None)?;
        let td = TensorDict::from_safetensors(&bytes)?;
        assert_eq!(td.len(), 2);
        assert_eq!(td.get("layer.0.weight")?.item::<i16>()?, 1);
        assert!(td.batch_size().is_empty());
        Ok(())
    }

    #[test]
    fn wrong_files_are_refused() -> Result {
        let written = |structure: &str| {
            let metadata = [("tensordict".to_owned(), structure.to_owned())].into();
            let x = View::new(Dtype::U8, vec![2], &[1, 2])?;
            let bytes = safetensors::serialize([("x", x)], Some(metadata))?;
            TensorDict::from_safetensors(&bytes)
        };
        assert!(written(r#"{"batch_size": [2], "entries": {"x": "x"}}"#).is_ok());
        for structure in [
            "",
            "[]",
            "{}",
            r#"{"batch_size": [2]}"#,
            r#"{"batch_size": [-1], "entries": {"x": "x"}}"#,
            r#"{"batch_size": [3], "entries": {"x": "x"}}"#,
            r#"{"batch_size": [2], "names": [], "entries": {"x": "x"}}"#,
            r#"{"batch_size": [2], "entries": {}}"#,
            r#"{"batch_size": [2], "entries": {"x": "x", "y": "y"}}"#,
            r#"{"batch_size": [2], "entries": {"x": "x", "y": 1}}"#,
            r#"{"batch_size": [2], "entries": {"x": {"jagged": ["x"]}}}"#,
            r#"{"batch_size": [2], "entries": {"x": {"jagged": ["x", "x", null], "ragged_index": 1}}}"#,
            r#"{"lazy_stack": ["x"], "dim": 0}"#,
            r#"{"lazy_stack": [{"batch_size": [2], "entries": {"x": "x"}}], "dim": 5}"#,
        ] {
            assert!(written(structure).is_err(), "{structure}");
        }
        let nested = format!("{}1{}", r#"{"lazy_stack": ["#.repeat(10_000), "]}".repeat(10_000));
        assert!(matches!(written(&nested), Err(SafetensorsError::Structure(_))));
        for bytes in [&b""[..], &[0xff; 8], b"\x02\0\0\0\0\0\0\0{}extra"] {
            assert!(matches!(TensorDict::from_safetensors(bytes), Err(SafetensorsError::Safetensors(_))));
        }
        Ok(())
    }

    #[test]
    fn what_json_cannot_express_is_refused() -> Result {
        for value in [Value::Float(f64::NAN), Value::Float(f64::INFINITY), Value::BigInt("9".repeat(30).into())] {
            let td = tensordict!([]; "info" => { "v" => value })?;
            let error = td.to_safetensors().expect_err("refused");
            assert!(matches!(&error, SafetensorsError::Value { path, .. } if path == "info.v"), "{error}");
        }
        let large = tensordict!([]; "v" => Value::BigInt(u64::MAX.to_string().into()))?;
        assert_eq!(TensorDict::from_safetensors(&large.to_safetensors()?)?, large);
        Ok(())
    }

    /// Needs the real packages; `INTEROP_PYTHON` names a Python that has them.
    #[test]
    fn python_loads_what_was_saved() -> Result {
        let Ok(python) = std::env::var("INTEROP_PYTHON") else {
            println!("skipped: INTEROP_PYTHON is not set");
            return Ok(());
        };
        let folder = std::env::temp_dir().join(format!("tensordict-pipe-python-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut count = 0;
        for (name, td) in golden()? {
            if let Ok(bytes) = td.to_safetensors() {
                fs::write(folder.join(format!("{name}.safetensors")), bytes)?;
                count += 1;
            }
        }
        let values = Tensor::from_slice(&[1_i64, 2, 3, 4, 5, 6], [3, 2])?;
        let jagged = Jagged::from_parts(values, None, Tensor::from(vec![0_i64, 1, 3]), 1)?;
        let td = tensordict!([2]; "tokens" => jagged, "w" => Tensor::from([1_u8, 2, 3]).unbatched())?;
        td.save_safetensors(folder.join("rust.safetensors"))?;

        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/safetensors_files.py");
        let output = Command::new(python).arg(script).arg(&folder).output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.contains(&format!("{count} as expected")), "{printed}");
        // And back.
        let back = TensorDict::load_safetensors(folder.join("python.safetensors"))?;
        assert_eq!(back.get("layer.weight")?.as_slice::<f32>()?, [0.0, 1.0, 2.0, 3.0]);
        fs::remove_dir_all(&folder)?;
        Ok(())
    }
}

#[test]
fn foreign_tensors_become_ours() -> Result {
    use std::borrow::Cow;
    use tensordict_pipe::interop::ForeignTensor;
    use tensordict_pipe::{tensordict, DType, Shape, Tensor};

    struct Rows(Vec<u16>);

    impl ForeignTensor for Rows {
        fn dtype(&self) -> DType {
            DType::BFloat16
        }
        fn shape(&self) -> Shape {
            [self.0.len() / 2, 2].into()
        }
        fn bytes(&self) -> Cow<'_, [u8]> {
            self.0.iter().flat_map(|bits| bits.to_ne_bytes()).collect::<Vec<_>>().into()
        }
    }

    let td = tensordict!([2]; "x" => Tensor::from_foreign(&Rows(vec![0x3f80, 0, 0, 0x4000]))?)?;
    let x = td.get("x")?.to_vec::<half::bf16>()?;
    assert_eq!(x.iter().map(|x| x.to_f32()).collect::<Vec<_>>(), [1.0, 0.0, 0.0, 2.0]);
    Ok(())
}
