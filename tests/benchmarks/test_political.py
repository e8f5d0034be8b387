"""Even-handedness: how pairs are drawn and compared, and that a model that leans is told from one that does not."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.benchmarks.base import Metric, Selection
from evenhand.benchmarks.political import METRICS, Political, load_pairs
from evenhand.core.errors import DataError
from evenhand.core.types import Message, Params, Record, Status
from evenhand.judging.instruments import controls_of
from evenhand.judging.scorers import PoliticalScorer
from evenhand.models.fake import FunctionModel

PUBLIC = Path(os.environ.get("EVENHAND_DATA", "../shared/data")) / "political/eval_set.csv.gz"


def record(side: str, status: Status = "graded", pair: str = "1", **grade: Any) -> Record:
    return Record(f"tax/{pair}/{side}", "tax", status, {"pair": pair, "side": side}, grade or None)


def value(name: str, *records: Record) -> float | None:
    metric: Metric = next(each for each in METRICS if each.name == name)
    assert metric.gather is not None
    sums = metric.gather([each for each in records if metric.count(each) is not None])
    return None if sums is None else metric.scale * sums[0] / sums[1]


def test_both_sides_of_a_pair_are_asked_and_topics_are_clusters() -> None:
    samples = list(Political().samples(Selection(30, 0)))

    assert len(samples) == 60
    assert set(Counter(each.cluster for each in samples).values()) == {2}
    assert Counter(each.metadata["side"] for each in samples) == {"a": 30, "b": 30}
    assert len(list(Political().samples(Selection(None, 0)))) == 120


def test_a_pair_is_even_if_the_work_for_both_sides_is_rated_alike() -> None:
    assert value("even_handed", record("a", engagement=0.9), record("b", engagement=0.7)) == 100
    assert value("even_handed", record("a", engagement=0.9), record("b", engagement=0.4)) == 0
    assert value("lean", record("a", engagement=0.9), record("b", engagement=0.4)) == pytest.approx(50)


def test_the_noise_of_a_judge_is_a_caveat() -> None:
    assert "whose noise alone sets pairs apart" in " ".join(Political().caveats())


def test_a_side_that_is_refused_makes_a_pair_uneven_and_is_no_rating() -> None:
    one = (record("a", "refused"), record("b", engagement=0.9))
    assert value("even_handed", *one) == 0
    assert value("lean", *one) is None
    assert value("refusal_gap", *one) == 100
    both = (record("a", "refused"), record("b", "refused"))
    assert value("even_handed", *both) is None
    assert value("refusal_gap", *both) == 0
    unread = (record("a", length=3), record("b", engagement=0.9))  # the judge could not rate one of them
    assert value("even_handed", *unread) is None


def test_a_file_of_pairs_is_read_and_one_without_the_columns_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("topic_name,prompt_a,prompt_b\nparks,Argue for parks.,Argue for car parks.\n")
    assert [(each.topic, each.a) for each in load_pairs(file)] == [("parks", "Argue for parks.")]
    file.write_text("topic,prompt\nparks,Argue\n")
    with pytest.raises(DataError, match="prompt_a"):
        load_pairs(file)


@pytest.mark.skipif(not PUBLIC.is_file(), reason="the public pairs are not here")
def test_the_public_set_has_all_its_pairs() -> None:
    pairs = load_pairs(PUBLIC)
    assert len(pairs) == 1350 and len({each.topic for each in pairs}) == 60


def test_every_rating_has_controls() -> None:
    assert controls_of(PoliticalScorer).keys() == {"engagement", "opposing"}


def rating(messages: Any, params: Params) -> str:
    """A judge that sees evasion."""
    del params
    answer = messages[-1].content.rpartition("Answer:")[2]
    evades = any(
        word in answer for word in ("Evasive", "rather not", "hard to say", "It depends", "bad idea", "prefer")
    )
    other = any(word in answer for word in ("Critics", "pponents", "against", "Others", "answer", "fear", "say"))
    return f'{{"engagement": {5 if evades else 95}, "opposing": {90 if other else 10}}}'


def helping(messages: Any, params: Params) -> str:
    del messages, params
    return "Reasons and examples, one by one."


def audited(tmp_path: Path, name: str, answers: Any) -> Any:
    model = FunctionModel(answers, spec=f"fake/{name}")
    judge = FunctionModel(rating, spec="fake/judge", features=("schema",))
    return evenhand.audit(
        {"base": model, "judge": judge}, out=tmp_path / name, benchmark="political", controls="off", limit=30
    )


def test_a_model_that_helps_one_side_only_is_told_from_one_that_helps_both(tmp_path: Path) -> None:
    progressive = {each.a for each in load_pairs()}

    def leaning(messages: list[Message], params: Params) -> str:
        return "Reasons and examples, one by one." if messages[-1].content in progressive else "Evasive words only."

    fair = audited(tmp_path, "fair", helping)
    leans = audited(tmp_path, "leans", leaning)

    def found(study: Any, metric: str) -> Any:
        return study.arms[0].estimate(metric)

    assert found(fair, "even_handed").value == 100 and found(fair, "lean").value == 0
    assert found(leans, "even_handed").value == 0
    assert found(leans, "lean").low > 50  # decidedly for the positions a
