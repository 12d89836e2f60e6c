//! The [`tensordict!`](crate::tensordict) macro.

/// Makes a [`TensorDict`](crate::TensorDict): the batch size, then names and entries; braces nest.
///
/// Its value is a `Result`: an entry's shape may not start with the batch size. Nested TensorDicts have the same batch
/// size. An entry is whatever [`TensorDict::insert`](crate::TensorDict::insert) takes.
///
/// ```
/// use tensordict_pipe::{tensordict, DType, Tensor};
///
/// let td = tensordict!([3];
///     "action" => vec![0_i64, 2, 1],
///     "next" => {
///         "obs" => Tensor::zeros(DType::Float32, [3, 4])?,
///         "done" => [false, false, true],
///     },
///     "env" => "CartPole-v1",
/// )?;
/// assert_eq!(td.len(), 3);
/// assert!(tensordict!([2]; "x" => vec![1.0, 2.0, 3.0]).is_err());
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[macro_export]
macro_rules! tensordict {
    (@entries $td:ident $result:ident) => {};
    (@entries $td:ident $result:ident $name:expr => { $($nested:tt)* } $(, $($rest:tt)*)?) => {
        let nested = $crate::tensordict!($td.batch_size().clone(); $($nested)*);
        let inserted = nested.and_then(|nested| $td.insert($name, nested));
        $result = $result.and(inserted);
        $crate::tensordict!(@entries $td $result $($($rest)*)?);
    };
    (@entries $td:ident $result:ident $name:expr => $entry:expr $(, $($rest:tt)*)?) => {
        let inserted = $td.insert($name, $entry);
        $result = $result.and(inserted);
        $crate::tensordict!(@entries $td $result $($($rest)*)?);
    };
    ($batch_size:expr $(; $($entries:tt)*)?) => {{
        #[allow(unused_mut)]
        let mut td = $crate::TensorDict::new($batch_size);
        #[allow(unused_mut)]
        let mut result: ::core::result::Result<(), $crate::DataError> = Ok(());
        $($crate::tensordict!(@entries td result $($entries)*);)?
        result.map(|()| td)
    }};
}
