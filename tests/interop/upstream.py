"""Python's halves of the cases that `upstream.txt` lists as `both`, under the names that they have in tensordict's tests.

    upstream.py (--connect HOST:PORT | --listen PORT) --case NAME [--seconds N]

As there, who connects sends and who listens receives; who sends then stays until the receiver has left. Where the
original looks at what a fake endpoint has recorded, this looks at what went over the real one. Random numbers have become
counted ones, which both halves know.
"""

import argparse
import asyncio
import json
import struct

import torch
import ucxx
from peer import arange, open_channel, say, watchdog
from tensordict import TensorDict
from tensordict._ucxx import TensorDictServer


class Recorder:
    """ucxx's endpoint, with the messages that went over it."""

    def __init__(self, endpoint):
        self.inner, self.messages = endpoint, []

    async def send(self, data):
        await self.inner.send(data)
        self.messages.append(bytes(data))

    async def recv(self, data):
        await self.inner.recv(data)
        self.messages.append(bytes(data))

    async def close(self):
        await self.inner.close()


async def open_pipe(options):
    pipe = (await open_channel(options)).pipe
    pipe._endpoint = Recorder(pipe._endpoint)
    return pipe


def taken(pipe):
    """The messages since it was last asked."""
    messages, pipe._endpoint.messages = pipe._endpoint.messages, []
    return messages


async def ended(pipe):
    try:
        await pipe.arecv()
    except ucxx.exceptions.UCXError:
        return
    raise SystemExit("a message came where the end was due")


def check(td, expected):
    assert set(td.keys(True, True)) == set(expected.keys(True, True)), td
    assert td.batch_size == expected.batch_size, td
    for key in expected.keys(True, True):
        torch.testing.assert_close(td[key], expected[key])


def batch():
    return TensorDict({"a": arange(3, 4), "b": arange(3, 2)}, batch_size=[3])


def four(**numbers):
    return TensorDict({name: torch.full((4,), number) for name, number in numbers.items()}, batch_size=[4])


class TestProtocolConsolidated:
    def first_send_includes_metadata(messages):
        flag, length, metadata, _storage = messages
        assert flag == b"\x00"
        assert struct.unpack("<Q", length)[0] == len(metadata) > 0
        assert "_total_bytes" in json.loads(metadata)

    async def send_test_first_send_includes_metadata(pipe):
        await pipe.asend(batch())
        TestProtocolConsolidated.first_send_includes_metadata(taken(pipe))

    async def recv_test_first_send_includes_metadata(pipe):
        check(await pipe.arecv(), batch())
        TestProtocolConsolidated.first_send_includes_metadata(taken(pipe))

    def second_send_same_schema_skips_metadata(messages):
        assert len(messages) == 2 and messages[0] == b"\x01", messages

    async def send_test_second_send_same_schema_skips_metadata(pipe):
        await pipe.asend(batch())
        taken(pipe)
        await pipe.asend(batch())
        TestProtocolConsolidated.second_send_same_schema_skips_metadata(taken(pipe))

    async def recv_test_second_send_same_schema_skips_metadata(pipe):
        await pipe.arecv()
        taken(pipe)
        check(await pipe.arecv(), batch())
        TestProtocolConsolidated.second_send_same_schema_skips_metadata(taken(pipe))

    def other():
        return TensorDict({"x": arange(5)}, batch_size=[5])

    def schema_change_resends_metadata(messages):
        assert len(messages) == 4 and messages[0] == b"\x00", messages

    async def send_test_schema_change_resends_metadata(pipe):
        await pipe.asend(batch())
        taken(pipe)
        await pipe.asend(TestProtocolConsolidated.other())
        TestProtocolConsolidated.schema_change_resends_metadata(taken(pipe))

    async def recv_test_schema_change_resends_metadata(pipe):
        await pipe.arecv()
        taken(pipe)
        check(await pipe.arecv(), TestProtocolConsolidated.other())
        TestProtocolConsolidated.schema_change_resends_metadata(taken(pipe))


