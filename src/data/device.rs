//! [`Device`]: where the sender's tensors live.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A torch device, as a label: our tensors are always in host memory.
///
/// It is what `td.device` says in Python, and travels with a TensorDict. `Display` and `FromStr` use torch's text.
///
/// ```
/// use tensordict_pipe::Device;
///
/// assert_eq!("cuda:1".parse(), Ok(Device::Cuda(1)));
/// assert_eq!(Device::Cuda(1).to_string(), "cuda:1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// Host memory, `cpu`.
    Cpu,
    /// The CUDA device of this index, `cuda:0`.
    Cuda(u32),
    /// Any other label (`cuda`, `mps`, `meta`, ...), kept as it is.
    Other(Box<str>),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Other(label) => f.write_str(label),
        }
    }
}

impl From<&str> for Device {
    fn from(label: &str) -> Self {
        // Only the canonical text, so that every label prints as it was read.
        let cuda =
            || label.strip_prefix("cuda:")?.parse().ok().map(Self::Cuda).filter(|cuda| cuda.to_string() == label);
        match label {
            "cpu" => Self::Cpu,
            _ => cuda().unwrap_or_else(|| Self::Other(label.into())),
        }
    }
}

impl FromStr for Device {
    type Err = Infallible;

    fn from_str(label: &str) -> Result<Self, Infallible> {
        Ok(label.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_prints_as_it_was_read() {
        for label in ["cpu", "cuda:0", "cuda:12", "cuda", "cuda:01", "cuda:+1", "mps", "meta", ""] {
            assert_eq!(Device::from(label).to_string(), label);
        }
        assert_eq!(Device::from("cuda:12"), Device::Cuda(12));
    }
}
