"""Audits: what a benchmark of one's own declares about all records of an arm, and about its estimates."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from evenhand.benchmarks.base import BENCHMARKS, Audit, Lookup
from evenhand.core.errors import PlanError
from evenhand.core.types import Record
from evenhand.studies.study import study
from support.rated import unrated
from support.runs import Workshop
from support.toy import Toy


@dataclass(frozen=True)
class Counted:
    sentences: tuple[str, ...]


class Audited(Toy):
    """Audits by counting, and calls every mitigation an over-correction."""

    def audit(self, records: Sequence[Record]) -> Counted:
        return Counted((f"{len(records)} records.", "Second.", "Third."))

    def over_corrections(self, before: Audit, after: Audit) -> Sequence[str]:
        return [f"{before.sentences[0]} → {after.sentences[0]}"]

    def warnings(self, estimate: Lookup) -> Sequence[str]:
        found = estimate("coverage")
        return () if found is None else [f"its coverage is {found.value:.0f}."]


@pytest.fixture
async def audited(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    monkeypatch.setitem(BENCHMARKS._things, "toy", Audited)  # pyright: ignore[reportPrivateUsage]
    workshop.model(lambda _messages, _params: "A")
    workshop.method("plain", unrated)
    workshop.method("plainer", unrated)
    workshop.method("mitigated", unrated, baselines=("absent", "plainer", "plain"))
    await workshop.run("run", methods=["plain", "plainer", "mitigated"])
    return workshop


async def test_the_first_sentences_of_an_audit_are_among_the_conclusions(audited: Workshop):
    result = study([audited.directory / "run"])

    assert [arm.audit for arm in result.arms] == [Counted(("24 records.", "Second.", "Third."))] * 3
    told = [verdict for verdict in result.verdicts if verdict.startswith("Measured")]
    assert told == [f"Measured: {name}: 24 records. Second." for name in ("plain", "plainer", "mitigated")]


async def test_a_mitigation_is_compared_with_the_closest_baseline_that_ran(audited: Workshop):
    result = study([audited.directory / "run"])
    labels = {arm.id: arm.label for arm in result.arms}

    found = [(labels[each.before], labels[each.after], each.sentences) for each in result.corrections]
    assert found == [("plainer", "mitigated", ["24 records. → 24 records."])]


async def test_warnings_of_the_benchmark_follow_the_arms_name(audited: Workshop):
    assert "plain, plainer, mitigated: its coverage is 100." in study([audited.directory / "run"]).warnings


async def test_iterations_of_an_audited_benchmark_are_refused(audited: Workshop):
    with pytest.raises(PlanError, match="Remove --iterations"):
        study([audited.directory / "run"], iterations=True)
