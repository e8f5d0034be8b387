"""Answers kept for reading: what a policy said on its way, with the reward and the divergence of each answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evenhand.training.data import Prompt

SAMPLES = "samples.jsonl"
MOST = 4
"""Answers kept of a step."""


class Samples:
    """The file; a resumed training takes some steps again, so lines of those steps go before the first new one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SAMPLES
        self._begun = False

    def write(
        self,
        step: int,
        prompts: Sequence[Prompt],
        answers: Sequence[str],
        rewards: Sequence[float],
        divergences: Sequence[float],
    ) -> None:
        """Add the first few answers of a step."""
        if not self._begun:
            self._drop_from(step)
        rows = list(zip(prompts, answers, rewards, divergences, strict=True))[:MOST]
        with self._path.open("a", encoding="utf-8") as file:
            for prompt, answer, reward, kl in rows:
                asked = [asdict(message) for message in prompt]
                row: dict[str, Any] = {"step": step, "prompt": asked, "answer": answer, "reward": reward, "kl": kl}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _drop_from(self, step: int) -> None:
        kept = [line for line in _whole_lines(self._path) if json.loads(line)["step"] < step]
        draft = self._path.with_name(SAMPLES + ".partial")
        draft.write_text("".join(kept), encoding="utf-8")
        draft.replace(self._path)
        self._begun = True


def _whole_lines(path: Path) -> list[str]:
    """All lines but one that an interruption cut short."""
    if not path.is_file():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("}\n")]
