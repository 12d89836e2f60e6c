//! [`send_tensordict`] and [`recv_tensordict`]: messages that carry their metadata each time.

use super::receiver::{Placed, Receiver};
use super::sender::Sender;
use super::timer::Timer;
use super::Pipe;
use crate::data::TensorDict;
use crate::error::Result;
use crate::wire::{Format, RecvSession};

/// The format of Python's functions with this `consolidated`.
fn format(consolidated: bool) -> Format {
    if consolidated {
        Format::Stateless
    } else {
        Format::LeafByLeaf
    }
}

/// Sends `td` with its metadata in one message by itself, as Python's `send_tensordict` does; the other end calls
/// [`recv_tensordict`] with the same `consolidated`, or Python's `recv_tensordict`.
///
/// It keeps no state, so it costs more than [`Pipe::send`], which sends the metadata only when they change. Where the
/// Python function takes a UCXX endpoint, this takes a pipe.
///
/// ```no_run
/// use tensordict_pipe::{recv_tensordict, recv_tensordict_into, send_tensordict, Pipe, TensorDict};
///
/// let mut pipe = Pipe::connect("node-b", 13337)?;
/// let td = TensorDict::new([3]);
/// send_tensordict(&mut pipe, &td, true)?;
/// let mut answer = recv_tensordict(&mut pipe, true)?;
/// recv_tensordict_into(&mut pipe, &mut answer, true)?;
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
///
/// # Errors
/// See [`Pipe::send`].
pub fn send_tensordict(pipe: &mut Pipe, td: &TensorDict, consolidated: bool) -> Result<()> {
    let half = &pipe.sender;
    let mut sender = Sender::new(half.connection.clone(), format(consolidated));
    sender.send(td, &Timer::new(half.timeout()))
}

/// Receives what [`send_tensordict`] or Python's function of that name sends.
///
/// # Errors
/// See [`Pipe::recv`]; but here an expired deadline in the middle of a message finishes the pipe.
pub fn recv_tensordict(pipe: &mut Pipe, consolidated: bool) -> Result<TensorDict> {
    let timer = Timer::new(pipe.receiver.timeout());
    receiver(pipe, consolidated).recv_once(timer)
}

/// Receives what [`send_tensordict`] sends into `td`, as [`Pipe::recv_into`] does it. With `consolidated` false `td` is always
/// replaced.
///
/// # Errors
/// See [`recv_tensordict`].
pub fn recv_tensordict_into(pipe: &mut Pipe, td: &mut TensorDict, consolidated: bool) -> Result<Placed> {
    let timer = Timer::new(pipe.receiver.timeout());
    receiver(pipe, consolidated).recv_into_once(td, timer)
}

fn receiver(pipe: &Pipe, consolidated: bool) -> Receiver<crate::ucx::UcxLink> {
    let half = &pipe.receiver;
    let format = format(consolidated);
    Receiver::new(half.connection.clone(), RecvSession::new(format, half.limits()), format)
}
