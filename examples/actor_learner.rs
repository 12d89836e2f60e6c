//! An actor and a learner, both in Rust, on two threads: `actor_learner`. Between two machines the one would listen and
//! the other connect just the same; `actor.rs` does so with a learner in PyTorch.

mod rollout;

use std::thread;

use anyhow::{anyhow, ensure, Result};
use rollout::{ACTIONS, FEATURES};
use tensordict_pipe::{tensordict, Pipe, Tensor, TensorDict};

const ITERATIONS: usize = 50;
const LEARNING_RATE: f32 = 8.0;

fn main() -> Result<()> {
    let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
    let port = listening.local_addr().port();
    let actor = thread::spawn(move || rollout::act(&mut Pipe::connect("127.0.0.1", port)?));
    learn(listening.accept()?)?;
    let reward = actor.join().map_err(|_| anyhow!("the actor panicked"))??;
    println!("actor: the last rollout earned {reward:.2} a step");
    ensure!(reward > 0.9, "nothing was learnt");
    Ok(())
}

fn learn(mut pipe: Pipe) -> Result<()> {
    // Consolidated once: writing values keeps it so, and sending it then copies nothing.
    let mut weights = tensordict!([];
        "weight" => Tensor::from_slice(&[0.0_f32; ACTIONS * FEATURES], [ACTIONS, FEATURES])?,
        "bias" => vec![0.0_f32; ACTIONS],
    )?
    .consolidate();
    for iteration in 1..=ITERATIONS {
        pipe.send(&weights)?;
        let reward = improve(&mut weights, &pipe.recv()?)?;
        if iteration % 10 == 0 {
            println!("learner: iteration {iteration}, {reward:.2} a step");
        }
    }
    Ok(pipe.close()?)
}

/// One step of REINFORCE up the gradient of a linear softmax policy; gives the mean reward.
fn improve(weights: &mut TensorDict, rollout: &TensorDict) -> Result<f32> {
    let (obs, action) = (rollout.get("obs")?.as_slice::<f32>()?, rollout.get("action")?.as_slice::<i64>()?);
    let reward = rollout.get("reward")?.as_slice::<f32>()?;
    let mean = reward.iter().sum::<f32>() / reward.len() as f32;
    let weight = weights.get("weight")?.to_vec::<f32>()?;
    let bias = weights.get("bias")?.to_vec::<f32>()?;
    let mut steps = vec![[0.0; FEATURES + 1]; ACTIONS];
    for ((seen, &chosen), &reward) in obs.chunks_exact(FEATURES).zip(action).zip(reward) {
        let odds: Vec<f32> = (0..ACTIONS)
            .map(|a| (bias[a] + (0..FEATURES).map(|i| weight[a * FEATURES + i] * seen[i]).sum::<f32>()).exp())
            .collect();
        let total: f32 = odds.iter().sum();
        for (a, step) in steps.iter_mut().enumerate() {
            let surprise = f32::from(u8::from(a as i64 == chosen)) - odds[a] / total;
            let push = LEARNING_RATE * (reward - mean) * surprise / action.len() as f32;
            step.iter_mut().zip(seen.iter().chain([&1.0])).for_each(|(step, x)| *step += push * x);
        }
    }
    let weight = weights.get_mut("weight")?.as_slice_mut::<f32>()?;
    for (row, step) in weight.chunks_exact_mut(FEATURES).zip(&steps) {
        row.iter_mut().zip(step).for_each(|(w, step)| *w += step);
    }
    let bias = weights.get_mut("bias")?.as_slice_mut::<f32>()?;
    bias.iter_mut().zip(&steps).for_each(|(b, step)| *b += step[FEATURES]);
    Ok(mean)
}
