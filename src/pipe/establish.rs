//! How a pipe comes about: connecting with retries, listening, and the errors of both.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::timer::Timer;
use super::Pipe;
use crate::error::{Error, Peer, Phase, Result};
use crate::link::LinkError;
use crate::options::PipeOptions;
use crate::ucx::{
    check_usable, loaded_version_text, resolve, Connecting, EstablishError, Settings, UcxError, UcxLink, UcxListener,
};

/// Between two tries of the same addresses: short at first, since the usual case is a listener that is about to start.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The least time that one of several addresses gets.
const SHORTEST_TRY: Duration = Duration::from_millis(250);

impl PipeOptions {
    /// Connects to the pipe that listens on `host` and `port`.
    ///
    /// `host` is a name or an IPv4 or IPv6 address (with a scope if need be: `fe80::1%eth0`). All addresses of a name
    /// are tried, again and again until [`connect_timeout`](Self::connect_timeout), so that the listener may start a
    /// little later.
    ///
    /// # Errors
    /// * [`Error::Resolve`]: the name has no address.
    /// * [`Error::Timeout`] with [`Phase::Resolve`]: the resolver did not answer in that time.
    /// * [`Error::Timeout`] with [`Phase::Connect`]: no listener answered; the cause is what the tries ended with.
    /// * [`Error::Refused`]: a listener answered and refused.
    /// * [`Error::Setup`], [`Error::Options`]: UCX cannot be used with these settings.
    pub fn connect(&self, host: &str, port: u16) -> Result<Pipe> {
        self.check()?;
        let timer = Timer::new(Some(self.connect_timeout));
        let addresses = self.addresses(host, port, timer)?;
        let mut settings = self.settings();
        let mut pause = FIRST_PAUSE;
        let mut cause = "no answer; is it the right host, and does a firewall let the port through?".to_owned();
        loop {
            for (i, address) in addresses.iter().enumerate() {
                let share = share(timer, addresses.len() - i);
                match self.try_address(*address, &settings, share) {
                    Ok(link) => return Ok(self.pipe(link)),
                    Err(EstablishError::Ucx(error)) if error.status().is_none() => return Err(setup(error)),
                    Err(EstablishError::Ucx(error @ UcxError::NoTransport { .. })) => return Err(setup(error)),
                    Err(EstablishError::Rejected(cause)) => {
                        let ucx = loaded_version_text().into();
                        return Err(Error::Refused { peer: Peer::new(address), cause: cause.into(), ucx });
                    }
                    Err(EstablishError::Link(LinkError::Forked)) => return Err(Error::Forked),
                    // The last try has little time; what an earlier one said stays.
                    Err(EstablishError::Link(LinkError::Expired)) => {}
                    Err(error @ EstablishError::Link(LinkError::Gone { .. })) => {
                        // It answered and hung up: it may be of the kind that needs them.
                        settings.toggle_tcp_lanes();
                        cause = error.to_string();
                    }
                    Err(error) => cause = error.to_string(),
                }
            }
            let left = timer.deadline.map_or(pause, |d| d.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let place = if addresses.len() == 1 && addresses[0].ip().to_string() == host {
                    Peer::new(addresses[0])
                } else {
                    Peer::new(format_args!("{host}:{port}"))
                };
                return Err(Error::Timeout {
                    phase: Phase::Connect,
                    peer: place,
                    after: self.connect_timeout,
                    cause: Some(cause.into()),
                });
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Listens on `port` of [`bind`](Self::bind) and makes a pipe with the first client that connects. Clients that
    /// come later are refused at once, for as long as the pipe lives, which takes a thread that sleeps and about the
    /// memory of another pipe; the pipes of a [`Server`](crate::Server) do without. Who connects but is no pipe is not
    /// waited for longer than [`handshake_timeout`](Self::handshake_timeout).
    ///
    /// # Errors
    /// * [`Error::AddrInUse`]: another program, or another pipe, listens there.
    /// * [`Error::Timeout`] with [`Phase::Accept`]: nobody connected within [`accept_timeout`](Self::accept_timeout);
    ///   the cause is what the last of those that are no pipes said.
    /// * [`Error::Timeout`] with [`Phase::Handshake`]: a client was in the midst of it then.
    /// * [`Error::Resolve`], [`Error::Timeout`] with [`Phase::Resolve`], [`Error::Setup`], [`Error::Options`]:
    ///   as for [`connect`](Self::connect).
    pub fn listen(&self, port: u16) -> Result<Pipe> {
        self.listener(port)?.accept()
    }

    pub(crate) fn bind_listener(&self, port: u16) -> Result<UcxListener> {
        self.check()?;
        let address = self.addresses(&self.bind, port, Timer::new(Some(self.connect_timeout)))?[0];
        UcxListener::bind(address, &self.settings(), self.spin).map_err(|error| match error {
            UcxError::AddrInUse(address) => Error::AddrInUse(address),
            error @ UcxError::Status { operation: "ucp_listener_create", .. } => setup(format_args!(
                "{error}; is {} an address of this host, and may this user take port {port}?",
                address.ip()
            )),
            error => setup(error),
        })
    }

    /// The pipe with a client that has connected.
    pub(crate) fn accepted(&self, connecting: Connecting) -> Result<Pipe> {
        self.greeted(connecting, Timer::new(Some(self.handshake_timeout))).map(|link| self.pipe(link))
    }

    /// The link to a client that has connected.
    fn greeted(&self, connecting: Connecting, timer: Timer) -> Result<UcxLink> {
        let peer = connecting.peer_addr().map_or_else(|| Peer::new("a client"), Peer::new);
        connecting.establish(timer.deadline).map_err(|error| match error {
            EstablishError::Link(LinkError::Expired) => {
                Error::Timeout { phase: Phase::Handshake, peer, after: timer.elapsed(), cause: None }
            }
            EstablishError::Link(LinkError::Gone { cause }) => {
                Error::Disconnected { peer, during: "during the handshake", cause: cause.into() }
            }
            EstablishError::Link(LinkError::Forked) => Error::Forked,
            error => Error::Transport { operation: "handshake", peer, cause: error.to_string().into() },
        })
    }

    /// The addresses of `host` that UCX can use, of which there is at least one.
    fn addresses(&self, host: &str, port: u16, timer: Timer) -> Result<Vec<SocketAddr>> {
        let mut addresses = resolve(host, port, timer.deadline).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                Error::Timeout { phase: Phase::Resolve, peer: Peer::new(host), after: timer.elapsed(), cause: None }
            }
            _ => Error::Resolve { host: host.into(), cause: error.to_string().into() },
        })?;
        let settings = self.settings();
        let mut unusable = None;
        addresses.retain(|address| check_usable(*address, &settings).map_err(|error| unusable = Some(error)).is_ok());
        match unusable {
            Some(error) if addresses.is_empty() => Err(setup(error)),
            _ => Ok(addresses),
        }
    }

