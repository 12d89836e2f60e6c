//! The acting half of the examples `actor` and `actor_learner`: receives weights, plays, sends what happened.
//!
//! The game: an observation of four numbers; action 1 is right (reward 1) if the first number is positive, action 0 if it
//! is not. A policy that knows nothing earns 0.5 a step.

use anyhow::{ensure, Result};
use tensordict_pipe::{tensordict, Pipe, Tensor, TensorDict};

/// The numbers of an observation.
pub(crate) const FEATURES: usize = 4;
/// The actions to choose from.
pub(crate) const ACTIONS: usize = 2;
/// The steps of a rollout.
pub(crate) const STEPS: usize = 256;

/// Plays until the learner closes the pipe; gives the rewards per step of the last rollout.
pub(crate) fn act(pipe: &mut Pipe) -> Result<f64> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut reward = 0.0;
    loop {
        let weights = match pipe.recv() {
            Ok(weights) => weights,
            Err(error) if error.is_closed() => return Ok(reward),
            Err(error) => return Err(error.into()),
        };
        let rollout = play(&weights, &mut random)?;
        let rewards = rollout.get("reward")?.as_slice::<f32>()?;
        reward = f64::from(rewards.iter().sum::<f32>()) / STEPS as f64;
        pipe.send(&rollout)?;
    }
}

fn play(weights: &TensorDict, random: &mut Random) -> Result<TensorDict> {
    let weight = weights.get("weight")?.as_slice::<f32>()?; // [ACTIONS, FEATURES], as torch's Linear
    let bias = weights.get("bias")?.as_slice::<f32>()?;
    ensure!(weight.len() == ACTIONS * FEATURES && bias.len() == ACTIONS, "weights of another policy");
    let (mut obs, mut action, mut reward) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STEPS {
        let seen: [f32; FEATURES] = std::array::from_fn(|_| 2.0 * random.number() - 1.0);
        let logit = |a: usize| {
            let row = &weight[a * FEATURES..][..FEATURES];
            bias[a] + row.iter().zip(&seen).map(|(w, x)| w * x).sum::<f32>()
        };
        let right = 1.0 / (1.0 + (logit(0) - logit(1)).exp()); // the probability of action 1
        let chosen = i64::from(random.number() < right);
        obs.extend(seen);
        action.push(chosen);
        reward.push(f32::from(u8::from((chosen == 1) == (seen[0] > 0.0))));
    }
    Ok(tensordict!([STEPS];
        "obs" => Tensor::from_slice(&obs, [STEPS, FEATURES])?,
        "action" => action,
        "reward" => reward,
    )?)
}

/// The xorshift generator.
struct Random(u64);

impl Random {
    /// From 0 to 1.
    fn number(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }
}
