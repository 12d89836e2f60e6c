"""The Python side of the interoperability tests: tensordict's own pipe, driven from the command line.

Its twin in Rust, the example `interop_peer`, takes the same arguments and behaves the same, so that `run` can put
either at either end, and even this program at both. What follows is the specification of both.

    peer ROLE (--connect HOST:PORT | --listen PORT) [OPTIONS]

Roles

    echo    receives, and sends back what it received, until the other side closes.
    drive   sends each TensorDict of its catalogue and receives the echo, which must be equal to the bit: names and
            their order, dtypes, shapes, bytes, batch sizes, dimension names, lock, devices, values. Then `--steady N`
            messages (default 1000) of one structure and changing numbers. Then closes.
    send    sends its catalogue, then `--steady N` messages (default 0), and prints the dump of each as the receiver
            will have it. Then closes at once: what was sent must arrive nevertheless. With `--linger` it waits for the
            other side to close instead, and must see that.
    recv    receives until the other side closes and prints the dump of each. With `--count N` it closes after N.
    serve   a server (`--listen` only) that echoes to `--clients N` clients, all at the same time, until each has left.
    second  opens a pipe (`--connect` only) to an echo, and then a second one, which must be refused, with an error
            other than a timeout. (Python may try again: now and then ucxx is told of the refusal and waits nevertheless.)
            The first still works.
    gather  a server (`--listen` only, and only the Rust side) for `--clients N` clients of a crowd at the same time: it
            answers nobody's message 0 before it has those of all, reads on from nobody's middle before all are there,
            answers the last, and ends normally if each has sent messages 0 to `--steady N`, once and in order, and
            closed.
    crowd   opens `--clients N` pipes at the same time, as the clients with the numbers from `--first K`. Each sends its
            message 0, waits for an answer, sends messages 1 to `--steady N`, waits for an answer, and closes: Python
            closes by force, and over TCP that would cost what has not left its buffers.
    foreign (only the Python side) sends what exists in Python alone (FOREIGN, below). What does not raise is dumped as by
            `send`; what raises must do so before anything is sent; then comes a last TensorDict.
    torn    (only the Python side) sends the one of FOREIGN that `--only` names, which must raise in the middle of a
            message, then another TensorDict all the same, and waits for the other side to break off.
    cases   prints a line for each TensorDict of the catalogue, number and name; connects to nothing.

Options

    --only NAME,... of the catalogue no more than these and the last
    --leaves        the pipe with consolidated=False
    --stateless     the functions send_tensordict and recv_tensordict instead of a pipe
    --seconds N     gives up, with status 3, after N seconds (default 120)

Rules

    * A listener writes the line `listening` to stderr before it waits; a connector tries again for ten seconds.
    * A side that is closed on where a message could begin ends normally. Anything else ends with status 1.
    * Standard output is the dump and nothing else, and its last line is `end`. Talk goes to stderr, where UCX needs to
      be told to send its own: UCX_LOG_FILE=stderr.
    * A wrong echo is shown on stderr as both dumps and ends with status 2.
    * In the steady part of a consolidated pipe the echo must come as two messages each, flag and storage: the schema
      has been sent. Python counts them.
    * A catalogue has its entries in the order in which a dump has them (below), as the wire has no other; with
      `--leaves` moreover sorted by name, nested dicts with the root's batch size and without names, lock or device.

The dump: UTF-8 text, a line for each message and for each thing in it, in depth-first order.

    message 0
    [] dict batch=[3] names=["time"] device=null locked=false entries=3
    ["s"] value batch=[3] device=null value={"str":"hello"}
    ["a"] tensor dtype=torch.float32 shape=[3] bytes=0000803f0000004000004040
    ["u"] unbatched dtype=torch.uint8 shape=[100] bytes=100:5f7c6c32
    ["n"] dict batch=[3] names=[null] device=null locked=false entries=1
    ["n","j"] jagged ragged=1 lengths=false
    ["n","j","values"] tensor dtype=torch.int64 shape=[2] bytes=01000000000000000200000000000000
    ["n","j","offsets"] tensor dtype=torch.int64 shape=[3] bytes=...
    ["l"] lazy-stack dim=0 name=null locked=false entries=2
    ["l","0"] dict batch=[3] ...
    ["l","1"] dict batch=[3] ...
    ["t"] value-stack dim=0 name=null locked=false entries=2
    ["t","0"] value ...
    ["t","1"] value ...
    message 1
    ...
    end

    * Everything in brackets, braces or quotes is JSON without spaces and without escapes but those JSON demands
      (`"` `\\` and the control characters below U+0020: \\b \\t \\n \\f \\r, otherwise \\u and four lower-case digits),
      which is what serde_json writes.
    * The path is the list of names from the root; a stack's elements are named "0", "1", ...
    * The entries of a dict: first the single values, then the tensors, unbatched and jagged ones, then everything with
      entries of its own (dicts and both kinds of stack); among each of these in the order of the dict. The wire keeps
      that much order and no more.
    * `names` has null for a dimension without a name, so it is as long as the batch size.
    * `lengths` says whether a jagged tensor has them; if so the line ["...","lengths"] stands between the other two.
    * `bytes` are those of the contiguous tensor, little-endian: as hexadecimal up to 64 bytes, beyond that their number
      in decimal, a colon and their CRC-32 (zlib's) as eight hexadecimal digits.
    * A value has its type spelt out: null, true, false, {"int":"123"}, {"str":"text"}, {"list":[...]},
      {"map":[["key",...],...]}, {"float":"3ff0000000000000"} with the bits in big-endian hexadecimal, any NaN {"float":"nan"}.
"""

