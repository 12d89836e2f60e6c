//! One end of the side-by-side benchmark: `bench_peer server|client PORT`.
//!
//! For each workload in `B_WORKS`: "lat" (the client sends, the server echoes), then "thr" (the client streams), if in
//! `B_METRICS`. The first 8 bytes of a message are a counter, phase << 62 | number: phase 0 warms up (`B_TW` seconds and
//! a minimum count), 1 is measured (`B_TM` seconds and a minimum count), 2 is the last message. Prints JSON lines.
//! `B_UCX` sets UCX options (`TLS=tcp,RNDV_THRESH=8k`).

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tensordict_pipe::{Pipe, Tensor, TensorDict};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[derive(Clone, Copy)]
struct Work {
    name: &'static str,
    size: usize,
    leaves: usize,
    min_warm: usize,
    min_count: usize,
}

const WORKS: [Work; 6] = [
    Work { name: "W0", size: 8, leaves: 1, min_warm: 200, min_count: 200 },
    Work { name: "W1", size: 21_504, leaves: 1, min_warm: 200, min_count: 200 },
    Work { name: "W2", size: 1 << 20, leaves: 16, min_warm: 32, min_count: 32 },
    Work { name: "W3", size: 64 << 20, leaves: 1, min_warm: 3, min_count: 5 },
    Work { name: "W4", size: 256_000, leaves: 1000, min_warm: 100, min_count: 100 },
    Work { name: "W5", size: 256 << 20, leaves: 4, min_warm: 2, min_count: 3 },
];

const WARM: u64 = 0;
const MEASURED: u64 = 1;
const LAST: u64 = 2;
const NUMBER: u64 = (1 << 62) - 1;
const LATENCIES: usize = 200_000;

impl Work {
    fn tensor_dict(&self) -> Result<TensorDict> {
        let mut td = TensorDict::new([]);
        for i in 0..self.leaves {
            let leaf = match self.name {
                "W0" => Tensor::from_slice(&[0_i64], [1])?,
                "W1" => Tensor::from_slice(&[0_f32; 64 * 84], [64, 84])?,
                _ => Tensor::from_slice(&vec![0_f32; self.size / self.leaves / 4], [self.size / self.leaves / 4])?,
            };
            td.insert(format!("l{i:04}"), leaf)?;
        }
        let loose = std::env::var("B_LOOSE").is_ok();
        Ok(if loose { td } else { td.consolidate() })
    }

    /// Reads one element of each leaf, and the counter.
    fn touch(&self, td: &TensorDict) -> u64 {
        let bytes = td.consolidated_bytes().expect("received");
        let sum = bytes.iter().step_by(self.size / self.leaves).fold(0_u64, |sum, &x| sum + u64::from(x));
        black_box(sum);
        u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"))
    }
}

fn set_counter(td: &mut TensorDict, counter: u64) {
    let bytes = match td.is_consolidated() {
        true => td.consolidated_bytes_mut().expect("consolidated"),
        false => td.get_mut("l0000").expect("a leaf").into_bytes(),
    };
    bytes[..8].copy_from_slice(&counter.to_le_bytes());
}

struct Schedule {
    warm: Duration,
    measured: Duration,
}

