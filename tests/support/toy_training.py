"""Tiny trainings: a tiny random model, and pairs whose better answers say sun where the worse ones say moon."""

import json
import random
from pathlib import Path
from typing import Any

from evenhand.core.progress import Count
from evenhand.training.loop import read_metrics
from support.tiny import make_model

FILLERS = [f"w{i}" for i in range(20)]


def tiny_model(folder: Path) -> str:
    make_model(folder)
    return str(folder)


def answer(word: str, draw: random.Random) -> str:
    words = draw.choices(FILLERS, k=3)
    words[draw.randrange(3)] = word
    return " ".join(words)


def pairs_folder(folder: Path, *, train: int = 96, test: int = 40) -> Path:
    """What `evenhand train pairs` writes, with separable pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for split, count in (("train", train), ("test", test)):
        pairs: list[dict[str, Any]] = []
        answers: list[dict[str, Any]] = []
        for _ in range(count):
            user = {"role": "user", "content": " ".join(draw.choices(FILLERS, k=2))}
            good, bad = ({"role": "assistant", "content": answer(word, draw)} for word in ("sun", "moon"))
            pairs.append({"prompt": [user], "chosen": [good], "rejected": [bad]})
            answers.append({"messages": [user, good]})
        for kind, rows in (("pairs", pairs), ("sft", answers)):
            (folder / f"{kind}.{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def shorter_pairs_folder(folder: Path) -> Path:
    """Pairs whose better answers differ from the worse ones in nothing but length."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for split, count in (("train", 96), ("test", 24)):
        rows = [
            {
                "prompt": [{"role": "user", "content": f"{' '.join(draw.choices(FILLERS, k=3))}"}],
                "chosen": [{"role": "assistant", "content": " ".join(draw.choices(FILLERS, k=draw.randint(3, 6)))}],
                "rejected": [{"role": "assistant", "content": " ".join(draw.choices(FILLERS, k=draw.randint(10, 16)))}],
                "bias": ("age", "gender")[number % 2],
                "margin": 2 + number % 7,
            }
            for number in range(count)
        ]
        (folder / f"pairs.{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class Interruption(Exception):  # noqa: N818 - it stands for a power cut
    """What ends a training in the middle."""


def interrupt_after(steps: int) -> Count:
    def observe(done: int, total: int | None) -> None:
        if done == steps:
            raise Interruption

    return observe


def tensors_of(folder: Path) -> dict[str, Any]:
    """All weights of a folder."""
    import safetensors.torch

    return {
        f"{path.name}/{name}": tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in safetensors.torch.load_file(path).items()
    }


def numbers(folder: Path) -> list[dict[str, float]]:
    """The metrics without how long things took."""
    return [{name: n for name, n in line.items() if "seconds" not in name} for line in read_metrics(folder)]


def assert_same(one: Path, other: Path) -> None:
    """Two trainings came to the same weights by the same steps, bit for bit."""
    import torch

    first, second = tensors_of(one), tensors_of(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert numbers(one) == numbers(other)


def pinned_model(folder: Path) -> str:
    """The tiny model with weights that no other library decides, for numbers that are to stay the same for years."""
    import numpy as np
    import torch
    import transformers

    make_model(folder)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    draw = np.random.default_rng(0)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            drawn = np.ones(weight.shape) if "norm" in name else draw.normal(0, 0.3, weight.shape)
            weight.copy_(torch.tensor(drawn))
    model.save_pretrained(folder)
    return str(folder)


def ending_model(folder: Path) -> str:
    """The tiny model with a likelier end: its answers have about 11 tokens, and few have more than 40."""
    import torch
    import transformers

    make_model(folder)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    texts = torch.randint(2, model.config.vocab_size, (64, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        usual = model.model(texts).last_hidden_state.mean((0, 1))
        model.lm_head.weight[model.config.eos_token_id] += 2.0 * usual / usual.square().sum()
    model.save_pretrained(folder)
    return str(folder)


def assert_close(one: Path, other: Path, *, tolerance: float = 1e-5) -> None:
    """Two trainings took the same steps to the same weights and results, up to rounding.

    Adam makes steps of full length of gradients that are rounding alone, so one weight in a thousand may differ more.
    """
    import pytest
    import torch

    for mine, yours in zip(numbers(one), numbers(other), strict=True):
        assert yours == pytest.approx(mine, rel=1e-4, abs=tolerance)
    first, second = tensors_of(one), tensors_of(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-4, atol=10 * tolerance)
        rounded = torch.isclose(second[name], tensor, rtol=1e-4, atol=tolerance)
        assert (~rounded).sum() <= tensor.numel() / 1000, name
    before, after = (json.loads((folder / "training.json").read_text())["results"] for folder in (one, other))
    assert leaves(after) == pytest.approx(leaves(before), rel=1e-4, abs=tolerance)


def leaves(results: dict[str, Any]) -> dict[str, Any]:
    """Nested results by their path, without those that are undefined."""
    found: dict[str, Any] = {}
    for name, value in results.items():
        nested = leaves(value) if isinstance(value, dict) else {"": value}
        found |= {f"{name}/{rest}": leaf for rest, leaf in nested.items() if leaf is not None}
    return found
