//! Two hundred pipes, both ends in this one program, and what each costs: `many_pipes [COUNT]`.

use std::{env, fs};

use anyhow::Context;
use tensordict_pipe::{tensordict, DType, Pipe, Server, Tensor};

fn main() -> anyhow::Result<()> {
    let count = env::args().nth(1).map_or(Ok(200), |arg| arg.parse())?;
    let server = Server::bind("127.0.0.1", 0)?;
    let port = server.local_addr().port();
    let td = tensordict!([]; "obs" => Tensor::zeros(DType::Float32, [64, 84])?)?.consolidate();
    let before = rss_kib()?;
    let mut pipes = Vec::new();
    for _ in 0..count {
        pipes.push((Pipe::connect("127.0.0.1", port)?, server.accept()?));
    }
    let connected = rss_kib()?;
    for _ in 0..10 {
        for (sender, receiver) in &mut pipes {
            sender.send(&td)?;
            receiver.recv()?;
        }
    }
    let used = rss_kib()?;
    println!("{count} pipes over {}", pipes[0].0.transports().join(", "));
    println!("memory of a pipe with both ends: {} KiB", (connected - before) / count);
    println!("after ten messages of {} bytes: {} KiB", td.get("obs")?.bytes().len(), (used - before) / count);
    Ok(())
}

fn rss_kib() -> anyhow::Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("not on Linux")?;
    Ok(rss.trim().trim_end_matches(" kB").parse()?)
}
