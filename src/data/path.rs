//! [`Path`]: how an entry is named.

/// A sequence of names that leads to an entry: one name, or a tuple, array, slice or `Vec` of names.
///
/// Names are never joined or split: `"a.b"` is one name, `("a", "b")` is the entry `b` of the nested TensorDict `a`, as in
/// Python. The elements of a stack have the names `"0"`, `"1"`, and so on.
///
/// ```
/// use tensordict_pipe::{tensordict, Tensor};
///
/// let td = tensordict!([]; "info" => { "reward" => Tensor::scalar(1.0_f32) })?;
/// assert_eq!(td.get(("info", "reward"))?.item::<f32>()?, 1.0);
/// let path: Vec<String> = vec!["info".into(), "reward".into()];
/// assert!(td.contains(&path));
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
pub trait Path {
    /// Calls `use_names` with the names. Allocates nothing for a single name, a tuple or an array.
    ///
    /// ```
    /// use tensordict_pipe::Path;
    ///
    /// assert_eq!(("info", "reward").with_names(|names| names.join("/")), "info/reward");
    /// ```
    fn with_names<R>(&self, use_names: impl FnOnce(&[&str]) -> R) -> R;
}

// `&str` reads better here than `&Self`.
#[allow(clippy::use_self)]
impl Path for str {
    fn with_names<R>(&self, use_names: impl FnOnce(&[&str]) -> R) -> R {
        use_names(&[self])
    }
}

impl Path for String {
    fn with_names<R>(&self, use_names: impl FnOnce(&[&str]) -> R) -> R {
        use_names(&[self])
    }
}

impl<S: AsRef<str>> Path for [S] {
    fn with_names<R>(&self, use_names: impl FnOnce(&[&str]) -> R) -> R {
        use_names(&self.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }
}

impl<S: AsRef<str>> Path for Vec<S> {
    fn with_names<R>(&self, use_names: impl FnOnce(&[&str]) -> R) -> R {
        self.as_slice().with_names(use_names)
    }
}

impl<S: AsRef<str>, const N: usize> Path for [S; N] {
    fn with_names<R>(&self, use_names: impl FnOnce(&[&str]) -> R) -> R {
        use_names(&self.each_ref().map(AsRef::as_ref))
    }
}

impl<P: Path + ?Sized> Path for &P {
    fn with_names<R>(&self, use_names: impl FnOnce(&[&str]) -> R) -> R {
        (**self).with_names(use_names)
    }
}

macro_rules! tuples {
    ($($($name:ident)+;)+) => { $(
        impl<$($name: AsRef<str>),+> Path for ($($name,)+) {
            fn with_names<R>(&self, use_names: impl FnOnce(&[&str]) -> R) -> R {
                #[allow(non_snake_case)]
                let ($($name,)+) = self;
                use_names(&[$($name.as_ref()),+])
            }
        }
    )+ };
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

/// The path as Python writes it: `'a'` or `('a', 'b')`.
pub(crate) fn text(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("'{}'", name.escape_debug())).collect();
    match quoted.as_slice() {
        [name] => name.clone(),
        _ => format!("({})", quoted.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_python_writes_them() {
        assert_eq!("a.b".with_names(text), "'a.b'");
        assert_eq!(("a", String::from("it's")).with_names(text), r"('a', 'it\'s')");
        assert_eq!(vec!["a", "b"].with_names(text), ["a", "b"].with_names(text));
    }
}
