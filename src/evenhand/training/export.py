"""The same training in TRL: a folder with the data, the settings, the reward and the command.

Prompts and pairs are those of `evenhand train pairs`, values those of our own options where TRL has them. TRL is not
needed here: its environment may have another version of transformers.
"""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import yaml

from evenhand.core.errors import UsageError
from evenhand.core.files import check_new_folder
from evenhand.training.data import Prompt, find_files, read_pairs, read_prompts
from evenhand.training.options import PPOOptions

TRL_VERSION = "1.16.0"
ALGORITHMS = ("grpo", "rloo", "dpo")
ANSWERS = 4
"""Answers sampled per prompt, where a group is needed."""


def export(
    data: Path, out: Path, *, model: str, reward: Path | None = None, algorithm: str = "grpo", gpus: int = 1
) -> list[str]:
    """Write a folder that trains `model` with TRL; return the names of its files.

    Args:
        data: A folder of `evenhand train pairs`.
        reward: A reward model by `evenhand train reward`; DPO needs none.
    """
    _check(algorithm, reward)
    check_new_folder(out)
    found = find_files(data, "pairs")
    splits = {"train": found.train, **({"test": found.test} if found.test else {})}
    values = PPOOptions(model=model, data=data, out=out, reward=str(reward or ""), algorithm="ppo")
    made = {f"{split}.jsonl": _rows(path, algorithm) for split, path in splits.items()}
    about: dict[str, Any] = {"algorithm": algorithm, "model": model}
    if reward is not None:
        about["reward"] = {"model": str(reward.resolve()), "max_length": values.max_length}
    about["config"] = _config(out.resolve(), values, algorithm, gpus)
    made["config.yaml"] = yaml.safe_dump(about, sort_keys=False).encode()
    made["train.py"] = (files("evenhand.training") / "exported.py").read_bytes()
    made["run.sh"] = _script(out.resolve(), gpus)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        (out / name).write_bytes(content)
    return sorted(made)


def _check(algorithm: str, reward: Path | None) -> None:
    if algorithm not in ALGORITHMS:
        raise UsageError(f"TRL is exported with --algorithm {' or '.join(ALGORITHMS)}, not {algorithm}.")
    if algorithm == "dpo" and reward is not None:
        raise UsageError("DPO learns from the pairs themselves; remove --reward.")
    if algorithm != "dpo" and reward is None:
        raise UsageError(f"{algorithm} needs a reward model: --reward FOLDER, made by `evenhand train reward`.")
    if reward is not None and not (reward / "config.json").is_file():
        raise UsageError(f"{reward} is not a reward model; make one with `evenhand train reward`.")


def _rows(path: Path, algorithm: str) -> bytes:
    if algorithm != "dpo":
        return _lines({"prompt": _messages(prompt)} for prompt in read_prompts(path))
    return _lines(
        {
            "prompt": _messages(pair.prompt),
            "chosen": [{"role": "assistant", "content": pair.chosen}],
            "rejected": [{"role": "assistant", "content": pair.rejected}],
        }
        for pair in read_pairs(path)
    )


def _config(out: Path, values: PPOOptions, algorithm: str, gpus: int) -> dict[str, Any]:
    """TRL's own settings."""
    config: dict[str, Any] = {
        "output_dir": str(out / "model"),
        "learning_rate": 1e-6 if algorithm == "dpo" else values.lr,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": max(1, values.batch // (4 * gpus)),
        "num_train_epochs": 1,
        "gradient_checkpointing": True,
        "seed": values.seed,
        "logging_steps": 1,
        "report_to": "none",
        "beta": 0.1 if algorithm == "dpo" else values.kl_coefficient,
    }
    if algorithm == "dpo":
        return config | {"max_length": values.max_length}
    sampled = {"max_completion_length": values.max_new_tokens, "num_generations": ANSWERS}
    return config | sampled | {"temperature": values.temperature, "epsilon": values.clip}


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in prompt]


def _lines(rows: Any) -> bytes:
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def _script(out: Path, gpus: int) -> bytes:
    launch = ["accelerate", "launch", "--num_processes", str(gpus)] if gpus > 1 else ["python"]
    command = shlex.join([*launch, str(out / "train.py")])
    pin = f"pip install trl=={TRL_VERSION}"
    return f"#!/bin/bash\n# Needs an environment of its own: {pin}\nset -euo pipefail\n{command}\n".encode()
