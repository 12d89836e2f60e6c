//! The schedule of the side-by-side benchmark, the same for every peer: what is sent, how long, and what is printed.
//!
//! For each workload in `B_WORKS`: "lat" (the client sends, the server echoes), then "thr" (the client streams), if in
//! `B_METRICS`. The first 8 bytes of a message are a counter, phase << 62 | number: phase 0 warms up (`B_TW` seconds and
//! a minimum count), 1 is measured (`B_TM` seconds and a minimum count), 2 is the last message.
//!
//! A workload is one of the table, or `BYTESxLEAVES` (`1Mx10000`; k, M, G are powers of 1024). Leaves are whole multiples
//! of 8 bytes, so the bytes may be a little fewer than asked for.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub(crate) type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// What carries the messages.
pub(crate) trait Link {
    /// Messages that a link needs before its own memory is warm: rings that are touched for the first time.
    const MIN_WARM: usize = 0;
    /// The messages that follow are of this workload.
    fn begin(&mut self, work: &Work) -> Result<()>;
    /// Sends a message of the workload that begins with the counter.
    fn send(&mut self, counter: u64) -> Result<()>;
    /// Receives a message into memory of the receiver's, and lets `read` have it.
    fn recv<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<T>;
    /// After the last message of a stream, at both ends. A link that has no thread of its own to send what is left, and
    /// does not send it within `send`, waits here until it has gone.
    fn streamed(&mut self, _receives: bool) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct Work {
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) leaves: usize,
    min_warm: usize,
    min_count: usize,
}

/// Bytes, leaves, and the minimum counts of the warm-up and of what is measured.
const WORKS: [(&str, usize, usize, usize, usize); 6] = [
    ("W0", 8, 1, 200, 200),
    ("W1", 21_504, 1, 200, 200),
    ("W2", 1 << 20, 16, 32, 32),
    ("W3", 64 << 20, 1, 3, 5),
    ("W4", 256_000, 1000, 100, 100),
    ("W5", 256 << 20, 4, 2, 3),
];

impl Work {
    fn new(name: &str) -> Result<Self> {
        if let Some(&(_, size, leaves, min_warm, min_count)) = WORKS.iter().find(|work| work.0 == name) {
            return Ok(Self { name: name.to_owned(), size, leaves, min_warm, min_count });
        }
        let wrong = || format!("no workload: {name}");
        let (bytes, leaves) = name.split_once('x').ok_or_else(wrong)?;
        let (digits, shift) = match bytes.strip_suffix(['k', 'M', 'G']) {
            Some(digits) if bytes.ends_with('k') => (digits, 10),
            Some(digits) if bytes.ends_with('M') => (digits, 20),
            Some(digits) => (digits, 30),
            None => (bytes, 0),
        };
        let (bytes, leaves) = (digits.parse::<usize>()? << shift, leaves.parse::<usize>()?);
        if leaves == 0 || bytes / leaves < 8 {
            return Err(wrong().into());
        }
        let size = bytes / leaves / 8 * 8 * leaves;
        let (min_warm, min_count) = match size {
            0..0x10_0000 => (100, 100),
            0x10_0000..0x400_0000 => (16, 16),
            0x400_0000..0x4000_0000 => (2, 4),
            _ => (1, 2),
        };
        Ok(Self { name: name.to_owned(), size, leaves, min_warm, min_count })
    }
}

const WARM: u64 = 0;
const MEASURED: u64 = 1;
const LAST: u64 = 2;
const NUMBER: u64 = (1 << 62) - 1;
const LATENCIES: usize = 200_000;

/// Receives a message, reads one element of each leaf, and gives the counter.
fn receive(link: &mut impl Link, work: &Work) -> Result<u64> {
    let counter = link.recv(|bytes| {
        let sum = bytes.iter().step_by(work.size / work.leaves).fold(0_u64, |sum, &x| sum + u64::from(x));
        black_box(sum);
        bytes.first_chunk().map(|counter| u64::from_le_bytes(*counter))
    })?;
    counter.ok_or_else(|| "a message of less than 8 bytes".into())
}

