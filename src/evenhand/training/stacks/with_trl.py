"""Trains with TRL on the files beside this one: `config.yaml` names the algorithm, the model and TRL's settings."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Train, and save the model."""
    datasets, trl, yaml = (importlib.import_module(name) for name in ("datasets", "trl", "yaml"))
    about: Any = yaml.safe_load((HERE / "config.yaml").read_text(encoding="utf-8"))
    rows: Any = datasets.load_dataset("json", data_files=str(HERE / "train.jsonl"), split="train")
    name = {"grpo": "GRPO", "rloo": "RLOO", "dpo": "DPO"}[about["algorithm"]]
    options: dict[str, Any] = {}
    if name != "DPO":
        sys.path.insert(0, str(HERE))
        options["reward_funcs"] = importlib.import_module("reward").reward
    config: Any = getattr(trl, f"{name}Config")(**about["config"])
    trainer: Any = getattr(trl, f"{name}Trainer")(model=about["model"], args=config, train_dataset=rows, **options)
    trainer.train()
    trainer.save_model(about["config"]["output_dir"])


if __name__ == "__main__":
    main()