class TestRoundtrip:
    async def send_test_consolidated_roundtrip(pipe):
        await pipe.asend(batch())

    async def recv_test_consolidated_roundtrip(pipe):
        check(await pipe.arecv(), batch())

    async def send_test_consolidated_steady_state_inplace(pipe):
        await pipe.asend(four(a=1.0, b=0.0))
        await pipe.asend(four(a=42.0, b=99.0))

    async def recv_test_consolidated_steady_state_inplace(pipe):
        td = await pipe.arecv()
        check(td, four(a=1.0, b=0.0))
        assert await pipe.arecv(td) is td
        check(td, four(a=42.0, b=99.0))

    def nested():
        return TensorDict(
            {"obs": arange(2, 3), "info": TensorDict({"reward": torch.tensor([1.0, 2.0])}, batch_size=[2])},
            batch_size=[2],
        )

    async def send_test_nested_tensordict_roundtrip(pipe):
        await pipe.asend(TestRoundtrip.nested())

    async def recv_test_nested_tensordict_roundtrip(pipe):
        check(await pipe.arecv(), TestRoundtrip.nested())


class TestTensorDictSendRecvOverload:
    # Not coroutines: these block, each in an event loop of its own.
    def send_test_send_dispatches_to_pipe(pipe):
        four(a=3.0).send(pipe)
        assert taken(pipe)[0] == b"\x00"

    async def recv_test_send_dispatches_to_pipe(pipe):
        check(await pipe.arecv(), four(a=3.0))
        assert taken(pipe)[0] == b"\x00"

    def send_test_recv_dispatches_to_pipe(pipe):
        pipe.send(four(a=3.0))

    def recv_test_recv_dispatches_to_pipe(pipe):
        check(four(a=0.0).recv(pipe), four(a=3.0))


class TestUCXXIntegration:
    def two():
        return TensorDict({"x": arange(10), "y": arange(5, 3)}, batch_size=[])

    async def send_test_pipe_connect_listen(pipe):
        await pipe.asend(TestUCXXIntegration.two())

    async def recv_test_pipe_connect_listen(pipe):
        check(await pipe.arecv(), TestUCXXIntegration.two())

    def eight(number):
        return TensorDict({"v": torch.full((8,), number)}, batch_size=[8])

    async def send_test_pipe_steady_state(pipe):
        await pipe.asend(TestUCXXIntegration.eight(1.0))
        await pipe.asend(TestUCXXIntegration.eight(7.0))

    async def recv_test_pipe_steady_state(pipe):
        td = await pipe.arecv()
        check(td, TestUCXXIntegration.eight(1.0))
        assert await pipe.arecv() is td
        check(td, TestUCXXIntegration.eight(7.0))

    def three():
        return TensorDict({"a": torch.tensor([1.0, 2.0, 3.0])}, batch_size=[3])

    async def send_test_context_manager(pipe):
        async with pipe:
            await pipe.asend(TestUCXXIntegration.three())
            await ended(pipe)
        assert pipe.closed

    async def recv_test_context_manager(pipe):
        async with pipe:
            check(await pipe.arecv(), TestUCXXIntegration.three())
        assert pipe.closed

    async def send_test_td_send_recv_overload(pipe):
        await four(a=5.0).asend(pipe)

    async def recv_test_td_send_recv_overload(pipe):
        check(await TensorDict({}, []).arecv(pipe), four(a=5.0))


class TestTensorDictServer:
    async def connect_test_serve_multiple_clients(options):
        pipes = [await open_pipe(options) for _ in range(2)]
        for number, pipe in enumerate(pipes):
            await pipe.asend(TensorDict({"a": torch.tensor([number + 1.0])}, batch_size=[]))
        for pipe in pipes:
            await ended(pipe)
            await pipe.aclose()

    async def listen_test_serve_multiple_clients(options):
        server = TensorDictServer(options.listen)
        received = []

        async def handler(pipe):
            received.append((await pipe.arecv())["a"].item())
            if len(received) == 2:
                server.close()

        say("listening")
        await server.serve(handler)
        assert sorted(received) == [1.0, 2.0], received


def play(options):
    group, case = options.case.split("::")
    group = globals()[group]
    sends = options.connect is not None
    # A case that is about more than one pipe opens them itself.
    whole = getattr(group, f"{'connect' if sends else 'listen'}_{case}", None)
    if whole:
        return asyncio.run(whole(options))
    half = getattr(group, f"{'send' if sends else 'recv'}_{case}")
    loop = asyncio.new_event_loop()
    pipe = loop.run_until_complete(open_pipe(options))
    done = half(pipe)
    if asyncio.iscoroutine(done):
        loop.run_until_complete(done)
    if not pipe.closed:
        if sends:
            loop.run_until_complete(ended(pipe))
        loop.run_until_complete(pipe.aclose())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--connect")
    parser.add_argument("--listen", type=int)
    parser.add_argument("--case", required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.set_defaults(leaves=False, stateless=False)
    options = parser.parse_args()
    watchdog(options.seconds)
    play(options)


if __name__ == "__main__":
    main()
