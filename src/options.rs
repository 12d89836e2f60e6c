//! [`PipeOptions`]: everything about a pipe that can be chosen, as plain data.

use std::time::Duration;

use crate::data::Device;
use crate::error::{Error, Result};
use crate::wire::{Format, Limits};

/// How to make a pipe; every option has a default. Made by [`Pipe::options`](crate::Pipe::options), used up by
/// [`connect`](PipeOptions::connect) or [`listen`](PipeOptions::listen), and reusable.
///
/// ```no_run
/// use std::time::Duration;
/// use tensordict_pipe::{Device, Limits, Pipe};
///
/// let minute = Duration::from_secs(60);
/// let options = Pipe::options()
///     .connect_timeout(minute) // each with its default below
///     .accept_timeout(minute)
///     .handshake_timeout(minute)
///     .send_timeout(minute)
///     .recv_timeout(minute)
///     .close_timeout(minute)
///     .consolidated(true)
///     .spin(Duration::ZERO)
///     .limits(Limits::default().max_storage_bytes(1 << 30))
///     .device(Device::Cpu)
///     .ucx("NET_DEVICES", "eth1");
/// let pipe = options.connect("node-b", 13337)?;
/// let server = options.bind("10.0.0.1").server(13338)?;
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PipeOptions {
    pub(crate) connect_timeout: Duration,
    pub(crate) accept_timeout: Option<Duration>,
    pub(crate) handshake_timeout: Duration,
    pub(crate) send_timeout: Option<Duration>,
    pub(crate) recv_timeout: Option<Duration>,
    pub(crate) close_timeout: Duration,
    pub(crate) bind: String,
    pub(crate) consolidated: bool,
    pub(crate) spin: Duration,
    pub(crate) limits: Limits,
    pub(crate) device: Device,
    pub(crate) ucx: Vec<(String, String)>,
}

impl Default for PipeOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            accept_timeout: None,
            handshake_timeout: Duration::from_secs(5),
            send_timeout: None,
            recv_timeout: None,
            close_timeout: Duration::from_secs(5),
            bind: "0.0.0.0".to_owned(),
            consolidated: true,
            spin: Duration::from_micros(50),
            limits: Limits::default(),
            device: Device::Cpu,
            ucx: Vec::new(),
        }
    }
}

impl PipeOptions {
    /// How long `connect` tries, again and again, until a listener answers. Default: 5 s, so that a listener may
    /// start a little later. Also how long the resolver may take for a name, that of [`bind`](Self::bind) too.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long `listen` waits for a client. Default: none, for ever.
    #[must_use]
    pub fn accept_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.accept_timeout = timeout.into();
        self
    }

    /// How long a client that has connected may take for the exchange of tags. Default: 5 s, as in Python.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// The deadline of every `send` that is not given one. Default: none, a slow receiver holds the sender up. An
    /// expired send finishes the pipe, since UCX cannot take it back.
    #[must_use]
    pub fn send_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.send_timeout = timeout.into();
        self
    }

    /// The deadline of every `recv` that is not given one. Default: none. An expired receive loses nothing.
    #[must_use]
    pub fn recv_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.recv_timeout = timeout.into();
        self
    }

    /// How long `close`, or dropping the pipe, waits for the peer to have received everything. Default: 5 s. What
    /// it has not received then is lost, and `close` says so.
    #[must_use]
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }

    /// The address on which `listen` listens: an IPv4 or IPv6 address or a name of this host. Default: `0.0.0.0`,
    /// every IPv4 interface, as in Python. There is no authentication: bind to an address that only trusted peers
    /// reach. `::` listens on IPv6.
    #[must_use]
    pub fn bind(mut self, host: impl Into<String>) -> Self {
        self.bind = host.into();
        self
    }

    /// Python's `consolidated`: whether a message is one packed buffer whose structure is sent once (`true`), or a
    /// header and each leaf on its own (`false`). Both ends must agree. Default: `true`, the faster by far.
    #[must_use]
    pub fn consolidated(mut self, consolidated: bool) -> Self {
        self.consolidated = consolidated;
        self
    }

    /// How long a waiting call spins before it sleeps. Default: 50 µs. More costs CPU time while waiting, less costs
    /// latency: waking up takes some microseconds.
    #[must_use]
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// What a peer may ask of this end's memory. Default: [`Limits::default`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where `recv` puts tensors. Default: [`Device::Cpu`], also for what a sender has on a GPU. This build has no
    /// other; asking for one is an error of `connect` and `listen`.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// A setting of UCX by its own name, without the `UCX_` of the variable: `("TLS", "tcp")`,
    /// `("NET_DEVICES", "mlx5_0:1")`. It comes before the environment, and the environment before the presets of this
    /// crate (`MM_ERROR_HANDLING=y`, `TCP_PUT_ENABLE=n`, `TCP_TX_SEG_SIZE=64k`, ...). Default: none.
    ///
    /// Versions before 1.14 know the settings of a single transport only by their bare names here (`TX_SEG_SIZE`).
    ///
    /// Over TCP, messages of some 100 KiB are faster by half with `TCP_TX_SEG_SIZE` and `TCP_RX_SEG_SIZE` of `256k`
    /// (`benches/RESULTS.md`). Both ends must have them: a larger segment than it takes crashes a process within UCX.
    #[must_use]
    pub fn ucx(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        let bare = name.strip_prefix("UCX_").map(str::to_owned).unwrap_or(name);
        self.ucx.push((bare, value.into()));
        self
    }

    pub(crate) fn format(&self) -> Format {
        if self.consolidated {
            Format::Consolidated
        } else {
            Format::LeafByLeaf
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.device != Device::Cpu {
            let reason = format!(
                "device {}: this build can receive only on the CPU; the `cuda` feature does not exist yet",
                self.device
            );
            return Err(Error::Options(reason.into()));
        }
        if self.bind.is_empty() {
            return Err(Error::Options("bind: an empty host; give an address, or 0.0.0.0 for all".into()));
        }
        if self.spin > Duration::from_secs(1) {
            return Err(Error::Options("spin: more than a second; a waiting call would burn a core".into()));
        }
        Ok(())
    }
}
