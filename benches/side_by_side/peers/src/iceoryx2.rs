//! iceoryx2's publish and subscribe of byte slices: `iceoryx2 server|client ID`. The sender copies its bytes into shared
//! memory and the receiver copies them out of it, into memory of its own, as the other peers do. Both ends poll.

use std::hint::spin_loop;

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use iceoryx2::service::port_factory::PortFactory as _;

#[path = "../../../../examples/bench_schedule/mod.rs"]
mod bench_schedule;
use bench_schedule::{run, Link, Result, Work};

type Service = ipc::Service;

/// A service each way.
struct Ports {
    publisher: Publisher<Service, [u8], ()>,
    subscriber: Subscriber<Service, [u8], ()>,
    outgoing: PortFactory<Service, [u8], ()>,
    incoming: PortFactory<Service, [u8], ()>,
}

impl Ports {
    fn open(node: &Node<Service>, name: &str, serves: bool, size: usize) -> Result<Self> {
        let depth = ((64 << 20) / size).clamp(2, 64);
        let service = |way: &str| -> Result<_> {
            let name = format!("{name}/{way}").as_str().try_into()?;
            let builder = node.service_builder(&name).publish_subscribe::<[u8]>().enable_safe_overflow(false);
            let builder = builder.subscriber_max_buffer_size(depth).subscriber_max_borrowed_samples(1).history_size(0);
            Ok(builder.max_publishers(1).max_subscribers(1).open_or_create()?)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (outgoing, incoming) = if serves { (back, there) } else { (there, back) };
        let subscriber = incoming.subscriber_builder().create()?;
        let publisher = outgoing.publisher_builder().initial_max_slice_len(size).max_loaned_samples(1);
        let publisher = publisher.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered).create()?;
        let ports = Self { publisher, subscriber, outgoing, incoming };
        while ports.outgoing.dynamic_config().number_of_subscribers() == 0 || !ports.peer_publishes() {
            std::thread::yield_now();
        }
        Ok(ports)
    }

    fn peer_publishes(&self) -> bool {
        self.incoming.dynamic_config().number_of_publishers() > 0
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        loop {
            if let Ok(sample) = self.publisher.loan_slice_uninit(bytes.len()) {
                sample.write_from_slice(bytes).send()?;
                return Ok(());
            }
            spin_loop();
        }
    }

    fn recv(&self, bytes: &mut [u8]) -> Result<()> {
        loop {
            if let Some(sample) = self.subscriber.receive()? {
                if sample.payload().len() != bytes.len() {
                    return Err("a message of another length".into());
                }
                bytes.copy_from_slice(sample.payload());
                return Ok(());
            }
            spin_loop();
        }
    }

    /// Each end learns that the other one got here.
    fn meet(&self, serves: bool) -> Result<()> {
        let mut hello = [0; 8];
        if serves {
            self.recv(&mut hello)?;
            self.send(&hello)
        } else {
            self.send(&hello)?;
            self.recv(&mut hello)
        }
    }
}

struct Iceoryx {
    node: Node<Service>,
    id: String,
    serves: bool,
    works: usize,
    ports: Option<Ports>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Iceoryx {
    fn ports(&self) -> Result<&Ports> {
        Ok(self.ports.as_ref().ok_or("no workload yet")?)
    }
}

impl Link for Iceoryx {
    // Every slot of the shared segment.
    const MIN_WARM: usize = 6;

    fn begin(&mut self, work: &Work) -> Result<()> {
        let ports = Ports::open(&self.node, &format!("bench/{}/{}", self.id, self.works), self.serves, work.size)?;
        // A subscriber maps a publisher's memory when it first receives; a queue that is full before then loses samples.
        ports.meet(self.serves)?;
        // Only now has the peer read all that the former ports sent.
        self.ports = Some(ports);
        self.works += 1;
        self.sent = vec![1; work.size];
        self.received = vec![1; work.size];
        Ok(())
    }

    fn send(&mut self, counter: u64) -> Result<()> {
        self.sent[..8].copy_from_slice(&counter.to_le_bytes());
        self.ports()?.send(&self.sent)
    }

    fn recv<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let ports = self.ports.as_ref().ok_or("no workload yet")?;
        ports.recv(&mut self.received)?;
        Ok(read(&self.received))
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, role, id] = &args[..] else { return Err("usage: iceoryx2 server|client ID".into()) };
    set_log_level(LogLevel::Error);
    let (serves, node) = (role == "server", NodeBuilder::new().create::<Service>()?);
    if serves {
        println!(r#"{{"ready":1}}"#);
    }
    let (sent, received) = (Vec::new(), Vec::new());
    let mut link = Iceoryx { node, id: id.clone(), serves, works: 0, ports: None, sent, received };
    run(&mut link, serves)?;
    let ports = link.ports()?;
    ports.meet(serves)?;
    // The client has the last word when it leaves.
    while serves && ports.peer_publishes() {
        std::thread::yield_now();
    }
    Ok(())
}