fn throughput_sender(pipe: &mut Pipe, work: &Work, schedule: &Schedule) -> Result<()> {
    let mut td = work.tensor_dict()?;
    let (mut phase, mut count, mut start, mut from, mut cpu) = (WARM, 0, Instant::now(), 0.0, 0.0);
    let look_every = if work.size <= 65_536 { 64 } else { 1 };
    for number in 0.. {
        set_counter(&mut td, phase << 62 | number);
        pipe.send(&td)?;
        count += 1;
        if phase == LAST {
            break;
        }
        if count % look_every == 0 {
            let elapsed = start.elapsed();
            if phase == WARM && elapsed >= schedule.warm && count >= work.min_warm {
                (phase, count, start, from, cpu) = (MEASURED, 0, Instant::now(), now(), cpu_seconds());
            } else if phase == MEASURED && elapsed >= schedule.measured && count >= work.min_count {
                phase = LAST;
            }
        }
    }
    let (name, to, cpu) = (work.name, now(), cpu_seconds() - cpu);
    println!(r#"{{"side":"send","w":"{name}","m":"thr","t0":{from:.6},"t1":{to:.6},"cpu":{cpu:.6}}}"#);
    Ok(())
}

fn throughput_receiver(pipe: &mut Pipe, work: &Work) -> Result<()> {
    let (mut count, mut from, mut cpu, mut started) = (0, 0.0, 0.0, false);
    for number in 0.. {
        let counter = work.touch(&pipe.recv()?);
        if counter & NUMBER != number {
            return Err(format!("{}: message {} came instead of {number}", work.name, counter & NUMBER).into());
        }
        match counter >> 62 {
            WARM => continue,
            _ if !started => (started, from, cpu) = (true, now(), cpu_seconds()),
            phase => {
                count += 1;
                if phase == LAST {
                    break;
                }
            }
        }
    }
    let (name, size, to, cpu) = (work.name, work.size, now(), cpu_seconds() - cpu);
    println!(
        r#"{{"side":"recv","w":"{name}","m":"thr","n":{count},"size":{size},"t0":{from:.6},"t1":{to:.6},"cpu":{cpu:.6}}}"#
    );
    Ok(())
}

fn latency_client(pipe: &mut Pipe, work: &Work, schedule: &Schedule) -> Result<()> {
    let mut td = work.tensor_dict()?;
    let mut times = Vec::with_capacity(LATENCIES);
    let min_warm = if work.min_warm < 50 { work.min_warm / 2 + 1 } else { 50 };
    let (mut phase, mut count, mut start, mut from, mut cpu) = (WARM, 0, Instant::now(), 0.0, 0.0);
    for number in 0.. {
        let counter = phase << 62 | number;
        set_counter(&mut td, counter);
        let sent = Instant::now();
        pipe.send(&td)?;
        let echo = work.touch(&pipe.recv()?);
        let back = Instant::now();
        if echo != counter {
            return Err(format!("{}: the echo of {counter:x} is {echo:x}", work.name).into());
        }
        match phase {
            LAST => break,
            MEASURED => times.push((back - sent).as_secs_f64()),
            _ => {}
        }
        count += 1;
        let elapsed = back - start;
        if phase == WARM && elapsed >= schedule.warm && count >= min_warm {
            (phase, count, start, from, cpu) = (MEASURED, 0, Instant::now(), now(), cpu_seconds());
        } else if phase == MEASURED && (elapsed >= schedule.measured && count >= work.min_count || count >= LATENCIES) {
            phase = LAST;
        }
    }
    let (name, size, to, cpu) = (work.name, work.size, now(), cpu_seconds() - cpu);
    times.sort_by(f64::total_cmp);
    let n = times.len();
    let half = |i: usize| times[i.min(n - 1)] / 2.0 * 1e6;
    let (p50, p99, min) = (half(n / 2), half((n as f64 * 0.99) as usize), half(0));
    println!(
        r#"{{"side":"send","w":"{name}","m":"lat","n":{n},"size":{size},"p50":{p50:.3},"p99":{p99:.3},"min":{min:.3},"t0":{from:.6},"t1":{to:.6},"cpu":{cpu:.6}}}"#
    );
    Ok(())
}

fn latency_server(pipe: &mut Pipe, work: &Work) -> Result<()> {
    let mut td = work.tensor_dict()?;
    let (mut from, mut cpu, mut started) = (0.0, 0.0, false);
    loop {
        let counter = work.touch(&pipe.recv()?);
        if counter >> 62 != WARM && !started {
            (started, from, cpu) = (true, now(), cpu_seconds());
        }
        set_counter(&mut td, counter);
        pipe.send(&td)?;
        if counter >> 62 == LAST {
            break;
        }
    }
    let (name, to, cpu) = (work.name, now(), cpu_seconds() - cpu);
    println!(r#"{{"side":"recv","w":"{name}","m":"lat","t0":{from:.6},"t1":{to:.6},"cpu":{cpu:.6}}}"#);
    Ok(())
}

/// Seconds on the monotonic clock, as other peers print them: the time since boot is read once, its 10 ms do not blur
/// what is measured.
fn now() -> f64 {
    static START: OnceLock<(f64, Instant)> = OnceLock::new();
    let (uptime, start) = START.get_or_init(|| {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        (uptime.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0), Instant::now())
    });
    uptime + start.elapsed().as_secs_f64()
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field =
        |n: usize| after_name.split_whitespace().nth(n).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / 100.0
}

fn seconds(name: &str, default: f64) -> Duration {
    let value = std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    Duration::from_secs_f64(value)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, role, port] = &args[..] else { return Err("usage: bench_peer server|client PORT".into()) };
    let (serves, port) = (role == "server", port.parse()?);
    let chosen = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let (works, metrics) = (chosen("B_WORKS", "W0,W1,W2,W3,W4,W5"), chosen("B_METRICS", "thr,lat"));
    let schedule = Schedule { warm: seconds("B_TW", 0.1), measured: seconds("B_TM", 0.4) };
    let mut options = Pipe::options().bind("127.0.0.1");
    for (name, value) in chosen("B_UCX", "").split(',').filter_map(|setting| setting.split_once('=')) {
        options = options.ucx(name, value);
    }

    let mut pipe = if serves {
        let listening = options.listener(port)?;
        println!(r#"{{"ready":1}}"#);
        listening.accept()?
    } else {
        options.connect("127.0.0.1", port)?
    };
    for work in WORKS.iter().filter(|work| works.contains(work.name)) {
        if metrics.contains("lat") {
            match serves {
                true => latency_server(&mut pipe, work)?,
                false => latency_client(&mut pipe, work, &schedule)?,
            }
        }
        if metrics.contains("thr") {
            match serves {
                true => throughput_receiver(&mut pipe, work)?,
                false => throughput_sender(&mut pipe, work, &schedule)?,
            }
        }
    }
    pipe.close()?;
    Ok(())
}