struct Schedule {
    warm: Duration,
    measured: Duration,
}

fn throughput_sender(link: &mut impl Link, work: &Work, schedule: &Schedule) -> Result<()> {
    let (mut phase, mut count, mut start, mut from, mut cpu) = (WARM, 0, Instant::now(), 0.0, 0.0);
    let look_every = if work.size <= 65_536 { 64 } else { 1 };
    for number in 0.. {
        link.send(phase << 62 | number)?;
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
    let (name, to, cpu) = (&work.name, now(), cpu_seconds() - cpu);
    println!(r#"{{"side":"send","w":"{name}","m":"thr","t0":{from:.6},"t1":{to:.6},"cpu":{cpu:.6}}}"#);
    Ok(())
}

fn throughput_receiver(link: &mut impl Link, work: &Work) -> Result<()> {
    let (mut count, mut from, mut cpu, mut started) = (0, 0.0, 0.0, false);
    for number in 0.. {
        let counter = receive(link, work)?;
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
    let (name, size, to, cpu) = (&work.name, work.size, now(), cpu_seconds() - cpu);
    println!(
        r#"{{"side":"recv","w":"{name}","m":"thr","n":{count},"size":{size},"t0":{from:.6},"t1":{to:.6},"cpu":{cpu:.6}}}"#
    );
    Ok(())
}

fn latency_client(link: &mut impl Link, work: &Work, schedule: &Schedule) -> Result<()> {
    let mut times = Vec::with_capacity(LATENCIES);
    let min_warm = if work.min_warm < 50 { work.min_warm / 2 + 1 } else { 50 };
    let (mut phase, mut count, mut start, mut from, mut cpu) = (WARM, 0, Instant::now(), 0.0, 0.0);
    for number in 0.. {
        let counter = phase << 62 | number;
        let sent = Instant::now();
        link.send(counter)?;
        let echo = receive(link, work)?;
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
    let (name, size, to, cpu) = (&work.name, work.size, now(), cpu_seconds() - cpu);
    times.sort_by(f64::total_cmp);
    let n = times.len();
    let half = |i: usize| times[i.min(n - 1)] / 2.0 * 1e6;
    let (p50, p99, min) = (half(n / 2), half((n as f64 * 0.99) as usize), half(0));
    println!(
        r#"{{"side":"send","w":"{name}","m":"lat","n":{n},"size":{size},"p50":{p50:.3},"p99":{p99:.3},"min":{min:.3},"t0":{from:.6},"t1":{to:.6},"cpu":{cpu:.6}}}"#
    );
    Ok(())
}

fn latency_server(link: &mut impl Link, work: &Work) -> Result<()> {
    let (mut from, mut cpu, mut started) = (0.0, 0.0, false);
    loop {
        let counter = receive(link, work)?;
        if counter >> 62 != WARM && !started {
            (started, from, cpu) = (true, now(), cpu_seconds());
        }
        link.send(counter)?;
        if counter >> 62 == LAST {
            break;
        }
    }
    let (name, to, cpu) = (&work.name, now(), cpu_seconds() - cpu);
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

/// Runs the schedule at one end.
pub(crate) fn run<L: Link>(link: &mut L, serves: bool) -> Result<()> {
    let chosen = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let (works, metrics) = (chosen("B_WORKS", "W0,W1,W2,W3,W4,W5"), chosen("B_METRICS", "thr,lat"));
    let schedule = Schedule { warm: seconds("B_TW", 0.1), measured: seconds("B_TM", 0.4) };
    for name in works.split(',') {
        let mut work = Work::new(name)?;
        work.min_warm = work.min_warm.max(L::MIN_WARM);
        let work = &work;
        link.begin(work)?;
        if metrics.contains("lat") {
            match serves {
                true => latency_server(link, work)?,
                false => latency_client(link, work, &schedule)?,
            }
        }
        if metrics.contains("thr") {
            match serves {
                true => throughput_receiver(link, work)?,
                false => throughput_sender(link, work, &schedule)?,
            }
            link.streamed(serves)?;
        }
    }
    Ok(())
}
