//! The main job: one process streams TensorDicts to another, which checks every value: `stream [SECONDS]`.
//!
//! It starts itself twice, as the receiver and as the sender. `sender.rs` and `receiver.rs` show less and are shorter.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use tensordict_pipe::{tensordict, DType, Pipe, Tensor, TensorDict};

const OBS: [usize; 2] = [64, 84];

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => start("3"),
        ["receive"] => receive(),
        ["send", port, seconds] => send(port.parse()?, Duration::from_secs_f64(seconds.parse()?)),
        [seconds] => start(seconds),
        _ => anyhow::bail!("usage: stream [SECONDS]"),
    }
}

/// Starts the two processes and waits for them.
fn start(seconds: &str) -> Result<()> {
    let mut receiver = Command::new(env::current_exe()?).arg("receive").stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(receiver.stdout.take().context("piped")?).lines();
    let port = loop {
        let line = lines.next().context("the receiver ended before it listened")??;
        println!("{line}");
        if let Some(port) = line.strip_prefix("receiver: listening on port ") {
            break port.to_owned();
        }
    };
    let sender = Command::new(env::current_exe()?).args(["send", &port, seconds]).spawn()?;
    for line in lines {
        println!("{}", line?);
    }
    succeeded(sender, "sender")?;
    succeeded(receiver, "receiver")
}

fn succeeded(mut process: Child, name: &str) -> Result<()> {
    let status = process.wait()?;
    ensure!(status.success(), "the {name} failed: {status}");
    Ok(())
}

fn send(port: u16, time: Duration) -> Result<()> {
    let mut pipe = Pipe::connect("127.0.0.1", port)?;
    let info = pipe.info();
    println!("sender:   UCX {} over {}", info.ucx_version, info.transports.join(" and "));
    let mut td = tensordict!([];
        "step" => Tensor::scalar(0_i64),
        "obs" => Tensor::zeros(DType::Float32, OBS)?,
        "next" => { "reward" => Tensor::zeros(DType::Float32, [OBS[0]])? },
    )?
    .consolidate();
    let start = Instant::now();
    let mut step = 0;
    while start.elapsed() < time {
        td.get_mut("step")?.copy_from_slice(&[step])?;
        fill(td.get_mut("obs")?.as_slice_mut()?, step);
        fill(td.get_mut(("next", "reward"))?.as_slice_mut()?, step);
        pipe.send(&td)?;
        step += 1;
    }
    pipe.close()?; // an error here would say what the receiver has not got
    println!("sender:   {step} messages sent");
    Ok(())
}

fn receive() -> Result<()> {
    let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
    println!("receiver: listening on port {}", listening.local_addr().port());
    let mut pipe = listening.accept()?;
    let (mut step, mut bytes, start) = (0, 0, Instant::now());
    for td in pipe.results() {
        let td = td?;
        check(&td, step).with_context(|| format!("message {step}"))?;
        bytes += td.consolidated_bytes().map_or(0, <[u8]>::len);
        step += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    let (messages, gigabytes) = (step as f64 / seconds, bytes as f64 / seconds / 1e9);
    println!("receiver: {step} messages, every value checked: {messages:.0} messages/s, {gigabytes:.2} GB/s");
    Ok(())
}

fn check(td: &TensorDict, step: i64) -> Result<()> {
    let got: i64 = td.get("step")?.item()?;
    ensure!(got == step, "its step is {got}");
    ensure!(*td.get("obs")?.shape() == OBS.into(), "its obs is {}", td.get("obs")?.shape());
    for path in [&["obs"][..], &["next", "reward"]] {
        let wrong = td.get(path)?.as_slice::<f32>()?.iter().enumerate().find(|&(i, &x)| x != element(step, i));
        ensure!(wrong.is_none(), "{path:?} is wrong: {wrong:?}");
    }
    Ok(())
}

fn fill(elements: &mut [f32], step: i64) {
    for (i, x) in elements.iter_mut().enumerate() {
        *x = element(step, i);
    }
}

/// Another value at each place, and at each place another one in each message.
fn element(step: i64, i: usize) -> f32 {
    ((step % 1_000) as i32 + i as i32) as f32
}
