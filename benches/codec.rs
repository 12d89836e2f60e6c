//! What the codec costs, without a transport: `cargo bench --bench codec --no-default-features`.
//!
//! Each row is a ratio to something everybody knows the price of, measured in turns in the same run, since absolute times
//! of one machine say little about another. The ratio is the median over the rounds. `codec --check` fails if a ratio is
//! above its target.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{DataError, Storage, Tensor, TensorDict};

const LEAVES: usize = 1_000;
const LEAF_BYTES: usize = 256;
const ROUNDS: usize = 201;

fn main() -> ExitCode {
    let check = std::env::args().any(|arg| arg == "--check");
    let loose = many_leaves().expect("a TensorDict");
    let packed = loose.consolidate();
    let block = vec![7_u8; LEAVES * LEAF_BYTES];
    let mut copy = vec![0_u8; block.len()];
    let mut met = true;
    println!("{LEAVES} leaves of {LEAF_BYTES} bytes, {ROUNDS} rounds\n");

    let mut session = SendSession::new(Format::Consolidated);
    let header = session.encode(&loose).expect("sendable").header().expect("the first").clone();
    session.commit();
    met &= compare(
        "packing into a reused buffer / copying one block of as many bytes",
        Some(2.0),
        || {
            black_box(session.encode(black_box(&loose)).expect("sendable").bodies());
        },
        || black_box(&mut copy).copy_from_slice(black_box(&block)),
    );

    let mut receiver = RecvSession::new(Format::Consolidated, Limits::default());
    met &= compare(
        "decoding a schema / parsing it to serde_json::Value",
        Some(5.0),
        || receiver.accept_header(black_box(header.as_bytes())).expect("our own"),
        || {
            black_box(serde_json::from_slice::<serde_json::Value>(black_box(header.as_bytes())).expect("JSON"));
        },
    );

    let mut fresh = SendSession::new(Format::Consolidated);
    met &= compare(
        "writing a schema / serde_json writing its Value",
        None,
        || {
            black_box(fresh.encode(black_box(&packed)).expect("sendable").header());
            fresh = SendSession::new(Format::Consolidated);
        },
        {
            let value: serde_json::Value = serde_json::from_slice(header.as_bytes()).expect("JSON");
            move || {
                black_box(black_box(&value).to_string());
            }
        },
    );

    // In the steady state nothing depends on the number of leaves. The yardstick is one allocation.
    let allocation = || drop(black_box(Vec::<u8>::with_capacity(black_box(1_000))));
    let mut session = SendSession::new(Format::Consolidated);
    session.encode(&packed).expect("sendable");
    session.commit();
    // A tree of its own, as after a new rollout.
    let equal = many_leaves().expect("a TensorDict").consolidate();
    met &= compare(
        "encoding a consolidated TensorDict of a known schema / one allocation",
        None,
        || {
            black_box(session.encode(black_box(&equal)).expect("sendable").flag());
            session.commit();
        },
        allocation,
    );
    met &= compare(
        "receiving: flag, buffer, finish, drop / one allocation",
        None,
        || {
            assert!(!receiver.accept_flag(black_box(1)).expect("a flag"));
            let buffer: Storage = receiver.buffer();
            drop(black_box(receiver.finish(buffer).expect("a TensorDict")));
        },
        allocation,
    );

    if check && !met {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn many_leaves() -> Result<TensorDict, DataError> {
    let mut td = TensorDict::new([]);
    for leaf in 0..LEAVES {
        let elements = [leaf as f32; LEAF_BYTES / size_of::<f32>()];
        td.insert(format!("leaf_{leaf}"), Tensor::from(elements))?;
    }
    Ok(td)
}

/// Prints the ratio of the two; false if it is above the target.
fn compare(name: &str, target: Option<f64>, mut ours: impl FnMut(), mut yardstick: impl FnMut()) -> bool {
    let (our_count, their_count) = (runs_per_round(&mut ours), runs_per_round(&mut yardstick));
    let mut rounds: Vec<(f64, f64)> =
        (0..ROUNDS).map(|_| (time(our_count, &mut ours), time(their_count, &mut yardstick))).collect();
    rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (ours, theirs) = rounds[ROUNDS / 2];
    let ratio = ours / theirs;
    let verdict = target.map_or_else(String::new, |target| format!("  (target: at most {target})"));
    println!("{ratio:8.2}  {name}{verdict}\n          {} / {}", duration(ours), duration(theirs));
    target.is_none_or(|target| ratio <= target)
}

/// Enough for the clock, few enough that both of a round meet the same weather.
fn runs_per_round(run: &mut impl FnMut()) -> u32 {
    let mut count = 1;
    while time(count, run) * f64::from(count) < 2e-4 && count < 1 << 20 {
        count *= 2;
    }
    count
}

/// The seconds of one run.
fn time(count: u32, run: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        run();
    }
    start.elapsed().as_secs_f64() / f64::from(count)
}

fn duration(seconds: f64) -> String {
    let nanoseconds = Duration::from_secs_f64(seconds).as_nanos();
    if nanoseconds < 10_000 {
        format!("{:.1} ns", seconds * 1e9)
    } else {
        format!("{:.1} µs", seconds * 1e6)
    }
}
