"""Loads the safetensors files that the test `python_loads_what_was_saved` wrote into a folder, with the code in the docs,
and compares them with the golden files. Then writes one for Rust to load."""

import json
import runpy
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
root = Path(__file__).resolve().parents[2]
load_tensordict = runpy.run_path(str(root / "src/interop/safetensors.py"))["load_tensordict"]
describe = runpy.run_path(str(root / "tests/golden/make.py"))["describe"]

folder = Path(sys.argv[1])
wrong, right = 0, 0
for file in sorted(folder.glob("*.safetensors")):
    td = load_tensordict(file)
    if file.stem == "rust":
        assert td["tokens"].is_nested and [row.tolist() for row in td["tokens"].unbind()] == [[[1, 2]], [[3, 4], [5, 6]]]
        assert td.get("w").tolist() == [1, 2, 3] and td.batch_size == (2,)
        continue
    expected = json.loads((root / f"tests/golden/consolidated/{file.stem}.expected.json").read_text())
    if describe(td) == expected:
        right += 1
    else:
        wrong += 1
        print(f"{file.stem}: {describe(td)}, not {expected}")
save_file({"layer.weight": torch.arange(4.0)}, folder / "python.safetensors")
print(f"{right} as expected, {wrong} not")
sys.exit(wrong > 0)
