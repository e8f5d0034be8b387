"""Training in another stack: the data, the reward, the settings and the command for OpenRLHF, verl or TRL.

Prompts and pairs are those of `evenhand pairs`, values those of our own options where the stack has them. The stacks
are not installed here: their versions of transformers differ from ours. The names that are written are checked in
the tests against the files of the versions below.
"""

from __future__ import annotations

import importlib
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import orjson
import yaml

from evenhand.core.errors import MissingExtraError, UsageError
from evenhand.training.data import Prompt, find_files, read_pairs, read_prompts
from evenhand.training.options import PPOOptions

Stack = Literal["openrlhf", "verl", "trl"]
VERSIONS: Mapping[Stack, str] = {"openrlhf": "0.11.2", "verl": "0.9.1", "trl": "1.16.0"}
ALGORITHMS: Mapping[Stack, tuple[str, ...]] = {
    "openrlhf": ("ppo", "grpo", "rloo"),
    "verl": ("ppo", "grpo", "rloo"),
    "trl": ("grpo", "rloo", "dpo"),
}
ANSWERS = 4
"""Answers sampled per prompt where a group is needed."""


def export(
    data: Path, out: Path, to: str, *, model: str, reward: Path | None = None, algorithm: str = "grpo", gpus: int = 1
) -> list[str]:
    """Write a folder that trains `model` in another stack; return the names of its files.

    Args:
        data: A folder of `evenhand pairs`.
        reward: A reward model by `evenhand train reward`; DPO needs none.
    """
    stack = _checked(to, algorithm, reward)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; name a new folder with --out.")
    found = find_files(data, "pairs")
    splits = {"train": found.train, **({"test": found.test} if found.test else {})}
    values = PPOOptions(model=model, data=data, out=out, reward=str(reward or ""), algorithm="ppo")
    folder = out.resolve()
    made = {"openrlhf": _openrlhf, "verl": _verl, "trl": _trl}[stack](folder, splits, values, algorithm, gpus)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        (out / name).write_bytes(content)
    if reward is not None:
        shutil.copyfile(str(files("evenhand.training.stacks") / "reward.py"), out / "reward.py")
        about = {"model": str(reward.resolve()), "max_length": values.max_length}
        (out / "reward.json").write_bytes(orjson.dumps(about))
    return sorted(path.name for path in out.iterdir())


def _checked(to: str, algorithm: str, reward: Path | None) -> Stack:
    stack = next((each for each in get_args(Stack) if each == to), None)
    if stack is None:
        raise UsageError(f"--to takes {', '.join(get_args(Stack))}, not {to!r}.")
    if algorithm not in ALGORITHMS[stack]:
        raise UsageError(f"{stack} is exported with --algorithm {' or '.join(ALGORITHMS[stack])}, not {algorithm}.")
    if algorithm == "dpo" and reward is not None:
        raise UsageError("DPO learns from the pairs themselves; remove --reward.")
    if algorithm != "dpo" and reward is None:
        raise UsageError(f"{algorithm} needs a reward model: --reward FOLDER, made by `evenhand train reward`.")
    if reward is not None and not (reward / "config.json").is_file():
        raise UsageError(f"{reward} is no reward model; make one with `evenhand train reward`.")
    return stack


def _openrlhf(out: Path, splits: Mapping[str, Path], values: PPOOptions, algorithm: str, gpus: int) -> dict[str, bytes]:
    made = {
        f"prompts.{split}.jsonl": _lines(
            {"prompt": _messages(prompt), "label": _json(prompt)} for prompt in read_prompts(path)
        )
        for split, path in splits.items()
    }
    grouped = algorithm != "ppo"
    flags: dict[str, Any] = {
        "actor.model_name_or_path": values.model,
        "reward.remote_url": out / "reward.py",
        "data.prompt_dataset": out / "prompts.train.jsonl",
        "data.input_key": "prompt",
        "data.label_key": "label",
        "data.apply_chat_template": True,
        "data.max_len": values.max_length,
        "rollout.max_new_tokens": values.max_new_tokens,
        "rollout.temperature": values.temperature,
        "rollout.batch_size": values.batch,
        "rollout.n_samples_per_prompt": ANSWERS if grouped else 1,
        "train.batch_size": values.batch * (ANSWERS if grouped else 1),
        "train.micro_batch_size": 4,
        "train.max_epochs": 1,
        "train.num_episodes": 1,
        "train.seed": values.seed,
        "train.colocate_all": True,
        "actor.num_nodes": 1,
        "actor.num_gpus_per_node": gpus,
        "ref.num_nodes": 1,
        "ref.num_gpus_per_node": gpus,
        "vllm.num_engines": gpus,
        "vllm.tensor_parallel_size": 1,
        "vllm.gpu_memory_utilization": 0.5,
        "vllm.enable_sleep": True,
        "ds.enable_sleep": True,
        "ds.zero_stage": 3,
        "actor.adam.lr": values.lr,
        "actor.eps_clip": values.clip,
        "actor.gradient_checkpointing_enable": True,
        "algo.advantage.estimator": {"ppo": "gae", "grpo": "group_norm", "rloo": "rloo"}[algorithm],
        "algo.advantage.lambd": values.lam,
        "algo.advantage.gamma": values.gamma,
        "algo.kl.init_coef": values.kl_coefficient,
        "algo.kl.use_loss": grouped,
        "algo.kl.estimator": "k3" if grouped else "k1",
        "reward.normalize_enable": True,
        "ckpt.output_dir": out / "model",
    }
    if algorithm == "ppo":
        flags |= {"critic.num_nodes": 1, "critic.num_gpus_per_node": gpus, "critic.adam.lr": values.critic_lr}
    return {**made, "run.sh": _script("openrlhf", ["python", "-m", "openrlhf.cli.train_ppo_ray"], _flags(flags))}