import argparse
import asyncio
import faulthandler
import json
import math
import os
import struct
import sys
import threading
import time
import warnings
import zlib

import torch
import ucxx
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, UnbatchedTensor, lazy_stack
from tensordict import TensorDictParams, tensorclass
from tensordict._ucxx import TensorDictPipe, TensorDictServer, recv_tensordict, send_tensordict

# Of the jagged layout, which is a prototype by its own account.
warnings.filterwarnings("ignore", category=UserWarning)


# The dump


def text(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def spelt(value):
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return {"int": str(value)}
    if isinstance(value, float):
        return {"float": "nan" if math.isnan(value) else struct.pack(">d", value).hex()}
    if isinstance(value, str):
        return {"str": value}
    if isinstance(value, list):
        return {"list": [spelt(item) for item in value]}
    return {"map": [[key, spelt(item)] for key, item in value.items()]}


def tensor(value, whole):
    data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    shown = data.hex() if whole or len(data) <= 64 else f"{len(data)}:{zlib.crc32(data):08x}"
    return f"dtype={value.dtype} shape={text(list(value.shape))} bytes={shown}"


def dump(entry, path=(), whole=False):
    """The lines of a TensorDict; with `whole` all bytes in hexadecimal, for a comparison to the bit."""
    at = text(list(path))
    if isinstance(entry, UnbatchedTensor):
        yield f"{at} unbatched {tensor(entry.data, whole)}"
    elif isinstance(entry, torch.Tensor) and entry.is_nested:
        lengths = entry._lengths
        yield f"{at} jagged ragged={entry._ragged_idx} lengths={text(lengths is not None)}"
        for name, part in ("values", entry._values), ("lengths", lengths), ("offsets", entry._offsets):
            if part is not None:
                yield from dump(part, (*path, name), whole)
    elif isinstance(entry, torch.Tensor):
        yield f"{at} tensor {tensor(entry, whole)}"
    elif isinstance(entry, NonTensorData):
        yield f"{at} value batch={text(list(entry.batch_size))} device={device(entry)} value={text(spelt(entry.data))}"
    elif isinstance(entry, LazyStackedTensorDict):
        kind = "value-stack" if isinstance(entry, NonTensorStack) else "lazy-stack"
        name, count = text(entry._td_dim_name), len(entry.tensordicts)
        yield f"{at} {kind} dim={entry.stack_dim} name={name} locked={text(entry.is_locked)} entries={count}"
        for index, element in enumerate(entry.tensordicts):
            yield from dump(element, (*path, str(index)), whole)
    else:
        entries = sorted(((key, entry._get_str(key, None)) for key in entry.keys()), key=lambda item: rank(item[1]))
        names = entry.names or [None] * entry.ndim
        yield (
            f"{at} dict batch={text(list(entry.batch_size))} names={text(names)} device={device(entry)} "
            f"locked={text(entry.is_locked)} entries={len(entries)}"
        )
        for key, value in entries:
            yield from dump(value, (*path, key), whole)


def device(entry):
    return text(None if entry.device is None else str(entry.device))


def rank(entry):
    if isinstance(entry, NonTensorData):
        return 0
    return 1 if isinstance(entry, torch.Tensor) else 2


# The catalogue


def arange(*shape, dtype=torch.float32, start=1):
    return torch.arange(start, start + math.prod(shape)).reshape(shape).to(dtype)


def packable_dtypes():
    # First, because Python can pack a complex128 leaf only at a multiple of 16.
    yield "complex128", torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)
    for name in "uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64".split():
        yield name, arange(3, dtype=getattr(torch, name))
    yield "bool", torch.tensor([True, False, True])
    yield "complex32", torch.tensor([1 + 2j, 3 - 4j]).to(torch.complex32)
    yield "complex64", torch.tensor([1 + 2j, 3 - 4j])


