//! ZeroMQ's PAIR sockets: `zeromq ipc|tcp server|client PORT`. A message is received into memory that ZeroMQ allocates
//! for it and gives away. A socket a workload, on the next port, because the high-water mark depends on the size.

#[path = "../../../../examples/bench_schedule/mod.rs"]
mod bench_schedule;
use bench_schedule::{run, Link, Result, Work};

struct Pair {
    context: zmq::Context,
    kind: String,
    serves: bool,
    port: u16,
    sent: Vec<u8>,
    /// The last one is used; those before it may still have to send their last message.
    sockets: Vec<zmq::Socket>,
}

impl Pair {
    fn socket(&self) -> Result<&zmq::Socket> {
        Ok(self.sockets.last().ok_or("no workload yet")?)
    }
}

impl Link for Pair {
    fn begin(&mut self, work: &Work) -> Result<()> {
        let socket = self.context.socket(zmq::PAIR)?;
        // No more than 64 MiB on the way, but two messages.
        let queued = ((64 << 20) / work.size).clamp(2, 1000) as i32;
        socket.set_sndhwm(queued)?;
        socket.set_rcvhwm(queued)?;
        let address = match self.kind.as_str() {
            "tcp" => format!("tcp://127.0.0.1:{}", self.port),
            _ => format!("ipc://{}", std::env::temp_dir().join(format!("bench-zeromq-{}", self.port)).display()),
        };
        self.port += 1;
        match self.serves {
            true => socket.bind(&address)?,
            false => socket.connect(&address)?,
        }
        self.sockets.push(socket);
        self.sent = vec![1; work.size];
        Ok(())
    }

    fn send(&mut self, counter: u64) -> Result<()> {
        self.sent[..8].copy_from_slice(&counter.to_le_bytes());
        Ok(self.socket()?.send(&self.sent[..], 0)?)
    }

    fn recv<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let message = self.socket()?.recv_msg(0)?;
        if message.len() != self.sent.len() {
            return Err("a message of another length".into());
        }
        Ok(read(&message))
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, kind, role, port] = &args[..] else { return Err("usage: zeromq ipc|tcp server|client PORT".into()) };
    let (kind, serves, port) = (kind.clone(), role == "server", port.parse()?);
    if serves {
        println!(r#"{{"ready":1}}"#);
    }
    let mut link = Pair { context: zmq::Context::new(), kind, serves, port, sent: Vec::new(), sockets: Vec::new() };
    // Dropping the sockets and then the context waits until the last message has gone.
    run(&mut link, serves)
}