def _verl(out: Path, splits: Mapping[str, Path], values: PPOOptions, algorithm: str, gpus: int) -> dict[str, bytes]:
    made = {
        f"{split}.parquet": _parquet(
            {
                "data_source": "evenhand",
                "prompt": _messages(prompt),
                "ability": "fairness",
                "reward_model": {"style": "model", "ground_truth": ""},
                "extra_info": {"index": index, "split": split, "messages": _json(prompt)},
            }
            for index, prompt in enumerate(read_prompts(path))
        )
        for split, path in splits.items()
    }
    grouped = algorithm != "ppo"
    overrides: dict[str, Any] = {
        "data.train_files": out / "train.parquet",
        "data.val_files": out / ("test.parquet" if "test" in splits else "train.parquet"),
        "data.train_batch_size": values.batch,
        "data.max_prompt_length": values.max_length - values.max_new_tokens,
        "data.max_response_length": values.max_new_tokens,
        "data.truncation": "left",
        "reward.custom_reward_function.path": out / "reward.py",
        "reward.custom_reward_function.name": "compute_score",
        "algorithm.adv_estimator": {"ppo": "gae", "grpo": "grpo", "rloo": "rloo"}[algorithm],
        "algorithm.gamma": values.gamma,
        "algorithm.lam": values.lam,
        "actor_rollout_ref.model.path": values.model,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        "actor_rollout_ref.actor.optim.lr": values.lr,
        "actor_rollout_ref.actor.clip_ratio": values.clip,
        "actor_rollout_ref.actor.ppo_mini_batch_size": values.batch,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": values.kl_coefficient,
        "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": ANSWERS if grouped else 1,
        "actor_rollout_ref.rollout.temperature": values.temperature,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.5,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 8,
        "trainer.n_gpus_per_node": gpus,
        "trainer.nnodes": 1,
        "trainer.total_epochs": 1,
        "trainer.project_name": "evenhand",
        "trainer.experiment_name": algorithm,
        "trainer.default_local_dir": out / "model",
        "trainer.logger": "[console]",
    }
    if algorithm == "ppo":
        overrides |= {
            "critic.model.path": values.model,
            "critic.optim.lr": values.critic_lr,
            "critic.ppo_micro_batch_size_per_gpu": 4,
        }
    settings = [f"{name}={value}" for name, value in overrides.items()]
    return {**made, "run.sh": _script("verl", ["python", "-m", "verl.trainer.main_ppo"], settings)}


def _trl(out: Path, splits: Mapping[str, Path], values: PPOOptions, algorithm: str, gpus: int) -> dict[str, bytes]:
    def rows(path: Path) -> bytes:
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

    made = {f"{split}.jsonl": rows(path) for split, path in splits.items()}
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
        config["max_length"] = values.max_length
    else:
        own = {"max_completion_length": values.max_new_tokens, "num_generations": ANSWERS}
        config |= {**own, "temperature": values.temperature, "epsilon": values.clip}
    about = {"algorithm": algorithm, "model": values.model, "config": config}
    launch = ["accelerate", "launch", "--num_processes", str(gpus)] if gpus > 1 else ["python"]
    return {
        **made,
        "config.yaml": yaml.safe_dump(about, sort_keys=False).encode(),
        "train.py": (files("evenhand.training.stacks") / "with_trl.py").read_bytes(),
        "run.sh": _script("trl", [*launch, str(out / "train.py")], []),
    }


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in prompt]


def _json(prompt: Prompt) -> str:
    return json.dumps(_messages(prompt), ensure_ascii=False)


def _lines(rows: Any) -> bytes:
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def _parquet(rows: Any) -> bytes:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError("Data for verl", "parquet") from error
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_pylist(list(rows)), sink)
    return sink.getvalue().to_pybytes()


def _flags(flags: Mapping[str, Any]) -> list[str]:
    """Flags of argparse; True is a flag without a value, False none at all."""
    return [
        f"--{name}" if value is True else f"--{name} {value}" for name, value in flags.items() if value is not False
    ]


def _script(stack: Stack, command: Sequence[str], settings: Sequence[str]) -> bytes:
    quoted = (" ".join(map(shlex.quote, each.split(" ", 1))) for each in settings)
    lines = " \\\n  ".join([shlex.join(command), *quoted])
    pin = f"pip install {stack}=={VERSIONS[stack]}"
    return f"#!/bin/bash\n# Needs an environment of its own: {pin}\nset -euo pipefail\n{lines}\n".encode()