def float8_dtypes():
    for name in sorted(name for name in vars(torch) if name.startswith("float8")):
        yield name, torch.tensor([0, 1, 127, 255], dtype=torch.uint8).view(getattr(torch, name))


def not_a_numbers():
    """Bits that arithmetic would not leave alone."""
    yield "float32", torch.tensor([0x7FC00001, 0x7F800001, 0x80000000, 0x00000001], dtype=torch.int64).to(torch.int32)
    yield "bfloat16", torch.tensor([0x7FC1, 0x7F81], dtype=torch.int16)


def jagged(lengths=None):
    return torch.nested.nested_tensor_from_jagged(arange(10), offsets=torch.tensor([0, 3, 10]), lengths=lengths)


VALUES = {
    "text": "hello",
    "escapes": "quote \" backslash \\ slash / \b\f\n\r\t \x00 \x1f \x7f",
    "unicode": "gr\u00fc\u00df \u65e5\u672c \U0001f980 \u2028",
    "empty": "",
    "nothing": NonTensorData(None),
    "flags": NonTensorData([True, False]),
    "integers": NonTensorData([0, -1, 2**31, 2**63 - 1, -(2**63), 2**63, 10**40]),
    "floats": NonTensorData([0.0, -0.0, 1.0, 0.1, 1e-5, 1e16, 5e-324, 1.7976931348623157e308, 1 / 3]),
    "special": NonTensorData([math.nan, math.inf, -math.inf]),
    "nested": NonTensorData({"a": [1, {"b": []}], "": {}, "c": None}),
}

LAZY = [TensorDict({"a": arange(2), "s": "p"}), TensorDict({"a": arange(3), "b": arange(1)})]


def common():
    """What both kinds of pipe carry."""
    yield "empty", TensorDict({})
    yield "one", TensorDict({"obs": arange(3, 4)}, [3])
    yield "one again", TensorDict({"obs": arange(3, 4, start=100)}, [3])
    yield "empty again", TensorDict({})
    yield "nested", TensorDict(
        {"obs": arange(3, 2), "info": TensorDict({"reward": arange(3, 1), "x": {"done": arange(3) > 1}}, [3])}, [3]
    )
    yield "dtypes", TensorDict(dict(packable_dtypes()))
    yield "bits", TensorDict({name: bits.view(getattr(torch, name)) for name, bits in not_a_numbers()})
    yield "no elements", TensorDict({"a": arange(0), "b": arange(0, 3), "c": arange(2, 0), "d": arange(3), "e": arange(0)})
    yield "scalars", TensorDict({"a": torch.tensor(1.5), "n": {"b": torch.tensor(7)}})
    yield "zero batch", TensorDict({"a": arange(0, 4), "b": arange(0, dtype=torch.int64)}, [0])
    yield "paddings", TensorDict({f"u{n}": arange(n, dtype=torch.uint8) for n in (1, 3, 8, 5)} | {"f": arange(2)})
    yield "names of entries", TensorDict(
        {"": arange(1), ".": arange(1), "a.b": arange(1), "leaves": arange(1), "sp ace": arange(1), "q\"\\\n": arange(1)}
        | {"gr\u00fc\u00df \u65e5\u672c": {"\U0001f980": arange(2)}}
    )
    yield "values", TensorDict(VALUES)
    yield "values and tensors", TensorDict({"a": arange(2), "s": "hello", "n": {"t": "there", "b": arange(2)}}, [2])
    yield "another value", TensorDict({"a": arange(2), "s": "goodbye", "n": {"t": "there", "b": arange(2)}}, [2])
    yield "value stack", TensorDict({"s": NonTensorStack("a", "b", "c"), "a": arange(3)}, [3])
    yield "order", TensorDict({"z": arange(3), "a": arange(3), "m": {"y": arange(2), "x": arange(1)}})
    yield "other order", TensorDict({"a": arange(3), "z": arange(3), "m": {"x": arange(1), "y": arange(2)}})
    yield "strided", TensorDict({"t": arange(3, 4).t(), "s": arange(8)[::2], "e": arange(1).expand(5)})
    yield "many", TensorDict({f"leaf {n}": arange(n % 7, start=n) for n in range(200)})
    deep = TensorDict({"bottom": arange(1)})
    for level in range(20):
        deep = TensorDict({f"level {level}": deep})
    yield "deep", deep
    # Back and forth between schemas of the same size, and of growing ones.
    for turn in range(6):
        yield f"turn {turn}", TensorDict({"a": arange(4, start=turn, dtype=(torch.float32, torch.int32)[turn % 2])})
    for power in (3, 7, 12, 16, 13, 20, 23):
        yield f"2^{power} bytes", TensorDict({"a": arange(1 << power, start=power, dtype=torch.uint8)})


