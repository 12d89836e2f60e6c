//! How tensors and values print.

use std::fmt::{self, Display, Formatter, Write};

use super::dtype::{DType, Element};
use super::jagged::{Jagged, JaggedView};
use super::tensor::Tensor;
use super::value::Value;
use super::view::TensorView;

/// `f32[3,4]`, as in the repr of a TensorDict.
impl Display for TensorView<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", short_name(self.dtype()), self.shape())
    }
}

/// `f32[3,4]` and the first elements.
impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ")?;
        match self.dtype() {
            DType::Bool => first_elements::<bool>(self, f),
            DType::UInt8 => first_elements::<u8>(self, f),
            DType::UInt16 => first_elements::<u16>(self, f),
            DType::UInt32 => first_elements::<u32>(self, f),
            DType::UInt64 => first_elements::<u64>(self, f),
            DType::Int8 => first_elements::<i8>(self, f),
            DType::Int16 => first_elements::<i16>(self, f),
            DType::Int32 => first_elements::<i32>(self, f),
            DType::Int64 => first_elements::<i64>(self, f),
            DType::Float16 => first_elements::<half::f16>(self, f),
            DType::BFloat16 => first_elements::<half::bf16>(self, f),
            DType::Float32 => first_elements::<f32>(self, f),
            DType::Float64 => first_elements::<f64>(self, f),
            _ => f.write_str("[..]"),
        }
    }
}

impl Display for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.view(), f)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), f)
    }
}

impl fmt::Debug for JaggedView<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jagged")
            .field("values", &self.values())
            .field("lengths", &self.lengths())
            .field("offsets", &self.offsets())
            .field("ragged_index", &self.ragged_index())
            .finish()
    }
}

impl fmt::Debug for Jagged {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), f)
    }
}

/// As Python's `repr` writes it.
impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("None"),
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(number) => write!(f, "{number}"),
            Self::BigInt(digits) => f.write_str(digits),
            Self::Float(number) if number.is_nan() => f.write_str("nan"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Str(text) => write_quoted(f, text),
            Self::List(elements) => {
                f.write_char('[')?;
                for (i, element) in elements.iter().enumerate() {
                    write!(f, "{}{element}", if i == 0 { "" } else { ", " })?;
                }
                f.write_char(']')
            }
            Self::Map(pairs) => {
                f.write_char('{')?;
                for (i, (key, value)) in pairs.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    write_quoted(f, key)?;
                    write!(f, ": {value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn write_quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    f.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            '\\' => f.write_str("\\\\")?,
            _ if c == quote => write!(f, "\\{c}")?,
            _ if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
            _ => f.write_char(c)?,
        }
    }
    f.write_char(quote)
}

fn first_elements<T: Element + fmt::Debug>(view: &TensorView<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let items = view.bytes().chunks_exact(size_of::<T>()).take(SHOWN_ELEMENTS);
    let mut list = f.debug_list();
    for item in items {
        match bytemuck::checked::try_pod_read_unaligned::<T>(item) {
            Ok(element) => list.entry(&element),
            Err(_) => list.entry(&item),
        };
    }
    match view.element_count() > SHOWN_ELEMENTS {
        true => list.finish_non_exhaustive(),
        false => list.finish(),
    }
}

/// `f32`, `i64`, `u8`, `c64`, `bf16`, `bool`, `f8_e4m3fn`.
pub(super) fn short_name(dtype: DType) -> String {
    let long = [("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")];
    long.into_iter().fold(dtype.name().to_owned(), |name, (long, short)| name.replace(long, short))
}

/// How many elements the `Debug` of a tensor shows.
const SHOWN_ELEMENTS: usize = 8;
