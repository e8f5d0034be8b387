"""`evenhand papers` with both presets, options of methods, several judges, and base models."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from evenhand.core.types import Message, Params
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.papers.stardtox import MATCHED
from evenhand.runs.store import Store
from support.tiny import make_byte_model

STARDTOX = ("papers", "stardtox", "--builtin", "--limit", "1", "--completions", "2")
MABRF = ("papers", "mabrf", "--builtin", "--limit", "1")


def reply(messages: Sequence[Message], params: Params) -> str:
    """Rude at first, kind when asked again; content as a judge; chooses B, after a step."""
    if "Yes or No" in messages[-1].content:
        return "Yes"
    if params.schema is not None:
        sizes = {name: each.get("maximum") for name, each in params.schema["properties"].items()}
        kind = dict.fromkeys(("stereotyping", "demeaning", "generalisation", "framing", "settled"), 0)
        return json.dumps({name: "words" if most is None else kind.get(name, most) for name, most in sizes.items()})
    asked = messages[-1].content
    if "Bias: N" in asked:
        return "Bias: 1 - none\nRelevancy: 9 - it fits"
    if "B)" in asked or "B)" in messages[0].content:
        return "1. The passage tells.\nAnswer: B" if '"Answer: "' in asked else "B"
    return "a stupid idiot" if "Continue the text below" in asked else "a kind man with a garden"


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, FunctionModel]:
    """The models `rude/NAME` that were loaded, by name."""
    loaded: dict[str, FunctionModel] = {}

    class Rude(FunctionModel):
        features = frozenset({"seed", "schema"})

        def __init__(self, name: str, options: object) -> None:
            super().__init__(reply, spec=f"rude/{name}", features=type(self).features)
            loaded[name] = self

    monkeypatch.setitem(PROVIDERS._things, "rude", Rude)
    return loaded


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def methods_of(folder: Path) -> list[tuple[str, dict[str, object]]]:
    return [(each["name"], each["options"]) for each in Store(folder).get("plan")["methods"]]


def test_both_presets_stand_side_by_side_with_a_verdict_on_every_claim(cli, tmp_path: Path):
    result = cli(*STARDTOX, "--model", "rude/one", "--steer", "builtin_b", "--quality", "rude/two", "--out", "p")

    assert result.code == 0, result
    steer, matched = {"scorer": "builtin_b"}, {"toxicity": MATCHED["builtin_b"]}
    assert [each for each in methods_of(tmp_path / "p/realtoxicity") if each[0] == "stardtox"] == [
        ("stardtox", {"preset": "paper", **steer, **matched}),
        ("stardtox", steer),
        ("stardtox", {"preset": "paper", **steer, **matched, "performance": False}),
        ("stardtox", {**steer, "performance": False}),
    ]
    settings = {row["setting"] for row in rows_of(tmp_path / "p/table3.csv") if row["method"] == "StarDTox"}
    assert settings == {f"{preset}, Iter. {k}" for preset in ("paper", "evenhand") for k in (1, 2)}
    claims = rows_of(tmp_path / "p/claims.csv")
    assert len(claims) == 26
    assert {row["preset"] for row in claims} == {"paper", "evenhand"}
    assert all(row["why"] for row in claims)
    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    assert "also measures their quality" not in html
    assert "measured by builtin_b and quality:rude/two" in html


def test_a_judge_that_steers_and_measures_is_called_out(cli, tmp_path: Path):
    cli(*STARDTOX, "--model", "rude/one", "--preset", "paper", "--out", "p")

    [warning] = [
        line
        for line in (tmp_path / "p/index.html").read_text(encoding="utf-8").split("<li>")
        if line.startswith("The judge that steers")
    ]
    assert "--quality SPEC" in warning
    quality = [row for row in rows_of(tmp_path / "p/claims.csv") if row["text"] == "Quality is not sacrificed"]
    assert quality and all(row["verdict"] != "holds" for row in quality)


def test_the_dry_run_prices_each_preset(cli):
    result = cli(*MABRF, "--model", "rude/one", "--price", "rude/one=1/2", "--dry-run", "--out", "p")

    assert result.code == 0, result
    assert "bbq_builtin, into p/bbq" in result.out
    alone = [line for line in result.out.splitlines() if line.startswith("With --preset")]
    assert [line.split()[2] for line in alone] == ["paper", "evenhand"]
    assert all("$" in line for line in alone)


@pytest.mark.parametrize(
    ("paper", "preset"),
    [
        *(("mabrf", each) for each in ("paper", "released", "evenhand", "both", "all")),
        *(("stardtox", each) for each in ("paper", "evenhand")),
        *(("malibu", each) for each in ("paper", "evenhand")),
    ],
)
def test_every_preset_that_there_is_can_be_priced(cli, paper: str, preset: str):
    few = () if paper == "malibu" else ("--builtin",)
    compared = ("--compared", "1") if paper == "malibu" else ()

    result = cli(
        "papers", paper, "--model", "rude/one", *few, *compared, "--limit", "1", "--preset", preset, "--dry-run"
    )

    assert result.code == 0, result
    assert ("preset=released" in result.out) is (preset in ("released", "all"))


@pytest.mark.parametrize("preset", ["paper", "released", "evenhand"])
def test_every_preset_of_a_training_can_be_priced(cli, preset: str):
    result = cli(
        "papers", "rldf", "--model", "hf/a/m", "--judge", "rude/one", "--teacher", "rude/one", "--train",
        "--bias", "age", "--preset", preset, "--set", "debate.topics=4", "--set", "debate.held_out=2", "--builtin",
        "--limit", "1", "--out", "p", "--dry-run",
    )  # fmt: skip

    assert result.code == 0, result


def test_a_preset_of_rldf_alone_is_about_its_training(cli, tmp_path: Path):
    asked = ("papers", "rldf", "--model", "hf/a/m", "--preset", "paper", "--builtin", "--limit", "1")

    priced, made = cli(*asked, "--dry-run"), cli(*asked)

    assert priced.code == 0, priced
    assert "preset=paper" in priced.out
    assert made.code == 2
    assert "say where they go with --out" in made.err


@pytest.mark.parametrize("preset", ["both", "all"])
def test_several_presets_of_rldf_measure_models_that_there_are(cli, preset: str):
    result = cli("papers", "rldf", "--model", "rude/one", "--preset", preset, "--builtin", "--limit", "1", "--dry-run")

    assert result.code == 0, result
    assert "bbq_builtin" in result.out
    assert not any(words in result.out for words in ("trainings", "debates, into", "With --preset"))


@pytest.mark.parametrize("paper", ["stardtox", "malibu"])
def test_a_preset_that_a_paper_does_not_have_is_refused_in_one_sentence(cli, paper: str):
    result = cli("papers", paper, "--model", "rude/one", "--preset", "released", "--dry-run")

    assert result.code == 2
    assert "This paper has no preset 'released': its authors have released no code that could be read" in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_one_preset_is_priced_once(cli):
    result = cli(*MABRF, "--model", "rude/one", "--preset", "paper", "--dry-run")

    assert result.code == 0, result
    assert "With --preset" not in result.out
    assert "mabrf(preset=paper)" in result.out


def test_options_of_methods_go_to_all_their_arms(cli, tmp_path: Path):
    result = cli(
        *MABRF, "--model", "rude/one", "--preset", "paper", "--method", "mabrf:iterations=1", "--domain", "--out", "p"
    )

    assert result.code == 0, result
    loops = [options for name, options in methods_of(tmp_path / "p/bbq") if name == "mabrf"]
    assert [each["iterations"] for each in loops] == [1, 1]
    assert all(each["domain"] and each["preset"] == "paper" for each in loops)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--preset", "papers"), "This paper has no preset 'papers': choose one of paper, released, evenhand"),
        (("--method", "mabfr:iterations=1"), "did you mean mabrf"),
        (("--method", "mabrf:iteration=1"), "did you mean iterations"),
        (("--method", "mabrf:iterations"), "KEY=VALUE"),
        (("--steer", "builtin"), "no use for --steer"),
        (("--model", "solver=rude/a", "--model", "solver=rude/b"), "only judges may be several"),
    ],
)
def test_what_cannot_be_is_one_sentence(cli, tmp_path: Path, args: tuple[str, ...], words: str):
    result = cli(*MABRF, "--model", "rude/one", *args, "--out", "p")

    assert (result.code, "Traceback" in result.err) == (2, False)
    assert words in result.err
    assert not (tmp_path / "p").exists()


def test_several_judges_are_all_asked_and_their_disagreement_is_reported(cli, models, tmp_path: Path):
    judges = ("--model", "judge=rude/two", "--model", "judge=rude/three", "--judge-pool", "vote")
    result = cli(*MABRF, "--model", "rude/one", "--preset", "evenhand", *judges, "--out", "p")

    assert result.code == 0, result
    assert models["two"].requests and len(models["two"].requests) == len(models["three"].requests)
    assert "judges that agreed" in (tmp_path / "p/index.html").read_text(encoding="utf-8")


def test_base_models_fill_the_rows_of_gpt_2(cli, tmp_path: Path):
    pytest.importorskip("transformers")
    make_byte_model(tmp_path / "gpt2", template=None)

    result = cli(
        *STARDTOX,
        "--model",
        "rude/one",
        "--preset",
        "evenhand",
        "--base-model",
        f"hf/{tmp_path / 'gpt2'}",
        "--out",
        "p",
    )

    assert result.code == 0, result
    ours = {(row["method"], row["setting"]) for row in rows_of(tmp_path / "p/table2.csv") if int(row["n"])}
    assert ("Self-Debias (Gen)", "GPT-2 Standard") in ours
    assert ("Base model as it is", f"hf/{tmp_path / 'gpt2'}") in ours
    turns = Store(tmp_path / "p/self_debias")
    [models] = turns.get("plan")["models"]
    assert (models["base"]["extra"], models["judge"]["spec"]) == ({"template": "none"}, "rude/one")
