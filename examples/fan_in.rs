//! One server, many clients: a learner that collects from its actors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tensordict_pipe::{tensordict, Pipe, Server};

const ACTORS: i64 = 8;
const STEPS: i64 = 1000;

fn actor(id: i64, port: u16) -> anyhow::Result<()> {
    let mut pipe = Pipe::connect("127.0.0.1", port)?;
    for step in 0..STEPS {
        pipe.send(&tensordict!([4]; "actor" => vec![id; 4], "reward" => vec![step as f32; 4])?)?;
    }
    Ok(pipe.close()?)
}

fn main() -> anyhow::Result<()> {
    let server = Server::bind("127.0.0.1", 0)?;
    let port = server.local_addr().port();
    let steps = AtomicU64::new(0);
    thread::scope(|scope| {
        // Each client's pipe is served by a thread of its own.
        scope.spawn(|| {
            server.serve(|mut pipe| {
                let count = pipe.iter().count() as u64;
                println!("{}: {count} steps", pipe.peer());
                steps.fetch_add(count, Ordering::Relaxed);
            })
        });
        let actors: Vec<_> = (0..ACTORS).map(|id| scope.spawn(move || actor(id, port))).collect();
        let results: anyhow::Result<Vec<_>> = actors.into_iter().map(|actor| actor.join().expect("no panic")).collect();
        server.close(); // `serve` returns when its handlers have
        results
    })?;
    println!("{} steps in all", steps.into_inner());
    Ok(())
}
