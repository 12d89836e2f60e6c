//! `safetensors`: TensorDicts as files that Python's `safetensors` reads.

use safetensors::tensor::{Metadata, TensorInfo, View};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::{json, Map, Value as Json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path as FilePath;

use crate::data::{
    DType, DataError, Device, Entry, Item, Jagged, Kind, NonTensor, Shape, Tensor, TensorDict, TensorView, Value,
};
use crate::storage::Storage;

/// The key of the structure in a file's `__metadata__`.
const KEY: &str = "tensordict";

/// Why a TensorDict cannot be written as safetensors, or a file not be read.
///
/// ```
/// use tensordict_pipe::interop::SafetensorsError;
/// use tensordict_pipe::TensorDict;
///
/// let error = TensorDict::load_safetensors("no/such/file").unwrap_err();
/// assert!(matches!(error, SafetensorsError::Io(_)), "{error}");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The other side has no such dtype.
    #[error("{name}: safetensors and torch do not share the dtype {dtype}")]
    DType {
        /// The tensor's name in the file.
        name: String,
        /// The dtype, named as where it exists.
        dtype: String,
    },
    /// A value beside the tensors that JSON cannot express: `NaN`, an infinity, or an integer of more than 64 bits.
    #[error("{path}: {value} has no place in JSON")]
    Value {
        /// The path of the entry, joined with dots.
        path: String,
        /// The value.
        value: String,
    },
    /// The structure in the file's metadata is not one that we write.
    #[error("the file's metadata: {0}")]
    Structure(String),
    /// The parts do not make a TensorDict.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The file is not a safetensors file, or could not be written.
    #[error(transparent)]
    Safetensors(#[from] SafeTensorError),
    /// The file could not be opened, read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

type Result<T> = std::result::Result<T, SafetensorsError>;

/// The dtypes that both have.
const DTYPES: [(DType, Dtype); 19] = [
    (DType::Bool, Dtype::BOOL),
    (DType::UInt8, Dtype::U8),
    (DType::UInt16, Dtype::U16),
    (DType::UInt32, Dtype::U32),
    (DType::UInt64, Dtype::U64),
    (DType::Int8, Dtype::I8),
    (DType::Int16, Dtype::I16),
    (DType::Int32, Dtype::I32),
    (DType::Int64, Dtype::I64),
    (DType::Float16, Dtype::F16),
    (DType::BFloat16, Dtype::BF16),
    (DType::Float32, Dtype::F32),
    (DType::Float64, Dtype::F64),
    (DType::Complex64, Dtype::C64),
    (DType::Float8E4M3Fn, Dtype::F8_E4M3),
    (DType::Float8E4M3FnUz, Dtype::F8_E4M3FNUZ),
    (DType::Float8E5M2, Dtype::F8_E5M2),
    (DType::Float8E5M2FnUz, Dtype::F8_E5M2FNUZ),
    (DType::Float8E8M0Fnu, Dtype::F8_E8M0),
];

impl TensorDict {
    /// The bytes of a safetensors file. Feature `safetensors`.
    ///
    /// Every tensor is one of the file, under its path joined with dots (`info.reward`; with `_` at the end where that name is
    /// taken), so that any program finds the tensors. The structure is JSON under the key `tensordict` of the file's
    /// `__metadata__`: batch sizes, dimension names, device, locks, stacks, jagged tensors and non-tensor values, and the
    /// names in the file. Nothing is left out: what the file cannot hold is refused.
    ///
    /// ```
    /// use tensordict_pipe::{tensordict, TensorDict};
    ///
    /// let td = tensordict!([2]; "obs" => vec![1.0_f32, 2.0], "info" => { "reward" => vec![0.5_f64, 1.0] }, "task" => "walk")?;
    /// let file = td.to_safetensors()?;
    /// assert_eq!(TensorDict::from_safetensors(&file)?, td);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # In Python
    /// ```python
    #[doc = include_str!("safetensors.py")]
    /// ```
    ///
    /// # Errors
    /// * [`SafetensorsError::DType`]: a tensor of complex32, complex128, a quantised dtype, or one below a byte.
    /// * [`SafetensorsError::Value`]: a value that JSON cannot express.
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        let mut tensors = Tensors::default();
        let structure = Json::from(tensors.dict(self, "")?).to_string();
        let metadata = HashMap::from([(KEY.to_owned(), structure)]);
        Ok(safetensors::serialize(tensors.tensors, Some(metadata))?)
    }

    /// Writes a safetensors file, the bytes of [`to_safetensors`](Self::to_safetensors). Feature `safetensors`.
    ///
    /// ```
    /// use tensordict_pipe::{tensordict, TensorDict};
    ///
    /// let path = std::env::temp_dir().join(format!("weights-{}.safetensors", std::process::id()));
    /// let td = tensordict!([]; "weights" => vec![1.0_f32, 2.0])?;
    /// td.save_safetensors(&path)?;
    /// assert_eq!(TensorDict::load_safetensors(&path)?, td);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`to_safetensors`](Self::to_safetensors), and [`SafetensorsError::Io`].
    pub fn save_safetensors(&self, path: impl AsRef<FilePath>) -> Result<()> {
        Ok(File::create(path)?.write_all(&self.to_safetensors()?)?)
    }

    /// The TensorDict of a safetensors file, whose bytes are copied once. Feature `safetensors`.
    ///
    /// A file that somebody else wrote becomes a TensorDict of batch size `[]` with the file's names, in the order of the
    /// file.
    ///
    /// # Errors
    /// * [`SafetensorsError::Safetensors`]: it is not a safetensors file.
    /// * [`SafetensorsError::DType`]: a tensor of 4 or 6 bits an element.
    /// * [`SafetensorsError::Structure`], [`SafetensorsError::Data`]: its metadata is wrong.
    pub fn from_safetensors(file: &[u8]) -> Result<Self> {
        read(Storage::from_bytes(file))
    }

    /// Reads a safetensors file; its tensors share the storage that the file was read into. Feature `safetensors`.
    ///
    /// # Errors
    /// As [`from_safetensors`](Self::from_safetensors), and [`SafetensorsError::Io`].
    pub fn load_safetensors(path: impl AsRef<FilePath>) -> Result<Self> {
        let mut file = File::open(path)?;
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut storage = Storage::zeroed(len);
        file.read_exact(storage.make_mut())?;
        read(storage)
    }
}

/// The tensors of a file that is being written.
#[derive(Default)]
struct Tensors {
    tensors: BTreeMap<String, Stored>,
}

struct Stored {
    dtype: Dtype,
    tensor: Tensor,
}

impl View for Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.tensor.bytes().into()
    }

    fn data_len(&self) -> usize {
        self.tensor.bytes().len()
    }
}

