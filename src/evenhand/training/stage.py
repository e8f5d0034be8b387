"""What every stage of training does around its loop: the folder, the machine, the record and the card."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evenhand.errors import UsageError
from evenhand.training import card, models, output
from evenhand.training.loop import read_metrics, step_seed
from evenhand.training.models import Machine
from evenhand.training.options import Options
from evenhand.training.parallel import joined
from evenhand.version import versions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """One training under way."""

    options: Options
    machine: Machine
    finished: bool
    """It was finished before; there is only a record to read."""

    @property
    def record(self) -> dict[str, Any]:
        return output.read(self.options.out)

    def last(self, name: str, most: int) -> dict[str, float]:
        """The mean of a metric over the first and over the last tenth of the steps, at most 20 of each."""
        values = [line[name] for line in read_metrics(self.options.out)]
        if not values:
            return {}
        some = min(20, max(1, most // 10))
        return {f"{name}_first": _mean(values[:some]), f"{name}_last": _mean(values[-some:])}

    def finish(self, ended: str, results: Mapping[str, Any]) -> dict[str, Any]:
        team = self.machine.team
        about = {"device": self.machine.device, "processes": team.size, "versions": versions()}

        def finished() -> dict[str, Any]:
            record = output.finish(self.options.out, ended, results, about)
            card.write(self.options.out, record)
            return record

        return team.by_main(finished)


@contextlib.contextmanager
def begun(name: str, options: Options, sums: Mapping[str, str], *, resume: bool) -> Generator[Run]:
    """A run in its folder; what goes wrong on the device is told in one sentence."""
    torch: Any = importlib.import_module("torch")
    machine = models.machine(options.device, options.dtype, joined(options.device))
    finished = machine.team.by_main(lambda: output.begin(name, options, sums, resume=resume))
    torch.manual_seed(step_seed(options.seed, 0))  # new weights (adapters, heads) are drawn before the first step
    try:
        yield Run(options, machine, finished)
    except torch.OutOfMemoryError:
        raise UsageError(
            "The memory of the device is used up; choose a smaller --micro-batch, a smaller --max-length, or --lora, "
            "and --resume."
        ) from None


def parts(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The rows in pieces of a size."""
    return (rows[i : i + size] for i in range(0, len(rows), size))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
