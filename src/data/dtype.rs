//! [`DType`] and [`Element`]: the one table of torch's element types.

use half::{bf16, f16};
use std::fmt;
use std::str::FromStr;

use super::error::DataError;

/// Builds [`DType`] and [`Element`] from the table below. A row is
/// `Variant = "torch name", item size in bytes, packable or loose only, [Rust type], [other torch names];`.
macro_rules! dtypes {
    ($($variant:ident = $name:literal, $size:literal, $packable:ident, [$($element:ty)?], [$($alias:literal),*];)*) => {
        /// The type of a tensor's elements: every dtype of torch, under torch's name.
        ///
        /// `Display` writes the name as torch does (`torch.float32`) and `FromStr` reads it, short names
        /// (`torch.float`, `torch.long`) included.
        ///
        /// ```
        /// use tensordict_pipe::DType;
        ///
        /// let dtype: DType = "torch.half".parse()?;
        /// assert_eq!(dtype, DType::Float16);
        /// assert_eq!(dtype.to_string(), "torch.float16");
        /// assert_eq!(dtype.item_size(), 2);
        /// # Ok::<(), tensordict_pipe::DataError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType {
            $(
                #[doc = concat!("`torch.", $name, "`, ", $size, " byte(s) an element.")]
                $variant,
            )*
        }

        impl DType {
            /// Every dtype, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name without `torch.`, for example `float32`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The size of one element in bytes, as torch's `itemsize`. Types below one byte take one.
            #[must_use]
            pub const fn item_size(self) -> usize {
                match self { $(Self::$variant => $size),* }
            }

            /// Whether Python's `consolidate` can pack it; the others (`float8_*`, `bits*`, ...) travel leaf by leaf only.
            #[must_use]
            pub const fn is_packable(self) -> bool {
                match self { $(Self::$variant => dtypes!(@$packable)),* }
            }

            fn from_name(name: &str) -> Option<Self> {
                Some(match name {
                    $($name $(| $alias)* => Self::$variant,)*
                    _ => return None,
                })
            }
        }

        $($(impl Element for $element {
            const DTYPE: DType = DType::$variant;
        }
        impl sealed::Sealed for $element {})?)*
    };
    (@packable) => { true };
    (@loose) => { false };
}

dtypes! {
    Bool = "bool", 1, packable, [bool], [];
    UInt8 = "uint8", 1, packable, [u8], [];
    UInt16 = "uint16", 2, packable, [u16], [];
    UInt32 = "uint32", 4, packable, [u32], [];
    UInt64 = "uint64", 8, packable, [u64], [];
    Int8 = "int8", 1, packable, [i8], [];
    Int16 = "int16", 2, packable, [i16], ["short"];
    Int32 = "int32", 4, packable, [i32], ["int"];
    Int64 = "int64", 8, packable, [i64], ["long"];
    Float16 = "float16", 2, packable, [f16], ["half"];
    BFloat16 = "bfloat16", 2, packable, [bf16], [];
    Float32 = "float32", 4, packable, [f32], ["float"];
    Float64 = "float64", 8, packable, [f64], ["double"];
    Complex32 = "complex32", 4, packable, [], ["chalf"];
    Complex64 = "complex64", 8, packable, [], ["cfloat"];
    Complex128 = "complex128", 16, packable, [], ["cdouble"];
    QInt8 = "qint8", 1, packable, [], [];
    QUInt8 = "quint8", 1, packable, [], [];
    QInt32 = "qint32", 4, packable, [], [];
    QUInt4x2 = "quint4x2", 1, packable, [], [];
    QUInt2x4 = "quint2x4", 1, loose, [], [];
    BComplex32 = "bcomplex32", 4, loose, [], [];
    Float8E4M3Fn = "float8_e4m3fn", 1, loose, [], [];
    Float8E4M3FnUz = "float8_e4m3fnuz", 1, loose, [], [];
    Float8E5M2 = "float8_e5m2", 1, loose, [], [];
    Float8E5M2FnUz = "float8_e5m2fnuz", 1, loose, [], [];
    Float8E8M0Fnu = "float8_e8m0fnu", 1, loose, [], [];
    Float4E2M1FnX2 = "float4_e2m1fn_x2", 1, loose, [], [];
    Bits8 = "bits8", 1, loose, [], [];
    Bits16 = "bits16", 2, loose, [], [];
    Bits1x8 = "bits1x8", 1, loose, [], [];
    Bits2x4 = "bits2x4", 1, loose, [], [];
    Bits4x2 = "bits4x2", 1, loose, [], [];
    Int1 = "int1", 1, loose, [], [];
    Int2 = "int2", 1, loose, [], [];
    Int3 = "int3", 1, loose, [], [];
    Int4 = "int4", 1, loose, [], [];
    Int5 = "int5", 1, loose, [], [];
    Int6 = "int6", 1, loose, [], [];
    Int7 = "int7", 1, loose, [], [];
    UInt1 = "uint1", 1, loose, [], ["bit"];
    UInt2 = "uint2", 1, loose, [], [];
    UInt3 = "uint3", 1, loose, [], [];
    UInt4 = "uint4", 1, loose, [], [];
    UInt5 = "uint5", 1, loose, [], [];
    UInt6 = "uint6", 1, loose, [], [];
    UInt7 = "uint7", 1, loose, [], [];
}