impl Tensors {
    fn dict(&mut self, td: &TensorDict, path: &str) -> Result<Map<String, Json>> {
        let mut dict = Map::new();
        if let Kind::LazyStack | Kind::NonTensorStack = td.kind() {
            let kind = if td.kind() == Kind::LazyStack { "lazy_stack" } else { "value_stack" };
            let elements =
                td.elements().enumerate().map(|(i, entry)| self.entry(&entry, &joined(path, &i.to_string())));
            dict.insert(kind.to_owned(), elements.collect::<Result<Vec<_>>>()?.into());
            dict.insert("dim".to_owned(), td.stack_dim().into());
            if let Some(name) = td.stack_dim_name() {
                dict.insert("name".to_owned(), name.into());
            }
        } else {
            dict.insert("batch_size".to_owned(), td.batch_size()[..].into());
            if td.dim_names().iter().any(Option::is_some) {
                dict.insert("names".to_owned(), td.dim_names().into());
            }
            if let Some(device) = td.device() {
                dict.insert("device".to_owned(), device.to_string().into());
            }
            let entries =
                td.iter().map(|(name, entry)| Ok((name.to_owned(), self.entry(&entry, &joined(path, name))?)));
            dict.insert("entries".to_owned(), entries.collect::<Result<Map<_, _>>>()?.into());
        }
        if td.is_locked() {
            dict.insert("locked".to_owned(), true.into());
        }
        Ok(dict)
    }

