//! [`Value`] and [`NonTensor`]: what travels beside the tensors.

use super::device::Device;
use super::shape::Shape;

/// A JSON value: the non-tensor values that a pipe can carry.
///
/// Python's tuples arrive as lists and other types are refused by the Python sender, since the format is JSON.
/// Floats compare as their text does: `NaN` equals `NaN`, and `-0.0` differs from `0.0`.
///
/// ```
/// use tensordict_pipe::Value;
///
/// let value = Value::from(vec![Value::from("a"), Value::from(3), Value::Null]);
/// assert_eq!(value.as_list().map(<[Value]>::len), Some(3));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// `null`, Python's `None`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// An integer outside the range of `i64`, in decimal digits with an optional minus sign.
    BigInt(Box<str>),
    /// A floating point number, `NaN` and the infinities included.
    Float(f64),
    /// A string.
    Str(String),
    /// A list.
    List(Vec<Self>),
    /// A dict with string keys, in order. Keys should be unique; of equal ones the last counts, as in JSON.
    Map(Vec<(String, Self)>),
}

impl Value {
    /// Python's name for the type: `NoneType`, `bool`, `int`, `float`, `str`, `list` or `dict`.
    ///
    /// ```
    /// use tensordict_pipe::Value;
    ///
    /// let value = Value::Map(vec![("on".into(), true.into()), ("n".into(), 3.into()), ("x".into(), 0.5.into())]);
    /// assert_eq!((value.type_name(), value.as_str()), ("dict", None));
    /// assert_eq!(value.get("on").and_then(Value::as_bool), Some(true));
    /// assert_eq!(value.get("n").and_then(Value::as_i64), Some(3));
    /// assert_eq!(value.get("x").and_then(Value::as_f64), Some(0.5));
    /// ```
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::BigInt(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::List(_) => "list",
            Self::Map(_) => "dict",
        }
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The integer, if it is one that fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The floating point number, if it is one.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements, if it is a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// The value under `key`, if it is a dict that has the key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(pairs) => pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::BigInt(a), Self::BigInt(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or_else(|_| Self::BigInt(number.to_string().into()), Self::Int)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(elements: Vec<T>) -> Self {
        Self::List(elements.into_iter().map(Into::into).collect())
    }
}

/// A [`Value`] as an entry of a TensorDict: Python's `NonTensorData`, with a batch size and a device label of its own.
///
/// ```
/// use tensordict_pipe::{Device, NonTensor, TensorDict};
///
/// let mut td = TensorDict::new([2]);
/// td.insert("task", NonTensor::new("walk").with_batch_size([2]).with_device(Device::Cpu))?;
/// assert_eq!(td.value("task")?.as_str(), Some("walk"));
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonTensor {
    pub(crate) value: Value,
    pub(crate) batch_size: Shape,
    pub(crate) device: Option<Device>,
}

impl NonTensor {
    /// A value with batch size `[]` and no device.
    ///
    /// Put into a TensorDict it takes the TensorDict's batch size unless its own begins with it, as in Python.
    #[must_use]
    pub fn new(value: impl Into<Value>) -> Self {
        Self { value: value.into(), batch_size: Shape::SCALAR, device: None }
    }

    /// The same value with another batch size.
    #[must_use]
    pub fn with_batch_size(self, batch_size: impl Into<Shape>) -> Self {
        Self { batch_size: batch_size.into(), ..self }
    }

    /// The same value with another device label.
    #[must_use]
    pub fn with_device(self, device: impl Into<Option<Device>>) -> Self {
        Self { device: device.into(), ..self }
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The value, taken out.
    ///
    /// ```
    /// use tensordict_pipe::{NonTensor, Value};
    ///
    /// let data = NonTensor::new(3);
    /// assert_eq!((data.batch_size().len(), data.device()), (0, None));
    /// assert_eq!(data.into_value(), Value::Int(3));
    /// ```
    #[must_use]
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The batch size; `[]` unless set.
    #[must_use]
    pub fn batch_size(&self) -> &Shape {
        &self.batch_size
    }

    /// The device label; `None` unless set.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }
}
