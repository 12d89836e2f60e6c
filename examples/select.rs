//! Waits for four pipes and a clock at once: `select`.

use std::thread;
use std::time::Duration;

use crossbeam_channel::{never, select, tick};
use tensordict_pipe::{tensordict, Pipe, ReadAhead};

/// A pipe to read ahead from, fed by an actor of its own pace.
fn actor(pace: Duration) -> anyhow::Result<ReadAhead> {
    let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
    let port = listening.local_addr().port();
    thread::spawn(move || -> anyhow::Result<()> {
        let mut pipe = Pipe::connect("127.0.0.1", port)?;
        for step in 0..20_i64 {
            thread::sleep(pace);
            pipe.send(&tensordict!([]; "step" => vec![step])?)?;
        }
        Ok(pipe.close()?)
    });
    Ok(listening.accept()?.into_receiver(8)?) // at most 8 messages wait; then the actor does
}

fn main() -> anyhow::Result<()> {
    let actors = (1..=4).map(|n| actor(Duration::from_millis(10 * n))).collect::<anyhow::Result<Vec<_>>>()?;
    let silence = never();
    let mut channels: Vec<_> = actors.iter().map(|actor| &**actor).collect();
    let ticker = tick(Duration::from_millis(100));
    let mut steps = [0; 4];
    let mut open = 4;
    while open > 0 {
        let (actor, message) = select! {
            recv(channels[0]) -> message => (0, message),
            recv(channels[1]) -> message => (1, message),
            recv(channels[2]) -> message => (2, message),
            recv(channels[3]) -> message => (3, message),
            recv(ticker) -> _ => {
                println!("steps so far: {steps:?}");
                continue;
            }
        };
        if let Ok(td) = message {
            steps[actor] = td?.get("step")?.item::<i64>()? + 1;
        } else {
            channels[actor] = &silence; // it closed its pipe
            open -= 1;
        }
    }
    println!("all done: {steps:?}");
    Ok(())
}