    fn entry(&mut self, entry: &Entry<'_>, path: &str) -> Result<Json> {
        Ok(match entry {
            Entry::Tensor(view) => {
                let name = self.add(*view, path)?;
                if view.is_unbatched() {
                    json!({"unbatched": name})
                } else {
                    name.into()
                }
            }
            Entry::Jagged(view) => {
                let values = self.add(view.values(), &joined(path, "values"))?;
                let offsets = self.add(view.offsets(), &joined(path, "offsets"))?;
                let lengths = view.lengths().map(|lengths| self.add(lengths, &joined(path, "lengths"))).transpose()?;
                json!({"jagged": [values, offsets, lengths], "ragged_index": view.ragged_index()})
            }
            Entry::NonTensor(data) => {
                let mut entry = Map::from_iter([("value".to_owned(), value_to_json(data.value(), path)?)]);
                entry.insert("batch_size".to_owned(), data.batch_size()[..].into());
                if let Some(device) = data.device() {
                    entry.insert("device".to_owned(), device.to_string().into());
                }
                entry.into()
            }
            Entry::Dict(td) | Entry::LazyStack(td) | Entry::NonTensorStack(td) => self.dict(td, path)?.into(),
        })
    }

    /// Adds a tensor under a free name like the path, and gives the name.
    fn add(&mut self, view: TensorView<'_>, path: &str) -> Result<String> {
        let mut name = path.to_owned();
        while name == "__metadata__" || self.tensors.contains_key(&name) {
            name.push('_');
        }
        let dtype = DTYPES.iter().find(|(dtype, _)| *dtype == view.dtype()).map(|(_, dtype)| *dtype);
        let Some(dtype) = dtype else {
            return Err(SafetensorsError::DType { name, dtype: view.dtype().to_string() });
        };
        self.tensors.insert(name.clone(), Stored { dtype, tensor: view.to_tensor() });
        Ok(name)
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn value_to_json(value: &Value, path: &str) -> Result<Json> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => (*number).into(),
        Value::Float(number) if number.is_finite() => (*number).into(),
        Value::Str(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(|item| value_to_json(item, path)).collect::<Result<_>>()?,
        Value::Map(entries) => {
            entries.iter().map(|(key, item)| Ok((key.clone(), value_to_json(item, path)?))).collect::<Result<_>>()?
        }
        Value::BigInt(digits) => match digits.parse::<u64>() {
            Ok(number) => number.into(),
            Err(_) => return Err(SafetensorsError::Value { path: path.to_owned(), value: digits.to_string() }),
        },
        Value::Float(number) => {
            return Err(SafetensorsError::Value { path: path.to_owned(), value: number.to_string() })
        }
    })
}

fn value_from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => Value::BigInt(number.to_string().into()),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(items) => Value::List(items.iter().map(value_from_json).collect()),
        Json::Object(entries) => {
            Value::Map(entries.iter().map(|(key, item)| (key.clone(), value_from_json(item))).collect())
        }
    }
}

fn read(storage: Storage) -> Result<TensorDict> {
    let (header, metadata) = SafeTensors::read_metadata(storage.as_bytes())?;
    // After the header and its own length.
    let mut file = Source { storage: &storage, start: header + 8, metadata: &metadata, used: 0 };
    let td = match metadata.metadata().as_ref().and_then(|metadata| metadata.get(KEY)) {
        Some(structure) => {
            let structure: Json =
                serde_json::from_str(structure).map_err(|error| structure_error(error.to_string()))?;
            file.dict(&structure)?
        }
        None => {
            let mut td = TensorDict::new([]);
            for name in metadata.offset_keys() {
                let tensor = file.tensor(&name)?;
                td.insert(name, tensor)?;
            }
            td
        }
    };
    match metadata.tensors().len() {
        count if count == file.used => Ok(td),
        count => Err(structure_error(format!("{count} tensors, of which it names {}", file.used))),
    }
}

