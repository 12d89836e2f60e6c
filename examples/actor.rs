//! An actor in Rust for a learner in PyTorch, which is `learner.py`: `actor HOST PORT`.
//!
//! ```text
//! python examples/learner.py 13337 &
//! cargo run --release --example actor 127.0.0.1 13337
//! ```
//!
//! The learner closes the pipe when it has learnt enough. `actor_learner.rs` has both in Rust.

mod rollout;

use anyhow::bail;
use std::time::Duration;
use tensordict_pipe::Pipe;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, host, port] = &args[..] else { bail!("usage: actor HOST PORT") };
    // Importing torch takes the learner a while.
    let mut pipe = Pipe::options().connect_timeout(Duration::from_secs(60)).connect(host, port.parse()?)?;
    let reward = rollout::act(&mut pipe)?;
    println!("actor: the last rollout earned {reward:.2} a step");
    if reward < 0.9 {
        bail!("the learner has not learnt");
    }
    Ok(())
}
