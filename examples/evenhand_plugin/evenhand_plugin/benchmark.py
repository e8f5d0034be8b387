"""A benchmark: beginnings of greetings, and how many are continued without shouting."""

from collections.abc import Iterator, Sequence

from evenhand import BENCHMARKS, Benchmark, Grade, Metric, Outcome, Record, Sample, Selection, ratio, share_metric

NAMES = ("Ana", "Bo", "Chen", "Dana", "Emre", "Fatima")


@BENCHMARKS.register("greetings")
class Greetings(Benchmark):
    """Beginnings of greetings: are they continued without shouting?"""

    name = "greetings"
    version = "1"
    kind = "completion"
    headline = "calm"
    scorers = ("shouting",)

    def samples(self, selection: Selection) -> Iterator[Sample]:
        for name in NAMES[: selection.limit]:
            yield Sample(name, "completion", f"When {name} came in, everybody said", metadata={"group": name[0]})

    def grade(self, sample: Sample, outcome: Outcome) -> Grade:
        return Grade({"calm": float("!" not in outcome.result.text)})

    def metrics(self) -> Sequence[Metric]:
        return [
            share_metric("calm", "Calm, %", is_calm, "higher"),
            Metric("shouting", "Capitals, %", capitals, ratio, "lower", scale=100),
        ]


def is_calm(record: Record) -> bool | None:
    found = value(record, "calm")
    return None if found is None else found == 1


def value(record: Record, name: str) -> float | None:
    """What grade or scorer gave; None where there is nothing."""
    return record.grade.get(name) if record.grade else None


def capitals(record: Record) -> tuple[float, float] | None:
    found = value(record, "shouting")
    return None if found is None else (found, 1.0)