    fn settings(&self) -> Settings {
        Settings::new(self.ucx.clone())
    }

    fn try_address(&self, address: SocketAddr, settings: &Settings, timer: Timer) -> Result<UcxLink, EstablishError> {
        Connecting::to(address, settings, self.spin)?.establish(timer.deadline)
    }

    fn pipe(&self, link: UcxLink) -> Pipe {
        let peer = link.peer_addr().map_or_else(|| Peer::new("a client"), Peer::new);
        log::debug!("pipe with {peer} over {}", link.transports().join(", "));
        Pipe::over(link, peer, self)
    }
}

/// The time that one of `n` addresses still to be tried may take.
fn share(timer: Timer, n: usize) -> Timer {
    let Some(deadline) = timer.deadline else { return timer };
    let left = deadline.saturating_duration_since(Instant::now());
    Timer::new(Some((left / n as u32).max(SHORTEST_TRY.min(left))))
}

fn setup(error: impl std::fmt::Display) -> Error {
    Error::Setup(error.to_string().into())
}

/// A listener that has not accepted its client yet; [`PipeOptions::listener`] gives it, so that the port is known.
///
/// ```
/// use tensordict_pipe::Pipe;
///
/// let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
/// let port = listening.local_addr().port();
/// let client = std::thread::spawn(move || Pipe::connect("127.0.0.1", port));
/// let pipe = listening.accept()?;
/// # client.join().unwrap()?;
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Debug)]
pub struct Listening {
    listener: UcxListener,
    options: PipeOptions,
}

impl PipeOptions {
    /// Listens on `port`, where 0 takes any free one, without waiting for the client.
    ///
    /// # Errors
    /// As [`listen`](Self::listen), but for those of the client.
    pub fn listener(&self, port: u16) -> Result<Listening> {
        Ok(Listening { listener: self.bind_listener(port)?, options: self.clone() })
    }
}

impl Listening {
    /// The address it listens on, with the real port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Waits for the client; refuses all others for as long as the pipe lives.
    ///
    /// # Errors
    /// Those of [`PipeOptions::listen`] that concern the client.
    pub fn accept(self) -> Result<Pipe> {
        let Self { listener, options } = self;
        let timer = Timer::new(options.accept_timeout);
        let place = Peer::new(listener.local_addr());
        let mut cause = None;
        let mut link = loop {
            let failed = match listener.accept(timer.deadline) {
                Ok(connecting) => match options.greeted(connecting, timer.at_most(options.handshake_timeout)) {
                    Ok(link) => break link,
                    Err(error @ Error::Forked) => return Err(error),
                    Err(error) if timer.is_over() => return Err(error),
                    Err(error) => error.to_string(),
                },
                Err(EstablishError::Link(LinkError::Expired)) => {
                    let after = timer.elapsed();
                    return Err(Error::Timeout { phase: Phase::Accept, peer: place, after, cause });
                }
                Err(EstablishError::Link(LinkError::Forked)) => return Err(Error::Forked),
                Err(EstablishError::Link(error)) => {
                    let cause = error.to_string().into();
                    return Err(Error::Transport { operation: "accept", peer: place, cause });
                }
                Err(error) => error.to_string(),
            };
            log::warn!("a client of {place} was dropped: {failed}");
            cause = Some(failed.into());
        };
        link.keep_others_out(listener).map_err(|error| setup(format_args!("no thread to refuse clients: {error}")))?;
        Ok(options.pipe(link))
    }
}
