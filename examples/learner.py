"""A learner in PyTorch for the actor in Rust, which is `actor.rs`: `learner.py PORT [ITERATIONS]`.

    pip install tensordict torch ucxx-cu13
    python examples/learner.py 13337 &
    cargo run --release --example actor 127.0.0.1 13337

Each iteration sends the weights, receives a rollout made with them, and makes one step of REINFORCE. Where the two ends
have different versions of UCX, export UCX_CM_USE_ALL_DEVICES=n for both.
"""

import asyncio
import sys

import torch
from tensordict import TensorDict
from tensordict._ucxx import TensorDictPipe


async def learn(port, iterations):
    torch.manual_seed(0)
    policy = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.2)
    print("listening", file=sys.stderr, flush=True)
    pipe = await TensorDictPipe.listen(port)
    for iteration in range(iterations):
        weights = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
        await pipe.asend(TensorDict(weights))
        batch = await pipe.arecv()
        reward = batch["reward"]
        chosen = policy(batch["obs"]).log_softmax(-1).gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1)
        loss = -((reward - reward.mean()) * chosen).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 10 == 9:
            print(f"learner: iteration {iteration + 1}, {reward.mean():.2f} a step", flush=True)
    await pipe.aclose()
    assert reward.mean() > 0.9, "nothing was learnt"


if __name__ == "__main__":
    asyncio.run(learn(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50))