#[cfg(feature = "num-complex")]
mod complex {
    use num_complex::Complex;

    macro_rules! complex {
        ($($element:ty, $variant:ident;)*) => {
            $(impl super::Element for Complex<$element> {
                const DTYPE: super::DType = super::DType::$variant;
            }
            impl super::sealed::Sealed for Complex<$element> {})*
        };
    }

    complex! {
        half::f16, Complex32;
        f32, Complex64;
        f64, Complex128;
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch.{}", self.name())
    }
}

impl FromStr for DType {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        name.strip_prefix("torch.")
            .and_then(Self::from_name)
            .ok_or_else(|| DataError::UnknownDType { name: name.to_owned() })
    }
}

/// A Rust type whose slices are the elements of a tensor.
///
/// Implemented for `bool`, the integers of 8 to 64 bits, `f32`, `f64`, [`half::f16`] and [`half::bf16`], and with the
/// `num-complex` feature for `Complex` of `f16`, `f32` and `f64`. Tensors of the other dtypes are read as bytes.
///
/// ```
/// use tensordict_pipe::{DType, DataError, Element, Tensor};
///
/// /// The greatest element, whatever the type of the numbers.
/// fn greatest<T: Element + PartialOrd>(tensor: &Tensor) -> Result<Option<T>, DataError> {
///     Ok(tensor.to_vec::<T>()?.into_iter().reduce(|a, b| if a < b { b } else { a }))
/// }
///
/// assert_eq!(f32::DTYPE, DType::Float32);
/// assert_eq!(greatest::<u8>(&Tensor::from(vec![3_u8, 7, 5]))?, Some(7));
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
pub trait Element: bytemuck::CheckedBitPattern + bytemuck::NoUninit + sealed::Sealed {
    /// The dtype that has this representation.
    const DTYPE: DType;
}

mod sealed {
    pub trait Sealed {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse::<DType>().expect("own name"), dtype);
        }
        for (alias, dtype) in [
            ("half", DType::Float16),
            ("float", DType::Float32),
            ("double", DType::Float64),
            ("short", DType::Int16),
            ("int", DType::Int32),
            ("long", DType::Int64),
            ("chalf", DType::Complex32),
            ("cfloat", DType::Complex64),
            ("cdouble", DType::Complex128),
            ("bit", DType::UInt1),
        ] {
            assert_eq!(format!("torch.{alias}").parse::<DType>().expect("alias"), dtype);
        }
        for unknown in ["float32", "torch.float128", "torch.", ""] {
            assert!(unknown.parse::<DType>().is_err(), "{unknown:?}");
        }
    }

    #[test]
    fn rust_types_have_the_item_size() {
        fn check<T: Element>() {
            assert_eq!(T::DTYPE.item_size(), size_of::<T>(), "{}", T::DTYPE);
        }
        check::<bool>();
        check::<u8>();
        check::<u16>();
        check::<u32>();
        check::<u64>();
        check::<i8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<f16>();
        check::<bf16>();
        check::<f32>();
        check::<f64>();
        #[cfg(feature = "num-complex")]
        {
            check::<num_complex::Complex<f16>>();
            check::<num_complex::Complex<f32>>();
            check::<num_complex::Complex<f64>>();
        }
    }
}
