"""Makes the golden files beside it, with the real Python package.

    pip install tensordict==0.15.3 torch numpy ucxx-cu13
    python tests/golden/make.py

A case is what one send puts on the wire, taken from a `TensorDictPipe` with an endpoint that only records, and what the
Python receiver makes of it:

    consolidated/NAME.metadata.json   the metadata, to the byte
    consolidated/NAME.storage.bin     the storage
    leaves/NAME.header.json           consolidated=False: the header
    leaves/NAME.bodies.bin            the tensors' bytes one after the other
    .../NAME.expected.json            the values, as `describe` writes them; absent where Rust cannot hold them
    stream.json                       the messages of a few sends in a row, with schema changes

Tensors are deterministic, so a second run with the same versions changes nothing.
"""

import asyncio
import json
import math
import struct
import tempfile
import warnings
from pathlib import Path

import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, UnbatchedTensor, lazy_stack, tensorclass
from tensordict._ucxx import TensorDictPipe, recv_tensordict, send_tensordict

HERE = Path(__file__).parent


class Recorder:
    """An endpoint that keeps what is sent, and plays it back."""

    def __init__(self):
        self.messages = []

    async def send(self, array):
        self.messages.append(bytes(memoryview(array).cast("B")) if array.size else b"")

    async def recv(self, array):
        message = self.messages.pop(0)
        assert len(message) == array.nbytes, (len(message), array.nbytes)
        if array.size:
            array[...] = memoryview(message)

    async def close(self):
        pass


def tensor(tensor):
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "bytes": data.hex()}


