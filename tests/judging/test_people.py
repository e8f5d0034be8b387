"""Judges and scorers against the labels of people in public sets; without such sets, the certificate says so."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from evenhand.core.types import Message, Params
from evenhand.judging.card import labelled
from evenhand.judging.instruments import Checked, check_scorer, with_people
from evenhand.judging.scorers import OpinionScorer
from evenhand.models.fake import FunctionModel
from evenhand.scorers.base import Scorer, load_scorer
from evenhand.show.certificates import people_sentences
from support.judges import quoted, rated, seeing

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Path:
    place = Path(os.environ.get("EVENHAND_DATA") or ROOT.parent / "shared" / "data")
    if not (place / "toxicity" / "toxigen_prompts").is_dir():
        pytest.skip(f"no labelled texts: looked for toxicity/toxigen_prompts in {place} (EVENHAND_DATA)")
    monkeypatch.setenv("EVENHAND_DATA", str(place))
    return place


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sets in the form of the public ones, with harmless texts of our own."""
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path))
    for folder in ("toxigen_prompts", "edos"):
        (tmp_path / folder).mkdir()
    rows = [{"text": f"Text {n} about people.", "label": n % 2} for n in range(40)]
    (tmp_path / "toxigen_prompts" / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lines = [f"{n},Remark {n} about women.,{'sexist' if n % 2 else 'not sexist'},test" for n in range(40)]
    (tmp_path / "edos" / "edos_labelled_aggregated.csv").write_text(
        "\n".join(["rewire_id,text,label_sexist,split", *lines])
    )


def judging(*, agrees: bool):
    """A judge that sees the controls, and agrees with people on public texts or rates these all alike."""

    def reply(messages: Sequence[Message], params: Params) -> str:
        if rated(messages) is not None:
            return seeing(messages, params)
        number = int("".join(each for each in quoted(messages)[-1] if each.isdigit()) or 0)
        value = 90 if agrees and number % 2 else 10
        return json.dumps({"bias": value, "communication": 50, "soundness": 50})

    return reply


async def against_people(scorer: Scorer, model: FunctionModel, name: str, sample: int = 20) -> Checked:
    checked = await check_scorer(scorer, model, [name], ["written"])
    return await with_people(checked, scorer, model, sample)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("agrees", "area"), [(True, 1.0), (False, 0.5)])
async def test_a_judge_that_passes_the_controls_may_still_disagree_with_people(agrees: bool, area: float):
    model = FunctionModel(judging(agrees=agrees))

    checked = await against_people(OpinionScorer(model), model, "bias")

    [found] = checked.certificates
    assert found.sees
    assert {name: each.estimate for name, each in found.people.items()} == {"ToxiGen prompts": area, "EDOS": area}
    assert any(
        each.startswith(f"opinion.bias against people's labels in EDOS: AUC {area:.2f}")
        for each in people_sentences([checked])
    )


async def test_without_public_sets_the_certificate_says_that_people_were_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path))
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))
    model = FunctionModel(judging(agrees=True))

    checked = await against_people(OpinionScorer(model), model, "bias")

    assert people_sentences([checked]) == ["Not validated against people: opinion.bias."]


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(("spec", "least"), [("builtin", 0.85), ("builtin_b", 0.85)])
async def test_the_built_in_scorers_agree_with_people_who_labelled_tweets(spec: str, least: float):
    model = FunctionModel(lambda *_: "")

    checked = await against_people(load_scorer(spec), model, "toxicity", 200)

    [found] = checked.certificates
    assert found.sees
    assert (found.people["Davidson"].estimate or 0) > least
    assert people_sentences([checked])[0].startswith(f"{spec}.toxicity against people's labels in Davidson")


@pytest.mark.usefixtures("data")
def test_public_sets_have_as_many_texts_of_each_label():
    found = {**labelled("prejudice", 20), **labelled("toxicity", 20)}

    assert {name: [each.high for each in texts].count(True) for name, texts in found.items()} == {
        "ToxiGen prompts": 20,
        "EDOS": 20,
        "Davidson": 20,
    }
