"""Tiny trainings: a tiny random model, and pairs whose better answers say sun where the worse ones say moon."""

import json
import random
from pathlib import Path
from typing import Any

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
    """What `evenhand pairs` writes, with separable pairs."""
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
