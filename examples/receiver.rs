//! Receives TensorDicts until the sender closes, and prints the sum of each one's `obs`: `receiver PORT`.

use anyhow::Context;
use tensordict_pipe::Pipe;

fn main() -> anyhow::Result<()> {
    let port = std::env::args().nth(1).context("usage: receiver PORT")?.parse()?;
    let mut pipe = Pipe::listen(port)?; // waits for the sender
    let td = pipe.recv()?; // the first receive learns the structure and allocates the buffer
    println!("{td}");
    for td in pipe.results() {
        let sum: f32 = td?.get("obs")?.as_slice::<f32>()?.iter().sum(); // same structure: nothing is allocated
        println!("{sum}");
    }
    Ok(())
}
