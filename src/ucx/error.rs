//! [`UcxError`]: what a UCX call said, and which call.

use super::status::Status;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UcxError {
    #[error("{operation}: {status}")]
    Status { operation: &'static str, status: Status },
    #[error("UCX setting {name}={value} was refused ({status}); `ucx_info -c` lists the names and values of the installed version")]
    Setting { name: String, value: String, status: Status },
    #[error("a UCX setting with a NUL byte: {0:?}")]
    SettingText(String),
    #[error(
        "the UCX loaded at run time is {loaded}, but this program was compiled for {major}.{minor} or later; \
         install a newer libucp, or put it first in LD_LIBRARY_PATH"
    )]
    Version { loaded: String, major: u32, minor: u32 },
    #[error("UCX was built without thread support (asked for SERIALIZED): install a build with --enable-mt")]
    ThreadMode,
    #[error(
        "UCX found no usable transport: {status}. UCX_TLS is {tls}, UCX_NET_DEVICES is {devices}; \
         unset them or name transports that `ucx_info -d` lists"
    )]
    NoTransport { status: Status, tls: String, devices: String },
    #[error("the address {0} is in use; choose another port, or 0 for any free one")]
    AddrInUse(std::net::SocketAddr),
    #[error("{address} cannot be used: {reason}")]
    Ipv6 { address: std::net::SocketAddr, reason: &'static str },
    #[error("{operation}: {message}")]
    Os { operation: &'static str, message: String },
}

impl UcxError {
    pub(crate) fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } | Self::Setting { status, .. } | Self::NoTransport { status, .. } => {
                Some(*status)
            }
            _ => None,
        }
    }
}