def value(value):
    """A JSON value with its type spelt out, so that no reader can get it almost right."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return {"int": str(value)}
    if isinstance(value, float):
        return {"float": "nan" if math.isnan(value) else struct.pack(">d", value).hex()}
    if isinstance(value, str):
        return {"str": value}
    if isinstance(value, list):
        return {"list": [globals()["value"](item) for item in value]}
    return {"map": [[key, globals()["value"](item)] for key, item in value.items()]}


def describe(entry):
    if isinstance(entry, UnbatchedTensor):
        return {"kind": "unbatched", **tensor(entry.data)}
    if isinstance(entry, torch.Tensor) and entry.is_nested:
        lengths = entry._lengths
        return {
            "kind": "jagged",
            "values": tensor(entry._values),
            "offsets": tensor(entry._offsets),
            "lengths": None if lengths is None else tensor(lengths),
            "ragged": entry._ragged_idx,
        }
    if isinstance(entry, torch.Tensor):
        return {"kind": "tensor", **tensor(entry)}
    if isinstance(entry, NonTensorData):
        return {
            "kind": "value",
            "value": value(entry.data),
            "batch_size": list(entry.batch_size),
            "device": None if entry.device is None else str(entry.device),
        }
    if isinstance(entry, LazyStackedTensorDict):
        return {
            "kind": "non-tensor stack" if isinstance(entry, NonTensorStack) else "lazy stack",
            "stack_dim": entry.stack_dim,
            "name": entry._td_dim_name,
            "locked": entry.is_locked,
            "items": [describe(item) for item in entry.tensordicts],
        }
    return {
        "kind": "dict",
        "batch_size": list(entry.batch_size),
        "names": entry.names,
        "device": None if entry.device is None else str(entry.device),
        "locked": entry.is_locked,
        "entries": {key: describe(entry._get_str(key, None)) for key in sorted(entry.keys())},
    }


def send(td, consolidated, pipe=None):
    pipe = pipe or TensorDictPipe(Recorder(), consolidated=consolidated)
    if consolidated:
        # The pipe does the same, but first asks every tensor for its device, which stacks of unequal shapes refuse.
        td = td.consolidate(metadata=True, device=torch.device("cpu"))
    asyncio.run(pipe.asend(td))
    messages, pipe._endpoint.messages = pipe._endpoint.messages, []
    return messages


def receive(messages, consolidated):
    recorder = Recorder()
    recorder.messages = list(messages)
    td = asyncio.run(TensorDictPipe(recorder, consolidated=consolidated).arecv())
    assert not recorder.messages
    return td


def write(folder, name, header, bodies, suffixes, expected):
    base = HERE / folder
    base.mkdir(exist_ok=True)
    (base / f"{name}.{suffixes[0]}.json").write_bytes(header)
    (base / f"{name}.{suffixes[1]}.bin").write_bytes(bodies)
    if expected is not None:
        (base / f"{name}.expected.json").write_text(json.dumps(expected, indent=1, allow_nan=False) + "\n")


def consolidated(name, td, representable=True, stateless=True):
    flag, length, metadata, storage = send(td, True)
    assert flag == b"\x00" and struct.unpack("<Q", length)[0] == len(metadata)
    expected = describe(receive([flag, length, metadata, storage], True)) if representable else None
    # The stateless functions send the same metadata without its last two fields.
    recorder = Recorder()
    asyncio.run(send_tensordict(recorder, td.consolidate(metadata=True, device=torch.device("cpu"))))
    cut = metadata[: metadata.rindex(b', "_total_bytes"')] + b"}"
    assert recorder.messages[1:] == [cut, storage], name
    if representable and stateless:
        assert describe(asyncio.run(recv_tensordict(recorder))) == expected, name
    write("consolidated", name, metadata, storage, ("metadata", "storage"), expected)


def leaves(name, td):
    length, header, *bodies = send(td, False)
    assert struct.unpack("<Q", length)[0] == len(header)
    expected = describe(receive([length, header, *bodies], False))
    write("leaves", name, header, b"".join(bodies), ("header", "bodies"), expected)


def arange(*shape, dtype=torch.float32, start=1):
    return torch.arange(start, start + math.prod(shape)).reshape(shape).to(dtype)


def every_type():
    # First, because Python can pack a complex128 leaf only at a multiple of 16.
    yield "complex128", torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)
    for name in "uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64".split():
        yield name, arange(3, dtype=getattr(torch, name))
    yield "bool", torch.tensor([True, False, True])
    yield "complex32", torch.tensor([1 + 2j, 3 - 4j]).to(torch.complex32)
    yield "complex64", torch.tensor([1 + 2j, 3 - 4j])


def float8s():
    names = [n for n in sorted(vars(torch)) if n.startswith("float8") and isinstance(getattr(torch, n), torch.dtype)]
    for name in names:
        yield name, torch.tensor([0, 1, 127, 255], dtype=torch.uint8).view(getattr(torch, name))


VALUES = {
    "text": "hello",
    "escapes": "quote \" backslash \\ slash / \b\f\n\r\t \x00 \x1f \x7f",
    "unicode": "gr\u00fc\u00df \u65e5\u672c \U0001f980 \u2028",
    "empty": "",
    "nothing": NonTensorData(None),
    "flags": NonTensorData([True, False]),
    "integers": NonTensorData([0, -1, 2**31, 2**63 - 1, -(2**63)]),
    "beyond": NonTensorData([2**63, -(2**63) - 1, 10**40]),
    "floats": NonTensorData(
        [0.0, -0.0, 1.0, -1.5, 0.1, 1e-4, 1e-5, 123456.789, 1e15, 1e16, 1.5e300, 5e-324, 1.7976931348623157e308, 1 / 3]
    ),
    "special": NonTensorData([math.nan, math.inf, -math.inf]),
    "nested": NonTensorData({"a": [1, {"b": []}], "": {}, "c": None}),
}

JAGGED = torch.nested.nested_tensor_from_jagged


def jagged(dtype=torch.float32, lengths=None):
    return JAGGED(arange(10, dtype=dtype), offsets=torch.tensor([0, 3, 10]), lengths=lengths)


@tensorclass
class Class:
    x: torch.Tensor


def special_tensors():
    """Of which only the values travel."""
    return TensorDict(
        {
            "parameter": torch.nn.Parameter(arange(3)),
            "buffer": torch.nn.Buffer(arange(3)),
            "requires_grad": arange(3).requires_grad_(),
            "negative_view": torch.tensor([1 + 2j, 3 - 4j, 5j]).conj().imag,
            "expanded": arange(1).expand(3),
        },
        [3],
    )


def views():
    """TensorDicts that are views of others."""
    td = TensorDict({"a": arange(2, 3), "n": TensorDict({"b": arange(2, 3)}, [2, 3])}, [2, 3])
    yield "permuted", td.permute(1, 0)
    yield "viewed", td.view(6)
    yield "expanded", td[0].expand(2, 3)


def make_consolidated():
    consolidated("empty", TensorDict({}))
    consolidated("dtypes", TensorDict(dict(every_type())))
    consolidated("padding", TensorDict({f"u{n}": arange(n, dtype=torch.uint8) for n in (1, 3, 8, 5)} | {"f": arange(2)}))
    consolidated(
        "zero_elements",
        TensorDict({"a": arange(0), "b": arange(0, 3), "c": arange(2, 0), "d": arange(3), "e": arange(0)}),
    )
    consolidated("scalars", TensorDict({"a": torch.tensor(1.5), "n": {"b": torch.tensor(7)}}))
    consolidated("batch", TensorDict({"a": arange(3, 4), "n": TensorDict({"r": arange(3, 1)}, [3])}, [3]))
    consolidated("empty_nested", TensorDict({"n": TensorDict({"m": TensorDict({})}), "a": arange(2), "o": TensorDict({})}))
    consolidated("only_empty", TensorDict({"n": TensorDict({}, [3])}, [3]))
    consolidated(
        "order",
        TensorDict(
            {
                "z": arange(3),
                "n": {"b": arange(1), "m": {"y": arange(2), "x": arange(0)}, "a": arange(1)},
                "a": arange(3, dtype=torch.uint8),
                "s": "value",
                "e": {},
                "m": {"q": torch.tensor(2.0)},
            }
        ),
    )
    consolidated("names", TensorDict({"a": arange(3, 4), "n": TensorDict({"b": arange(3)}, [3])}, [3, 4][:1], names=["time"]))
    consolidated("some_names", TensorDict({"a": arange(3, 4)}, [3, 4], names=[None, "x"]))
    consolidated("locked", TensorDict({"a": arange(3), "n": {"b": arange(3)}}, [3]).lock_())
    consolidated("device", TensorDict({"a": arange(3), "s": "x", "n": {"b": arange(3)}}, [3], device="cpu"))
    consolidated("values", TensorDict(VALUES))
    consolidated("values_batch", TensorDict({"s": NonTensorData("x", batch_size=[3, 4]), "t": "y"}, [3]))
    consolidated("values_device", TensorDict({"s": NonTensorData("x", device="cpu"), "a": arange(2)}))
    consolidated("stack_of_values", TensorDict({"s": NonTensorStack("a", "b", "c"), "a": arange(3)}, [3], names=["t"]))
    consolidated("stack_of_equal_values", TensorDict({"s": NonTensorStack(1, 1)}, [2], device="cpu").lock_())
    consolidated(
        "stack_of_stacks",
        TensorDict({"s": NonTensorStack(NonTensorStack("a", "b"), NonTensorStack("c", None))}, [2]),
    )
    consolidated("stack_dim_1", torch.stack([TensorDict({"s": NonTensorStack("a", "b", "c")}, [3])] * 2, 1))
    consolidated(
        "stack_of_batches",
        TensorDict({"s": NonTensorStack(NonTensorData("a", batch_size=[2]), NonTensorData("b", batch_size=[2]))}, [2]),
    )
    consolidated(
        "stack_mixed",
        TensorDict({"s": NonTensorStack(NonTensorStack("a", "b"), NonTensorData("c", batch_size=[2]))}, [2]),
    )
    consolidated("stack_at_root", NonTensorStack("x", "y"))
    lazy = lazy_stack([TensorDict({"a": arange(2), "s": "p"}), TensorDict({"a": arange(3), "b": arange(1)})])
    consolidated("lazy", lazy)
    consolidated("lazy_nested", TensorDict({"first": arange(1), "l": lazy, "last": arange(1)}))
    consolidated("lazy_of_lazy", lazy_stack([lazy_stack([TensorDict({"a": arange(n)}) for n in (1, 2)]) for _ in range(2)], 1))
    consolidated("lazy_twelve", lazy_stack([TensorDict({"a": arange(1, start=n)}) for n in range(12)]))
    two = [TensorDict({"a": arange(2, 3, start=n)}, [2], names=["x"]) for n in (0, 10)]
    consolidated("lazy_named", LazyStackedTensorDict(*two, stack_dim=1, stack_dim_name="time").lock_())
    consolidated("lazy_empty", TensorDict({"l": LazyStackedTensorDict(stack_dim=0)}))
    consolidated("jagged", TensorDict({"k": jagged()}, [2]))
    consolidated("jagged_lengths", TensorDict({"k": jagged(lengths=torch.tensor([2, 5]))}, [2]))
    ragged_last = torch.nested.nested_tensor([arange(2, 3, n) for n in (1, 2, 3)], layout=torch.jagged)
    consolidated("jagged_last_dim", TensorDict({"k": ragged_last}, [3]))
    consolidated(
        "jagged_among_others",
        TensorDict(
            {"a": arange(2), "j": jagged(torch.float16), "n": {"k": jagged(lengths=torch.tensor([1, 1]))}, "z": arange(2)}, [2]
        ),
    )
    reserved = "cls leaves non_tensors cls_metadata size _total_bytes _device".split()
    # `recv_tensordict` takes tensors (or values) called both "cls" and "leaves" for a TensorDict, and fails.
    consolidated("reserved_as_leaves", TensorDict({name: arange(1) for name in reserved}), stateless=False)
    consolidated("reserved_as_values", TensorDict({name: "x" for name in reserved}), stateless=False)
    consolidated("reserved_deep", TensorDict({"x": {"_total_bytes": {"a": arange(1)}, "_device": {"b": arange(1)}}}))
    odd = ["", " ", "a.b", "<x", "<NJT", "0", "\u00fc", "\U0001f980", 'q"\\', "\n"]
    consolidated("odd_keys", TensorDict({name: arange(1) for name in odd} | {"n": {name: {"": arange(1)} for name in odd}}))
    consolidated("special_tensors", special_tensors())
    consolidated("tensorclass", Class(x=arange(3), batch_size=[3]))
    consolidated("shared", TensorDict({"a": arange(3)}, [3]).share_memory_())
    with tempfile.TemporaryDirectory() as folder:
        consolidated("memory_mapped", TensorDict({"a": arange(3)}, [3]).memmap(folder))
    for name, td in views():
        consolidated(name, td)
    consolidated("surrogate_in_value", TensorDict({"s": "lone \ud800", "a": arange(2)}), representable=False)
    consolidated("surrogate_in_key", TensorDict({"k\udfff": arange(2)}), representable=False)


def make_leaves():
    leaves("empty", TensorDict({}))
    leaves("dtypes", TensorDict(dict(every_type()) | dict(float8s())))
    leaves("nested", TensorDict({"n": {"r": arange(3, 1), "m": {"x": arange(3)}}, "a": arange(3, 4)}, [3]))
    leaves("order", TensorDict({"b": arange(1), "a": {"z": arange(1), "a": arange(1)}, "B": arange(1), "a.b": arange(1), "": arange(1)}))
    leaves("zero_elements", TensorDict({"a": arange(0), "b": arange(2, 0), "c": torch.tensor(1.0)}))
    leaves("values", TensorDict(VALUES))
    leaves("values_nested", TensorDict({"s": "hello", "n": {"t": "x", "a": arange(3)}, "a": arange(3)}, [3]))
    leaves("stacks", TensorDict({"t": NonTensorStack("a", "b", "c"), "n": {"u": NonTensorStack(1, 2, 3)}}, [3]))
    leaves("stack_dim_1", torch.stack([TensorDict({"s": NonTensorStack("a", "b", "c")}, [3])] * 2, 1))
    leaves("stack_of_stacks", TensorDict({"s": NonTensorStack(NonTensorStack("a", "b"), NonTensorStack("c", None))}, [2]))
    leaves("special_tensors", special_tensors())
    leaves("tensorclass", TensorDict({"c": Class(x=arange(3), batch_size=[3])}, [3]))
    leaves("shared", TensorDict({"a": arange(3)}, [3]).share_memory_())
    with tempfile.TemporaryDirectory() as folder:
        leaves("memory_mapped", TensorDict({"a": arange(3)}, [3]).memmap(folder))
    leaves("sub", TensorDict({"a": arange(4)}, [4])._get_sub_tensordict(slice(1, 3)))
    for name, td in views():
        leaves(name, td)
    leaves("unbatched", TensorDict({"a": arange(3), "n": {"u": UnbatchedTensor(arange(2))}, "v": UnbatchedTensor(arange(5))}, [3]))


def make_stream():
    """Same schema, other values, then other schemas and back."""
    a = [TensorDict({"x": arange(3, start=start), "s": "text"}, [3]) for start in (1, 10)]
    b = TensorDict({"x": arange(5), "s": "text"}, [5])
    pipe = TensorDictPipe(Recorder(), consolidated=True)
    sends = [a[0], a[1], b, b, a[0], TensorDict({}), TensorDict({}), TensorDict(a[0]).lock_(), a[0]]
    log = [[message.hex() for message in send(td, True, pipe)] for td in sends]
    (HERE / "stream.json").write_text(json.dumps(log, indent=1) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    make_consolidated()
    make_leaves()
    make_stream()
