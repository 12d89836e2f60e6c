"""Python's ends of the side-by-side benchmark: peer.py pipe|gloo server|client PORT. The schedule of bench_schedule.

pipe is tensordict's TensorDictPipe; gloo is TensorDict.send and recv over torch.distributed, on CPU and TCP. Both receive
into the TensorDict that the last message came in.
"""
import asyncio, json, os, resource, sys, time

import numpy as np
import torch
from tensordict import TensorDict

WORKS = {"W0": (8, 1, 200, 200), "W1": (21504, 1, 200, 200), "W2": (1 << 20, 16, 32, 32),
         "W3": (64 << 20, 1, 3, 5), "W4": (256000, 1000, 100, 100), "W5": (256 << 20, 4, 2, 3)}
WARM_UP, MEASURE = float(os.environ.get("B_TW", "0.1")), float(os.environ.get("B_TM", "0.4"))
WARM, MEASURED, LAST = 0, 1, 2
NUMBER = (1 << 62) - 1
now = time.monotonic


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def out(**line):
    print(json.dumps(line), flush=True)


class Work:
    def __init__(self, name):
        self.name = name
        if name in WORKS:
            self.size, self.leaves, self.min_warm, self.min_count = WORKS[name]
            return
        size, leaves = name.split("x")
        self.leaves = int(leaves)
        size = int(size.rstrip("kMG")) << {"k": 10, "M": 20, "G": 30}.get(size[-1], 0)
        self.size = size // self.leaves // 8 * 8 * self.leaves
        counts = [(0x100000, 100, 100), (0x4000000, 16, 16), (0x40000000, 2, 4), (float("inf"), 1, 2)]
        self.min_warm, self.min_count = next(rest for limit, *rest in counts if self.size < limit)

    def tensordict(self):
        leaf = {"W0": (1, torch.int64), "W1": ((64, 84), torch.float32)}.get(self.name, (self.size // self.leaves // 4, torch.float32))
        leaves = {f"l{i:04}": torch.zeros(leaf[0], dtype=leaf[1]) for i in range(self.leaves)}
        td = TensorDict(leaves).consolidate(metadata=True)
        assert td._consolidated["storage"].numel() == self.size
        return td


class View:
    """The counter of a consolidated TensorDict and one byte of each leaf, through numpy, made once for a storage."""

    def __init__(self, td, work):
        self.td, storage = td, td._consolidated["storage"].numpy()
        self.counter = storage[:8].view(np.uint64)
        self.touched = storage[:: work.size // work.leaves]

    def read(self):
        self.touched.sum()
        return int(self.counter[0])


async def latency_client(work, send, recv):
    sent, back, times = work.tensordict(), work.tensordict(), []
    counter, view = View(sent, work).counter, View(back, work)
    min_warm = work.min_warm // 2 + 1 if work.min_warm < 50 else 50
    number = count = used = 0
    phase, start, begun = WARM, now(), now()
    while True:
        counter[0] = value = phase << 62 | number
        number += 1
        left = time.perf_counter()
        await send(sent)
        back = await recv(back)
        if back is not view.td:
            view = View(back, work)
        assert view.read() == value, "another echo"
        took = time.perf_counter() - left
        if phase == LAST:
            break
        if phase == MEASURED:
            times.append(took)
        count += 1
        elapsed = now() - start
        if phase == WARM and elapsed >= WARM_UP and count >= min_warm:
            phase, count, start, used = MEASURED, 0, now(), cpu()
            begun = start
        elif phase == MEASURED and elapsed >= MEASURE and count >= work.min_count:
            phase = LAST
    times.sort()
    half = lambda i: round(times[min(i, len(times) - 1)] / 2 * 1e6, 3)
    out(side="send", w=work.name, m="lat", n=len(times), size=work.size, p50=half(len(times) // 2), p99=half(int(len(times) * 0.99)),
        min=half(0), t0=begun, t1=now(), cpu=cpu() - used)


async def latency_server(work, send, recv):
    td = work.tensordict()
    view = View(td, work)
    while True:
        td = await recv(td)
        if td is not view.td:
            view = View(td, work)
        counter = view.read()
        await send(td)
        if counter >> 62 == LAST:
            return


async def throughput_client(work, send):
    sent = work.tensordict()
    counter = View(sent, work).counter
    look_every = 64 if work.size <= 65536 else 1
    number = count = used = 0
    phase, start, begun = WARM, now(), now()
    while True:
        counter[0] = phase << 62 | number
        number += 1
        await send(sent)
        count += 1
        if phase == LAST:
            break
        if count % look_every:
            continue
        elapsed = now() - start
        if phase == WARM and elapsed >= WARM_UP and count >= work.min_warm:
            phase, count, start, used = MEASURED, 0, now(), cpu()
            begun = start
        elif phase == MEASURED and elapsed >= MEASURE and count >= work.min_count:
            phase = LAST
    out(side="send", w=work.name, m="thr", t0=begun, t1=now(), cpu=cpu() - used)


async def throughput_server(work, recv):
    td = work.tensordict()
    view, expected, count, begun, used = View(td, work), 0, 0, None, 0
    while True:
        td = await recv(td)
        if td is not view.td:
            view = View(td, work)
        counter = view.read()
        assert counter & NUMBER == expected, "a message is out of order"
        expected += 1
        if counter >> 62 == WARM:
            continue
        if begun is None:
            begun, used = now(), cpu()
            continue
        count += 1
        if counter >> 62 == LAST:
            break
    out(side="recv", w=work.name, m="thr", n=count, size=work.size, t0=begun, t1=now(), cpu=cpu() - used)


async def schedule(serves, send, recv):
    metrics = os.environ.get("B_METRICS", "thr,lat")
    for work in map(Work, os.environ.get("B_WORKS", ",".join(WORKS)).split(",")):
        if "lat" in metrics:
            await (latency_server(work, send, recv) if serves else latency_client(work, send, recv))
        if "thr" in metrics:
            await (throughput_server(work, recv) if serves else throughput_client(work, send))


async def pipe(serves, port):
    from tensordict._ucxx import TensorDictPipe

    if serves:
        listening = asyncio.ensure_future(TensorDictPipe.listen(port))
        await asyncio.sleep(0.05)
        out(ready=1)
        pipe = await listening
    else:
        pipe = await TensorDictPipe.connect("127.0.0.1", port)
    await schedule(serves, pipe.asend, pipe.arecv)
    # The receiver says that it has everything: Python's pipe has no goodbye.
    await (pipe.asend(TensorDict(end=torch.zeros(1))) if serves else pipe.arecv())
    await pipe.aclose()


async def gloo(serves, port):
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if serves:
        out(ready=1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(serves), world_size=2)

    async def send(td):
        td.send(int(not serves), consolidated=True)

    async def recv(td):
        td.recv(int(not serves), consolidated=True)
        return td

    await schedule(serves, send, recv)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    asyncio.run({"pipe": pipe, "gloo": gloo}[sys.argv[1]](sys.argv[2] == "server", int(sys.argv[3])))
