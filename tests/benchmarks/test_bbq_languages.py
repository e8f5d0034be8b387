"""BBQ in other languages: one benchmark with an option, and the authors' scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.bbq.benchmark import BBQ
from evenhand.core.errors import DataError, PlanError, UnknownNameError, UsageError
from evenhand.core.files import content_sha256
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample
from evenhand.data.sets import find_file, get_set

SETS = {"es": ("esbbq", 27_320), "ca": ("esbbq", 27_344), "ko": ("kobbq", 2_280)}
by_language = pytest.mark.parametrize("language", SETS)


def sample(condition: str, label: int, target_loc: int) -> Sample:
    aligned = None if condition == "ambig" else label == target_loc
    metadata: dict[str, Any] = {
        "context_condition": condition,
        "target_loc": target_loc,
        "unknown": 2,
        "aligned": aligned,
    }
    return Sample("x", "choice", "?", choices=("a", "b", "c"), target=label, metadata=metadata)


AMBIGUOUS, FITTING, OPPOSED = sample("ambig", 2, 0), sample("disambig", 0, 0), sample("disambig", 1, 0)


def value(name: str, answers: list[tuple[Sample, int]]) -> float:
    benchmark = BBQ(language="ko")
    metric = next(metric for metric in benchmark.metrics() if metric.name == name)
    counts: list[Any] = []
    for each, choice in answers:
        grade = benchmark.grade(each, Outcome(Answer("text", choice)))
        assert isinstance(grade, Grade)
        counts.append(metric.count(Record("x", "c", "graded", each.metadata, grade.values)))
    return float(metric.statistic(np.sum([count for count in counts if count is not None], axis=0)))


def test_diff_bias_is_the_difference_of_accuracies():
    answers = [(FITTING, 0), (FITTING, 0), (FITTING, 2), (FITTING, 0), (OPPOSED, 1), (OPPOSED, 0), (AMBIGUOUS, 0)]

    assert value("diff_bias_disambig", answers) == pytest.approx(3 / 4 - 1 / 2)


def test_diff_bias_of_one_kind_of_context_alone_is_undefined():
    assert np.isnan(value("diff_bias_disambig", [(FITTING, 0)]))


@pytest.mark.parametrize("choices", [(0, 0, 1, 2), (1, 1, 2, 2), (0, 1, 2, 2)])
def test_the_ambiguous_score_of_bbq_is_the_authors_too(choices: tuple[int, ...]):
    biased, counter = choices.count(0), choices.count(1)

    found = value("bias_ambig", [(AMBIGUOUS, choice) for choice in choices])

    assert found == pytest.approx((biased - counter) / len(choices))


def test_english_has_the_scores_of_bbq_alone():
    assert "diff_bias_disambig" not in [metric.name for metric in BBQ().metrics()]


def test_categories_are_those_of_the_language():
    assert BBQ(language="ko", categories="ses,age").categories == ("age", "ses")
    assert BBQ(language="ca").categories[-1] == "SpanishRegion"
    with pytest.raises(UnknownNameError, match="did you mean"):
        BBQ(language="es", categories="Race_ethnicity")


def test_what_a_language_cannot_have_is_refused():
    with pytest.raises(PlanError, match="must be en or es or ca or ko, not 'fr'"):
        BBQ(language="fr")
    with pytest.raises(UsageError, match="English only"):
        BBQ(language="es", subset="mabrf_110")


def test_missing_files_say_how_to_get_them(tmp_path: Path):
    with pytest.raises(DataError, match="evenhand data pull kobbq"):
        next(BBQ(language="ko", data=str(tmp_path)).samples(Selection(limit=1)))


class TestOfficialData:
    @pytest.mark.parametrize("name", ["esbbq", "kobbq", "discrimeval"])
    def test_the_files_have_the_checksums_of_the_download(self, public: Callable[[str], str], name: str):
        folder = Path(public(name)) / name
        for file in get_set(name).files:
            path = find_file(folder, file.name)
            assert path is not None, file.name
            assert content_sha256(path) == file.sha256, file.name

    @by_language
    def test_every_row_is_read(self, public: Callable[[str], str], language: str):
        name, total = SETS[language]
        samples = list(BBQ(language=language, data=public(name)).samples(Selection()))

        assert len({sample.id for sample in samples}) == len(samples) == total
        for each in samples:
            ambiguous = each.metadata["context_condition"] == "ambig"
            assert (each.target == each.metadata["unknown"]) is ambiguous
            assert each.metadata["target_loc"] in (0, 1)
            assert "unknown" not in each.choices

    @by_language
    def test_a_limit_is_spread_evenly(self, public: Callable[[str], str], language: str):
        benchmark = BBQ(language=language, data=public(SETS[language][0]))
        counts = Counter(each.metadata["category"] for each in benchmark.samples(Selection(limit=96)))

        assert set(counts) == set(benchmark.categories)
        assert max(counts.values()) - min(counts.values()) <= 1

    def test_half_of_the_korean_contexts_fit_the_stereotype(self, public: Callable[[str], str]):
        samples = BBQ(language="ko", data=public("kobbq")).samples(Selection())

        assert Counter(each.metadata["aligned"] for each in samples) == {None: 1140, True: 570, False: 570}

    def test_the_fingerprint_names_the_language(self, public: Callable[[str], str]):
        spanish, catalan = (
            BBQ(language=language, categories="SES", data=public("esbbq")).fingerprint() for language in ("es", "ca")
        )

        assert (spanish["language"], list(spanish["sha256"])) == ("es", ["es.SES.csv"])
        assert spanish["sha256"] != catalan["sha256"]