def consolidated_only():
    yield "names", TensorDict({"a": arange(3, 4), "n": TensorDict({"b": arange(3)}, [3])}, [3], names=["time"])
    yield "some names", TensorDict({"a": arange(3, 4)}, [3, 4], names=[None, "x"])
    yield "locked", TensorDict({"a": arange(3), "n": {"b": arange(3)}}, [3]).lock_()
    yield "unlocked", TensorDict({"a": arange(3), "n": {"b": arange(3)}}, [3])
    yield "device", TensorDict({"a": arange(3), "s": "x", "n": {"b": arange(3)}}, [3], device="cpu")
    yield "empty nested", TensorDict({"n": TensorDict({"m": TensorDict({})}), "a": arange(2), "o": TensorDict({})})
    yield "nested only", TensorDict({"n": TensorDict({}, [3])}, [3])
    yield "batch of a value", TensorDict({"s": NonTensorData("x", batch_size=[3, 4]), "t": "y"}, [3])
    yield "stack of stacks", TensorDict({"s": NonTensorStack(NonTensorStack("a", "b"), NonTensorStack("c", None))}, [2])
    yield "value stack at root", NonTensorStack("x", "y")
    yield "stack dim 1", torch.stack([TensorDict({"s": NonTensorStack("a", "b", "c")}, [3])] * 2, 1)
    yield "lazy", lazy_stack(LAZY)
    yield "lazy nested", TensorDict({"first": arange(1), "l": lazy_stack(LAZY), "last": arange(1)})
    yield "lazy of lazy", lazy_stack([lazy_stack([TensorDict({"a": arange(n)}) for n in (1, 2)]) for _ in range(2)], 1)
    yield "lazy twelve", lazy_stack([TensorDict({"a": arange(1, start=n)}) for n in range(12)])
    two = [TensorDict({"a": arange(2, 3, start=n)}, [2], names=["x"]) for n in (0, 10)]
    yield "lazy named", LazyStackedTensorDict(*two, stack_dim=1, stack_dim_name="time").lock_()
    yield "jagged", TensorDict({"j": jagged()}, [2])
    yield "jagged with lengths", TensorDict({"k": arange(2), "j": jagged(torch.tensor([2, 5]))}, [2])
    rows = [arange(2, 3, n) for n in (1, 2, 3)]
    yield "ragged last", TensorDict({"j": torch.nested.nested_tensor(rows, layout=torch.jagged)}, [3])


def leaves_only():
    yield "float8", TensorDict(dict(float8_dtypes()))
    yield "unbatched", TensorDict({"a": arange(3), "u": UnbatchedTensor(arange(7))}, [3])


@tensorclass
class Class:
    x: torch.Tensor


