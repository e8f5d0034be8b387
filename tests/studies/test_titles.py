"""The title of a study: which models on what, with which methods, and when."""

import re

import pytest

from evenhand.studies.results import with_dates
from evenhand.studies.study import study
from support.runs import Workshop


async def test_the_title_names_model_benchmark_methods_and_date(workshop: Workshop) -> None:
    model = workshop.model(lambda _messages, _params: "A")
    await workshop.run("run", methods=["default", "fair_prompt"])

    title = study([workshop.directory / "run"]).title

    assert re.fullmatch(rf"{model.spec} on toy: default, fair_prompt \(\d{{4}}-\d\d-\d\d\)", title)


@pytest.mark.parametrize(
    ("created", "title"),
    [
        ([], "it"),
        ([None], "it"),
        (["2026-03-01T09:00:00Z"], "it (2026-03-01)"),
        (["2026-03-04T09:00:00Z", "2026-03-01T09:00:00Z", "2026-03-02T09:00:00Z"], "it (2026-03-01 to 2026-03-04)"),
    ],
)
def test_a_title_names_the_first_and_last_day(created: list[str | None], title: str) -> None:
    assert with_dates("it", {str(i): {"created": each} for i, each in enumerate(created)}) == title
