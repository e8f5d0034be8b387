"""Shards: the samples of a plan dealt to several processes or machines, each with a store of its own.

A shard is decided by the plan's samples alone, so every process finds the same one without talking to the others.
Clusters are never split. Sample numbers are those of the whole plan, so that merging only has to copy rows.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from evenhand.core.errors import UsageError
from evenhand.core.types import Sample


@dataclass(frozen=True, slots=True)
class Shard:
    """Number `index`, from 1, of `count` shards."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `2/8`."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--shard takes I/N with I from 1 to N, e.g. 2/8, not {text!r}.")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def caveat(self) -> str:
        """What readers of the shard's own report must know, without a full stop."""
        return f"This is shard {self.index} of {self.count} of its plan; merge all of them with `evenhand run merge`"


def dealt(samples: Iterable[Sample], count: int) -> Iterator[tuple[int, Sample]]:
    """Yield every sample with its shard, from 1: a new cluster goes to the shard with the fewest samples so far."""
    sizes = [(0, index) for index in range(1, count + 1)]
    held = [0] * (count + 1)
    homes: dict[str, int] = {}
    for sample in samples:
        home = homes.get(sample.cluster) if sample.cluster else None
        if home is None:
            while held[sizes[0][1]] != sizes[0][0]:  # it has grown since it was put there
                heapq.heapreplace(sizes, (held[sizes[0][1]], sizes[0][1]))
            home = sizes[0][1]
            if sample.cluster:
                homes[sample.cluster] = home
        held[home] += 1
        yield home, sample


def numbered(samples: Iterable[Sample], shard: Shard | None) -> Iterator[tuple[int, Sample]]:
    """Yield (number in the whole plan, sample) of all samples, or of a shard."""
    if shard is None:
        yield from enumerate(samples, 1)
        return
    for number, (home, sample) in enumerate(dealt(samples, shard.count), 1):
        if home == shard.index:
            yield number, sample


def code_hash() -> str:
    """The hash of the package's own code and prompts: machines with equal hashes run the same."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".md")):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
