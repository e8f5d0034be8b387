"""The mean of several trainings' adapters, as one adapter that `run.py` can measure.

    python bench/verifiable/average.py OUT TRAINED_FOLDER TRAINED_FOLDER…

The mean of the products B·A is that of stacked matrices: its rank is the sum of theirs, and nothing is approximated.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def main(out: Path, trained: list[Path]) -> None:
    shutil.copytree(trained[0], out, ignore=shutil.ignore_patterns("checkpoints", "*.jsonl", _WEIGHTS))
    config = json.loads((out / _CONFIG).read_text())
    if config["rank_pattern"] or config["alpha_pattern"] or config["use_rslora"] or config["use_dora"]:
        sys.exit("Only ordinary adapters of one rank can be averaged.")
    # Each is scaled by alpha / rank: with the same alpha and the sum of the ranks, a sum becomes a mean.
    config["r"] *= len(trained)
    (out / _CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    parts = [load_file(each / _WEIGHTS) for each in trained]
    stacked = {name: torch.cat([part[name] for part in parts], int(".lora_B." in name)) for name in parts[0]}
    save_file(stacked, out / _WEIGHTS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]])
