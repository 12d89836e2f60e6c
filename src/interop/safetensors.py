import json, torch
from safetensors import safe_open
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, UnbatchedTensor


def load_tensordict(path):
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        return build(json.loads(file.metadata()["tensordict"]), tensors)


def build(node, tensors):
    if isinstance(node, str):
        return tensors[node]
    if "value" in node:
        return NonTensorData(node["value"], batch_size=node["batch_size"], device=node.get("device"))
    if "unbatched" in node:
        return UnbatchedTensor(tensors[node["unbatched"]])
    if "jagged" in node:
        values, offsets, lengths = (name and tensors[name] for name in node["jagged"])
        return torch.nested.nested_tensor_from_jagged(values, offsets, lengths, node["ragged_index"])
    if "entries" in node:
        td = TensorDict(batch_size=node["batch_size"], names=node.get("names"), device=node.get("device"))
        for name, entry in node["entries"].items():
            td[name] = build(entry, tensors)
    else:
        kind = LazyStackedTensorDict if "lazy_stack" in node else NonTensorStack
        elements = [build(element, tensors) for element in node.get("lazy_stack", node.get("value_stack"))]
        td = kind(*elements, stack_dim=node["dim"], stack_dim_name=node.get("name"))
    return td.lock_() if node.get("locked") else td