def foreign():
    """What exists in Python alone: name, TensorDict, and what becomes of it in a pipe and leaf by leaf: SENT, or how many
    messages leave before it raises. (A stateless function sends no flag, and is otherwise as the pipe.)"""
    identity = torch.eye(4)
    sub = TensorDict({"a": arange(4)}, [4])._get_sub_tensordict(slice(1, 3))
    params = TensorDictParams(TensorDict({"x": arange(3)}))
    yield "conjugated", TensorDict({"x": torch.tensor([1 + 2j, 3j, 4j]).conj()}), 0, 2
    yield "sparse", TensorDict({"x": identity.to_sparse()}), 0, 2
    for layout in "csr", "csc":
        yield layout, TensorDict({"x": getattr(identity, f"to_sparse_{layout}")()}), 0, 2
    yield "bsr", TensorDict({"x": identity.to_sparse_bsr(2)}), 0, 2
    yield "meta", TensorDict({"x": torch.empty(3, device="meta")}), 3, 2
    yield "strided nested", TensorDict({"x": torch.nested.nested_tensor([arange(2), arange(3)])}), 0, 0
    yield "tensorclass", TensorDict({"c": Class(x=arange(3), batch_size=[3])}, [3]), 0, SENT
    yield "tensorclass at root", Class(x=arange(3), batch_size=[3]), SENT, SENT
    yield "params", TensorDict({"c": params}), 0, SENT
    yield "params at root", params, 0, SENT
    yield "sub", TensorDict({"c": sub}, [2]), 0, SENT
    yield "sub at root", sub, 0, SENT
    yield "tuple", TensorDict({"v": NonTensorData((1, (2,)))}), SENT, 0
    yield "numbers as keys", TensorDict({"v": NonTensorData({1: "a", 2.5: "b", False: "c"})}), SENT, 0
    yield "tuples as keys", TensorDict({"v": NonTensorData({(1,): "a"})}), 0, 0
    for name, value in ("bytes", b"x"), ("object", object()), ("set", {1}):
        yield name, TensorDict({"v": NonTensorData(value)}), 0, 0


SENT = None


def catalogue(options):
    for source in common, leaves_only if options.leaves else consolidated_only:
        yield from ((name, td) for name, td in source() if options.only is None or name in options.only)
    yield "last", TensorDict({"done": torch.tensor([True])})


def steady(count):
    """Messages of one structure whose numbers all depend on the step."""
    for step in range(count):
        yield f"step {step}", TensorDict(
            {
                "frame": torch.full((4, 9), step % 251, dtype=torch.uint8),
                "obs": arange(4, 21, start=step),
                "step": torch.full((4,), step),
                "next": TensorDict({"reward": torch.full((4, 1), step / 8, dtype=torch.float64)}, [4]),
            },
            [4],
        )


# The channel


class Ended(Exception):
    """The other side has closed where a message could begin."""


class Endpoint:
    """ucxx's endpoint, with the number of messages sent, and of those received since it was last asked for."""

    def __init__(self, endpoint):
        self.inner, self.received, self.sent = endpoint, 0, 0

    async def send(self, data):
        await self.inner.send(data)
        self.sent += 1

    async def recv(self, data):
        await self.inner.recv(data)
        self.received += 1

    async def close(self):
        await self.inner.close()


class Stateless:
    """send_tensordict and recv_tensordict with the face of a pipe."""

    def __init__(self, endpoint, consolidated, listener=None):
        self._endpoint, self._consolidated, self._listener = endpoint, consolidated, listener

    async def asend(self, td):
        await send_tensordict(self._endpoint, td, consolidated=self._consolidated)

    async def arecv(self):
        return await recv_tensordict(self._endpoint, consolidated=self._consolidated)

    async def aclose(self):
        if self._listener is not None:
            self._listener.close()
        await self._endpoint.close()

    @classmethod
    async def connect(cls, host, port, consolidated):
        return cls(await ucxx.create_endpoint(host, port), consolidated)

    @classmethod
    async def listen(cls, port, consolidated):
        arrived = asyncio.get_running_loop().create_future()

        async def on_connect(endpoint):
            arrived.set_result(endpoint)

        listener = ucxx.create_listener(on_connect, port=port)
        return cls(await arrived, consolidated, listener)


