"""`evenhand judges malibu`: from a model to an audit of its judgements."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.studies.study import study

METRICS = ("creativity", "accuracy", "efficiency", "reliability")
CALLS = {"judge": 1, "panel": 12, "fair_panel": 12, "blind_panel": 12}
"""Per sample, with the defaults."""
SAMPLES = {"1": 11, "both": 37}
"""Per scenario."""


def reply(messages: Sequence[Message], params: Params) -> str:
    """A judge that takes two points from men."""
    asked = messages[-1].content
    behind = [" male" in each for each in re.findall(r"was written by ([^.]*)", asked)] or [False]
    assert params.schema is not None
    if "a_accuracy" not in params.schema["properties"]:
        return json.dumps({**dict.fromkeys(METRICS, 5 if behind[0] else 7), "why": "so"})
    behind = (behind * 2)[:2]
    scores = {f"{side}_{metric}": 5 if man else 7 for side, man in zip("ab", behind, strict=True) for metric in METRICS}
    winner = "tie" if behind[0] == behind[1] else "B" if behind[0] else "A"
    return json.dumps({**scores, "winner": winner, "why": "so"})


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, FunctionModel]:
    """The models `judging/NAME` that were loaded, by name."""
    loaded: dict[str, FunctionModel] = {}

    class Judging(FunctionModel):
        features = frozenset({"seed", "schema"})

        def __init__(self, name: str, options: object) -> None:
            super().__init__(reply, spec=f"judging/{name}", features=type(self).features)
            loaded[name] = self

    monkeypatch.setitem(PROVIDERS._things, "judging", Judging)
    return loaded


def test_three_methods_are_audited_and_reported_unless_others_are_named(cli, models, tmp_path: Path):
    result = cli("judges", "malibu", "--model", "judging/one", "--limit", "10", "--phase", "1", "--out", "r")

    assert result.code == 0, result
    assert "330 of 330 done" in result.out
    for part in (
        "Gaps between identities that were found",
        "Effect of the discussion",
        "Coverage",
        "Paired differences from panel",
    ):
        assert part in result.out
    assert re.search(r"panel +Score, phase 1 +female − male +\+2\.00", result.out)
    assert "said to be by a female professional get 2.00 points" in " ".join(result.out.split())
    page = (tmp_path / "r/report.html").read_text(encoding="utf-8")
    assert all(f'id="{section}"' in page for section in ("judges", "discussion", "scores", "coverage"))
    assert 'id="iterations"' not in page


@pytest.mark.parametrize(("phase", "limit"), [pytest.param("1", 2, marks=pytest.mark.slow), ("both", 1)])
def test_the_dry_run_counts_the_calls_of_the_run(cli, models, phase: str, limit: int):
    asked = ("judges", "malibu", "--model", "judging/one", "--limit", str(limit), "--phase", phase, "--no-cache")
    for method in CALLS:
        asked += ("--method", method)

    forecast = cli(*asked, "--dry-run")
    assert forecast.code == 0 and models == {}
    ran = cli(*asked, "--out", "r")

    samples = limit * SAMPLES[phase]
    for method, calls in CALLS.items():
        assert re.search(rf"^ {method} +{samples} +{calls * samples:,} ", forecast.out, re.MULTILINE), forecast.out
    assert ran.code == 0, ran
    assert len(models["one"].requests) == samples * sum(CALLS.values())


def test_flags_reach_the_benchmark(cli, models, tmp_path: Path):
    identities = tmp_path / "ages.yaml"
    identities.write_text(
        "age:\n  young: {tag: Young, author: a young professional}\n  old: {tag: Old, author: an old professional}\n"
    )

    result = cli(
        *(
            "judges",
            "malibu",
            "-m",
            "judging/one",
            "--method",
            "judge",
            "--limit",
            "1",
            "--phase",
            "2",
            "--texts",
            "two",
        ),
        *("--form", "tag", "--identities", str(identities), "--out", "r"),
    )

    assert result.code == 0, result
    assert "4 of 4 done" in result.out
    prompts = [messages[-1].content for messages, _ in models["one"].requests]
    assert all("(Young)" in prompt and "(Old)" in prompt for prompt in prompts)


def test_runs_made_before_show_the_same_audit(cli, models):
    run = cli(
        "run",
        "--benchmark",
        "malibu",
        "--set",
        "phase=1",
        "-m",
        "judging/one",
        "--method",
        "judge",
        "--limit",
        "10",
        "--out",
        "r",
    )
    assert run.code == 0, run

    for command in (("compare", "r"), ("report", "r")):
        result = cli(*command)
        assert result.code == 0, result
        assert "female − male" in result.out


def test_over_correction_is_between_the_panel_and_the_mitigation_of_one_model(cli, models, tmp_path: Path):
    asked = ("--method", "judge", "--method", "panel", "--method", "fair_panel", "--method", "blind_panel")
    result = cli(
        "judges",
        "malibu",
        "-m",
        "judging/one",
        "-m",
        "judging/two",
        *asked,
        "--limit",
        "1",
        "--phase",
        "1",
        "--out",
        "r",
    )
    assert result.code == 0, result

    found = study([tmp_path / "r"])

    labels = {arm.id: (arm.method, arm.models["base"]) for arm in found.arms}
    assert [(labels[each.before], labels[each.after]) for each in found.corrections] == [
        (("panel", model), (method, model))
        for model in ("judging/one", "judging/two")
        for method in ("fair_panel", "blind_panel")
    ]


def test_iterations_are_refused_since_rounds_are_in_the_audit(cli, models):
    cli("judges", "malibu", "-m", "judging/one", "--method", "judge", "--limit", "1", "--phase", "1", "--out", "r")

    result = cli("compare", "r", "--iterations")

    assert result.code == 2
    assert "in its audit. Remove --iterations" in result.err


def test_generating_is_a_command_of_its_own(cli):
    result = cli("judges", "malibu", "generate", "--help")

    assert result.code == 0
    assert "--bases" in result.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--method", "default"), "malibu"),
        (("--method", "panel:judges=0"), "judges"),
        (("--limit", "0"), "limit"),
        (("--phase", "3"), "--phase"),
        (("--data", "nowhere"), "nowhere"),
        (("generat",), "generat"),
        (("--baseline", "jugde"), "jugde"),
    ],
)
def test_bad_input_is_one_sentence(cli, models, arguments: tuple[str, ...], said: str):
    result = cli(
        "judges", "malibu", "-m", "judging/one", "--method", "judge", "--limit", "1", "--phase", "1", *arguments
    )

    assert result.code == 2, result
    assert said in result.err and "Traceback" not in result.err


def test_without_a_model_it_says_how_to_name_one(cli):
    result = cli("judges", "malibu")

    assert result.code == 2
    assert "--model" in result.err


def test_the_papers_page_stands_beside_the_published_numbers(cli, models, tmp_path: Path):
    result = cli("papers", "malibu", "-m", "judging/one", "--limit", "1", "--out", "p", "--dry-run")
    assert re.search(r"panel +1,260 +15,120 ", result.out), result.out

    run = cli(
        *("run", "-b", "malibu", "--set", "phase=1", "-m", "judging/one", "-m", "judging/two", "--method", "panel"),
        *("--limit", "10", "--out", "p/malibu"),
    )
    assert run.code == 0, run
    shown = cli("papers", "malibu", "--out", "p")

    assert shown.code == 0, shown
    assert {"figure4.csv", "figure4_pairs.csv", "figures5_6.csv", "figure9.csv", "chi_square.csv"} <= {
        path.name for path in (tmp_path / "p").iterdir()
    }
    page = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    assert "judging/two, panel" in page and "DeepSeek-V3: as published" in page
    assert "Female ahead of male on all four metrics (said of both models)" in page
    assert "cannot be determined" in page and 'class="scatter"' in page
