//! [`ReadAhead`]: a thread that receives into a bounded channel.

use std::ops::Deref;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{bounded, Receiver as ChannelReceiver, SendTimeoutError, Sender as ChannelSender};

use super::background::{Stash, SLICE};
use super::receiver::Receiver;
use super::receiver_half::recv_unless;
use crate::data::TensorDict;
use crate::error::{Error, Peer, Result};
use crate::ucx::UcxLink;

/// The messages of a pipe in a bounded [`crossbeam_channel::Receiver`], to which it dereferences; so several pipes
/// can be waited for with `select!`. Made by [`Pipe::into_receiver`](crate::Pipe::into_receiver).
///
/// After a final error, which is the last item, or a proper close, which is not an item, the channel is disconnected.
/// Dropping it ends the thread and closes the pipe (unless its sending half lives); what was read ahead is lost then.
///
/// ```
/// use crossbeam_channel::{after, select};
/// use tensordict_pipe::{Pipe, TensorDict};
///
/// # let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
/// # let port = listening.local_addr().port();
/// # let sender = std::thread::spawn(move || -> tensordict_pipe::Result<()> {
/// #     let mut pipe = Pipe::connect("127.0.0.1", port)?;
/// #     pipe.send(&TensorDict::new([3]))?;
/// #     pipe.close()
/// # });
/// # let pipe = listening.accept()?;
/// let messages = pipe.into_receiver(4)?;
/// select! {
///     recv(messages) -> td => assert_eq!(td.unwrap()?.batch_size()[..], [3]),
///     recv(after(std::time::Duration::from_secs(60))) -> _ => panic!("nothing came"),
/// }
/// assert!(messages.recv().is_err(), "closed");
/// # sender.join().unwrap()?;
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadAhead {
    messages: ChannelReceiver<Result<TensorDict>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// `lost` is the last item if a thread of the pipe panics.
    pub(super) fn start(
        take: impl FnOnce(&AtomicBool) -> Option<Box<Receiver<UcxLink>>> + Send + 'static,
        stash: Stash<TensorDict>,
        lost: Error,
        peer: &Peer,
        n: usize,
    ) -> std::io::Result<Self> {
        let (channel, messages) = bounded(n);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(format!("tdpipe-{peer}")).spawn(move || {
            let run = || take(&stopped).map(|receiver| read(receiver, &stash, &channel, &stopped));
            // Without an item it would look like a proper close.
            if catch_unwind(AssertUnwindSafe(run)).ok().flatten().is_none() {
                hand_over(&channel, Err(lost), &stopped);
            }
        })?;
        Ok(Self { messages, stop, thread: Some(thread) })
    }
}

fn read(
    mut receiver: Box<Receiver<UcxLink>>,
    stash: &Stash<TensorDict>,
    channel: &ChannelSender<Result<TensorDict>>,
    stop: &AtomicBool,
) {
    for (_, td) in std::mem::take(&mut *stash.lock()) {
        if !hand_over(channel, Ok(td), stop) {
            return;
        }
    }
    while let Some(received) = recv_unless(&mut receiver, stop) {
        let last = match &received {
            Err(error) if error.is_closed() => return,
            Err(error) => error.is_final(),
            Ok(_) => false,
        };
        if !hand_over(channel, received, stop) || last {
            return;
        }
    }
}

/// Waits for room in the channel. `false`: nobody wants the message any more.
fn hand_over(channel: &ChannelSender<Result<TensorDict>>, mut message: Result<TensorDict>, stop: &AtomicBool) -> bool {
    while !stop.load(Ordering::Relaxed) {
        match channel.send_timeout(message, SLICE) {
            Ok(()) => return true,
            Err(SendTimeoutError::Timeout(back)) => message = back,
            Err(SendTimeoutError::Disconnected(_)) => return false,
        }
    }
    false
}

impl Deref for ReadAhead {
    type Target = ChannelReceiver<Result<TensorDict>>;

    fn deref(&self) -> &Self::Target {
        &self.messages
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            if thread.join().is_err() {
                log::error!("a read-ahead thread panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_last_item_and_no_close() {
        let panics = |_: &AtomicBool| panic!("a test's panic");
        let has_panicked = |_: &AtomicBool| None;
        let start = |take: fn(&AtomicBool) -> _| {
            ReadAhead::start(take, Stash::default(), Error::Forked, &Peer::new("x"), 0).expect("a thread")
        };
        for messages in [start(panics), start(has_panicked)] {
            assert!(matches!(messages.recv(), Ok(Err(Error::Forked))));
            messages.recv().expect_err("disconnected");
        }
    }
}