class Channel:
    """A pipe that knows where messages begin."""

    def __init__(self, pipe, consolidated):
        self.pipe, self.consolidated = pipe, consolidated
        self.endpoint = pipe._endpoint = Endpoint(pipe._endpoint)
        self.parts = 0

    async def send(self, td):
        await self.pipe.asend(packed(td) if self.consolidated else td)

    async def recv(self):
        self.endpoint.received = 0
        try:
            td = await self.pipe.arecv()
        except ucxx.exceptions.UCXError as error:
            if self.endpoint.received == 0:
                raise Ended from error
            raise
        self.parts = self.endpoint.received
        return td

    async def end(self):
        """Waits for the other side to close."""
        try:
            await self.recv()
        except Ended:
            return
        raise SystemExit("a message came where the end was due")

    async def close(self):
        await self.pipe.aclose()


def packed(td):
    # The pipe does the same, but first asks every tensor for its device, which stacks of unequal shapes refuse.
    return td if td.is_consolidated() else td.consolidate(metadata=True, device=torch.device("cpu"))


class Memory:
    """An endpoint that ends in itself."""

    def __init__(self):
        self.messages = []

    async def send(self, data):
        self.messages.append(bytes(memoryview(data).cast("B")) if data.size else b"")

    async def recv(self, data):
        message = self.messages.pop(0)
        assert len(message) == data.nbytes
        if data.size:
            data[...] = memoryview(message)

    async def close(self):
        pass


async def received(td, consolidated):
    """What Python itself receives when it sends `td`: the wire does not carry all of it."""
    pipe = TensorDictPipe(Memory(), consolidated=consolidated)
    await pipe.asend(packed(td) if consolidated else td)
    td = await pipe.arecv()
    await pipe.aclose()
    return td


async def open_channel(options):
    kind = Stateless if options.stateless else TensorDictPipe
    consolidated = not options.leaves
    if options.listen is not None:
        say("listening")
        return Channel(await kind.listen(options.listen, consolidated=consolidated), consolidated)
    host, port = options.connect.rsplit(":", 1)
    deadline = time.monotonic() + 10
    while True:
        try:
            return Channel(await kind.connect(host, int(port), consolidated=consolidated), consolidated)
        except (ucxx.exceptions.UCXError, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"no connection to {options.connect}: {error!r}")
            await asyncio.sleep(0.1)


# The roles


async def echo(channel, options):
    count = 0
    try:
        while True:
            await channel.send(await channel.recv())
            count += 1
    except Ended:
        say(f"echoed {count}")
    await channel.close()


async def drive(channel, options):
    consolidated = channel.consolidated
    for name, td in catalogue(options):
        await channel.send(td)
        compare(name, await received(td, consolidated), await channel.recv())
    parts = set()
    for name, td in steady(options.steady):
        await channel.send(td)
        compare(name, await received(td, consolidated), await channel.recv())
        parts.add(channel.parts)
        if name == "step 0":
            parts.clear()
    if consolidated and not options.stateless and options.steady > 1 and parts != {2}:
        raise SystemExit(f"in the steady state an echo took {sorted(parts)} messages, not 2")
    await channel.close()
    say(f"{len(list(catalogue(options)))} TensorDicts and {options.steady} steps came back equal")


async def send(channel, options, first=0):
    number = first - 1
    for source in catalogue(options), steady(options.steady):
        for _, td in source:
            number += 1
            await channel.send(td)
            show(number, await received(td, channel.consolidated))
    if options.linger:
        await channel.end()
    await channel.close()
    print("end")
    say(f"sent {number + 1}")


async def outcome(channel, td):
    """SENT, or how many messages left before it raised."""
    before = channel.endpoint.sent
    try:
        await channel.pipe.asend(td)
    except (TypeError, ValueError, RuntimeError) as error:
        say(f"{type(error).__name__}: {error}")
        return channel.endpoint.sent - before
    return SENT


async def send_foreign(channel, options):
    number = 0
    for name, td, *expected in foreign():
        expected = expected[options.leaves]
        pipe = channel
        if expected:  # The pipe would be of no use any more.
            pipe = Channel(type(channel.pipe)(Memory(), consolidated=channel.consolidated), channel.consolidated)
            expected -= options.stateless and not options.leaves
        found = await outcome(pipe, td)
        if found != expected:
            raise SystemExit(f"{name}: {found}, not {expected}")
        if found is SENT:
            show(number, await received(td, channel.consolidated))
            number += 1
    options.only = []
    await send(channel, options, number)


