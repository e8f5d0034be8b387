"""The adapter of a training as it was at a checkpoint, as a folder that `run.py` can measure.

    python bench/verifiable/checkpoint.py CHECKPOINT_FOLDER TRAINED_FOLDER OUT

A training keeps its two newest checkpoints and deletes them at the end, so copy `sft/checkpoints/step-…` while it
runs (`--set sft.save_every=40`). The settings and the tokenizer come from the finished folder `sft`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

_KEPT = (
    "adapter_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
)


def main(checkpoint: Path, trained: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for file in (each for pattern in _KEPT for each in trained.glob(pattern)):
        shutil.copy(file, out)
    state = load_file(checkpoint / "state.safetensors")
    wanted = load_file(trained / "adapter_model.safetensors")
    # The checkpoint has the name of the adapter before ".weight", which the saved one has not.
    weights = {
        ".".join([*name.removeprefix("weight/").split(".")[:-2], "weight"]): tensor
        for name, tensor in state.items()
        if name.startswith("weight/")
    }
    if weights.keys() != wanted.keys():
        sys.exit(f"{checkpoint} does not belong to {trained}: {sorted(weights)[:1]} instead of {sorted(wanted)[:1]}.")
    save_file(
        {name: tensor.to(wanted[name].dtype) for name, tensor in weights.items()}, out / "adapter_model.safetensors"
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