/// A file that is being read.
struct Source<'a> {
    storage: &'a Storage,
    /// Where the tensors begin.
    start: usize,
    metadata: &'a Metadata,
    /// How many tensors were taken.
    used: usize,
}

impl Source<'_> {
    fn dict(&mut self, json: &Json) -> Result<TensorDict> {
        let mut td = if let Some(elements) = json["lazy_stack"].as_array() {
            let elements = elements.iter().map(|element| self.dict(element)).collect::<Result<Vec<_>>>()?;
            TensorDict::lazy_stack(elements, size(&json["dim"])?)?
        } else if let Some(elements) = json["value_stack"].as_array() {
            let elements = elements.iter().map(|element| self.item(element)).collect::<Result<Vec<_>>>()?;
            TensorDict::non_tensor_stack(elements, size(&json["dim"])?)?
        } else {
            let entries = json["entries"].as_object().ok_or_else(|| wrong("a TensorDict", json))?;
            let mut td = TensorDict::new(shape(&json["batch_size"])?);
            if let Some(names) = json["names"].as_array() {
                td.set_dim_names(names.iter().map(Json::as_str))?;
            }
            td.set_device(json["device"].as_str().map(Device::from));
            for (name, entry) in entries {
                let item = self.item(entry)?;
                td.insert(name, item)?;
            }
            td
        };
        if let Some(name) = json["name"].as_str() {
            td.set_stack_dim_name(Some(name))?;
        }
        if json["locked"] == true {
            td.lock();
        }
        Ok(td)
    }

    fn item(&mut self, json: &Json) -> Result<Item> {
        Ok(if let Some(name) = json.as_str() {
            self.tensor(name)?.into()
        } else if let Some(name) = json["unbatched"].as_str() {
            self.tensor(name)?.unbatched().into()
        } else if let Some([values, offsets, lengths]) = json["jagged"].as_array().map(Vec::as_slice) {
            let mut tensor = |name: &Json| self.tensor(name.as_str().ok_or_else(|| wrong("a name", name))?);
            let (values, offsets) = (tensor(values)?, tensor(offsets)?);
            let lengths = if lengths.is_null() { None } else { Some(tensor(lengths)?) };
            Jagged::from_parts(values, lengths, offsets, size(&json["ragged_index"])?)?.into()
        } else if let Some(value) = json.get("value") {
            let data = NonTensor::new(value_from_json(value)).with_batch_size(shape(&json["batch_size"])?);
            data.with_device(json["device"].as_str().map(Device::from)).into()
        } else {
            self.dict(json)?.into()
        })
    }

    /// Shares the bytes of the file.
    fn tensor(&mut self, name: &str) -> Result<Tensor> {
        let info = self.metadata.info(name).ok_or_else(|| structure_error(format!("no tensor {name:?}")))?;
        let TensorInfo { dtype, shape, data_offsets: (start, _) } = info;
        let known = DTYPES.iter().find(|(_, known)| known == dtype).map(|(dtype, _)| *dtype);
        let known = known.ok_or_else(|| SafetensorsError::DType { name: name.to_owned(), dtype: dtype.to_string() })?;
        self.used += 1;
        Ok(Tensor::from_storage(known, shape.as_slice(), self.storage.clone(), self.start + start)?)
    }
}

fn shape(json: &Json) -> Result<Shape> {
    json.as_array().ok_or_else(|| wrong("a batch size", json))?.iter().map(size).collect()
}

fn size(json: &Json) -> Result<usize> {
    json.as_u64().and_then(|size| size.try_into().ok()).ok_or_else(|| wrong("a size", json))
}

fn wrong(expected: &str, found: &Json) -> SafetensorsError {
    structure_error(format!("{expected} was expected, not {found}"))
}

fn structure_error(reason: String) -> SafetensorsError {
    SafetensorsError::Structure(reason)
}