async def torn(channel, options):
    td = next(td for name, td, *_ in foreign() if name in options.only)
    if not await outcome(channel, td):
        raise SystemExit("not in the middle of a message")
    await channel.send(note(0, 0))
    await channel.end()
    await channel.close()


async def recv(channel, options):
    number = 0
    try:
        while options.count is None or number < options.count:
            show(number, await channel.recv())
            number += 1
    except Ended:
        if options.count is not None:
            raise
    await channel.close()
    print("end")
    say(f"received {number}")


async def serve(options):
    server = TensorDictServer(options.listen, consolidated=not options.leaves)
    left = 0

    async def client(pipe):
        nonlocal left
        try:
            await echo(Channel(pipe, not options.leaves), options)
        finally:
            left += 1
            if left == options.clients:
                server.close()

    say("listening")
    await server.serve(client)
    say(f"{left} clients have left")


async def second(channel, options):
    host, port = options.connect.rsplit(":", 1)
    for _ in range(8):
        try:
            await TensorDictPipe.connect(host, int(port))
        except TimeoutError as error:
            say(f"again: {error!r}")
        except ucxx.exceptions.UCXError as error:
            say(f"refused: {error!r}")
            break
        else:
            raise SystemExit("the second pipe is connected")
    else:
        raise SystemExit("the second pipe is not refused")
    await channel.send(note(0, 0))
    compare("the echo", note(0, 0), await channel.recv())
    await channel.close()


async def crowd(options):
    async def client(number):
        channel = await open_channel(options)
        await channel.send(note(number, 0))
        await channel.recv()
        for sequence in range(1, options.steady + 1):
            await channel.send(note(number, sequence))
        await channel.recv()
        await channel.close()

    await asyncio.gather(*(client(options.first + pipe) for pipe in range(options.clients)))
    say(f"{options.clients} pipes have sent all")


def note(client, sequence):
    """A message of a crowd, whose every number depends on both; now and then a large one."""
    length = 20_000 if sequence % 10 == 9 else 4
    x = torch.full((length,), client << 32 | sequence)
    return TensorDict({"client": torch.tensor([client]), "sequence": torch.tensor([sequence]), "x": x})


def show(number, td):
    print(f"message {number}", *dump(td), sep="\n")


def compare(name, expected, got):
    expected, got = list(dump(expected, whole=True)), list(dump(got, whole=True))
    if expected != got:
        say(f"{name}: the echo differs", "expected:", *expected, "got:", *got, sep="\n")
        raise SystemExit(2)


def say(*parts, **how):
    print(*parts, file=sys.stderr, flush=True, **how)


def watchdog(seconds):
    """Ends the process with status 3 when it has run for so long."""

    def give_up():
        say(f"gave up after {seconds} seconds")
        faulthandler.dump_traceback()
        os._exit(3)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()


def main():
    parser = argparse.ArgumentParser(usage="peer.py ROLE (--connect HOST:PORT | --listen PORT) [OPTIONS]")
    parser.add_argument("role", choices=["echo", "drive", "send", "recv", "serve", "second", "foreign", "torn", "crowd", "cases"])
    parser.add_argument("--connect")
    parser.add_argument("--listen", type=int)
    parser.add_argument("--leaves", action="store_true")
    parser.add_argument("--stateless", action="store_true")
    parser.add_argument("--only", type=lambda names: names.split(","))
    parser.add_argument("--linger", action="store_true")
    parser.add_argument("--steady", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    if options.steady is None:
        options.steady = 1000 if options.role == "drive" else 0

    if options.role == "cases":
        for number, (name, _) in enumerate(catalogue(options)):
            print(number, name)
        return
    if (options.connect is None) == (options.listen is None):
        parser.error("one of --connect and --listen")

    watchdog(options.seconds)

    async def play():
        if options.role == "serve":
            return await serve(options)
        if options.role == "crowd":
            return await crowd(options)
        channel = await open_channel(options)
        roles = {"echo": echo, "drive": drive, "send": send, "recv": recv, "second": second}
        roles |= {"foreign": send_foreign, "torn": torn}
        await roles[options.role](channel, options)

    asyncio.run(play())


if __name__ == "__main__":
    main()
