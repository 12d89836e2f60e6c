//! One end of the side-by-side benchmark: `bench_peer server|client PORT`. The schedule is in `bench_schedule`.
//!
//! `B_UCX` sets UCX options (`TLS=tcp,RNDV_THRESH=8k`); with `B_LOOSE` the sender's TensorDicts are not consolidated.

use tensordict_pipe::{Pipe, Tensor, TensorDict};

mod bench_schedule;
use bench_schedule::{run, Link, Result, Work};

struct PipeLink {
    pipe: Pipe,
    sent: TensorDict,
}

fn tensor_dict(work: &Work) -> Result<TensorDict> {
    let mut td = TensorDict::new([]);
    for i in 0..work.leaves {
        let leaf = match work.name.as_str() {
            "W0" => Tensor::from_slice(&[0_i64], [1])?,
            "W1" => Tensor::from_slice(&[0_f32; 64 * 84], [64, 84])?,
            _ => Tensor::from(vec![0_f32; work.size / work.leaves / 4]),
        };
        td.insert(format!("l{i:04}"), leaf)?;
    }
    Ok(if std::env::var_os("B_LOOSE").is_some() { td } else { td.consolidate() })
}

impl Link for PipeLink {
    fn begin(&mut self, work: &Work) -> Result<()> {
        self.sent = tensor_dict(work)?;
        Ok(())
    }

    fn send(&mut self, counter: u64) -> Result<()> {
        let bytes = match self.sent.is_consolidated() {
            true => self.sent.consolidated_bytes_mut().ok_or("consolidated")?,
            false => self.sent.get_mut("l0000")?.into_bytes(),
        };
        bytes[..8].copy_from_slice(&counter.to_le_bytes());
        Ok(self.pipe.send(&self.sent)?)
    }

    fn recv<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let td = self.pipe.recv()?;
        Ok(read(td.consolidated_bytes().ok_or("received TensorDicts are consolidated")?))
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, role, port] = &args[..] else { return Err("usage: bench_peer server|client PORT".into()) };
    let (serves, port) = (role == "server", port.parse()?);
    let mut options = Pipe::options().bind("127.0.0.1");
    for (name, value) in std::env::var("B_UCX").unwrap_or_default().split(',').filter_map(|it| it.split_once('=')) {
        options = options.ucx(name, value);
    }
    let pipe = if serves {
        let listening = options.listener(port)?;
        println!(r#"{{"ready":1}}"#);
        listening.accept()?
    } else {
        options.connect("127.0.0.1", port)?
    };
    let mut link = PipeLink { pipe, sent: TensorDict::new([]) };
    run(&mut link, serves)?;
    Ok(link.pipe.close()?)
}
