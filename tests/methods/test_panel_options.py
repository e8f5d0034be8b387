"""The panels' options: what is refused before any call, and the personas."""

import os
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError, PlanError, UsageError
from evenhand.methods.base import METHODS
from evenhand.methods.panel.judges import MOST_JUDGES, PanelOptions, personas_for

PANELS = ["panel", "fair_panel", "blind_panel"]


def check(method: str, **options: Any) -> None:
    chosen = METHODS.get(method)
    given = chosen.with_options(options)
    if chosen.check is not None:
        chosen.check("judgement", given)


@pytest.mark.parametrize("method", ["judge", *PANELS])
def test_the_defaults_are_fine(method: str):
    check(method)


def test_panels_serve_choices_and_judgements_and_take_a_model_for_every_judge():
    for name in PANELS:
        method = METHODS.get(name)
        assert method.kinds == ({"judgement"} if name == "blind_panel" else {"choice", "judgement"})
        assert method.roles == ("base", *(f"judge{number}" for number in range(1, 9)), "chair")


WRONG = [
    ({"judges": 0}, "judges of the method METHOD must be a whole number from 1 to 8, not 0"),
    ({"judges": 9}, "judges of the method METHOD must be a whole number from 1 to 8, not 9"),
    ({"judges": 2.5}, "judges of the method METHOD must be a whole number from 1 to 8, not 2.5"),
    ({"judges": "four"}, "judges of the method METHOD must be a whole number from 1 to 8, not 'four'"),
    ({"rounds": -1}, "rounds of the method METHOD must be a whole number from 0 to 20, not -1"),
    ({"rounds": True}, "rounds of the method METHOD must be a whole number from 0 to 20, not True"),
    ({"temperature": 3}, "temperature of the method METHOD must be a number from 0 to 2, not 3"),
    ({"max_tokens": -1}, "max_tokens of the method METHOD must be a whole number from 0 to 100000, not -1"),
    ({"order": "random"}, "order of the method METHOD must be round_robin or shuffled or together, not 'random'"),
    ({"topology": "ring"}, "topology of the method METHOD must be everyone or chain or star, not 'ring'"),
    ({"topology": ["star"]}, r"topology of the method METHOD must be everyone or chain or star, not \['star'\]"),
    ({"consensus": "vote"}, "consensus of the method METHOD must be mean or median or chair, not 'vote'"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=str)
@pytest.mark.parametrize("method", PANELS)
def test_nonsense_is_refused_in_one_sentence(method: str, options: dict[str, Any], words: str):
    with pytest.raises(PlanError, match=f"The option {words.replace('METHOD', method)}"):
        check(method, **options)


def test_a_judge_alone_has_nothing_to_discuss():
    with pytest.raises(UsageError, match="option of the method judge named 'rounds'"):
        check("judge", rounds=2)


def test_there_are_as_many_personas_as_judges_can_be():
    personas = personas_for(PanelOptions(judges=MOST_JUDGES))

    assert len(personas) == len(set(personas.values())) == MOST_JUDGES
    assert all(10 < len(text.split()) < 30 for text in personas.values())


def test_the_first_personas_are_taken():
    assert list(personas_for(PanelOptions(judges=2))) == ["practitioner", "client"]


def test_personas_of_your_own_are_lines_of_a_file(tmp_path: Path):
    file = tmp_path / "personas.yaml"
    file.write_text("cook: looks at\n  the taste\nguest: looks at the price\n", encoding="utf-8")

    assert personas_for(PanelOptions(personas=str(file), judges=2)) == {
        "cook": "looks at the taste",
        "guest": "looks at the price",
    }


def test_personas_that_were_changed_are_read_again(tmp_path: Path):
    file = tmp_path / "personas.yaml"
    options = PanelOptions(personas=str(file), judges=1)
    file.write_text("cook: looks at the taste\n", encoding="utf-8")
    personas_for(options)
    file.write_text("guest: looks at the price\n", encoding="utf-8")
    os.utime(file, ns=(0, 0))

    assert personas_for(options) == {"guest": "looks at the price"}


def test_more_judges_than_personas_are_refused(tmp_path: Path):
    file = tmp_path / "personas.yaml"
    file.write_text("cook: looks at the taste\n", encoding="utf-8")

    with pytest.raises(PlanError, match=r"There are 1 personas for 4 judges\. Add personas or use fewer judges"):
        check("panel", personas=str(file))


@pytest.mark.parametrize(
    "text",
    ["", "- cook\n- guest\n", "cook: 3\n", "cook:\n", "cook: looks\nguest: [price]\n", "'': looks\n", "cook: ''\n"],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str):
    file = tmp_path / "personas.yaml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(DataError, match="each persona must be a name and a description"):
        check("panel", personas=str(file), judges=1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "There is no such file"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"cook: [", "not valid YAML"),
        (b"cook: a: b", "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None, problem: str):
    file = tmp_path / "personas.yaml"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(DataError, match=rf"personas\.yaml.*{problem}.* Use a YAML file of names and descriptions\."):
        check("panel", personas=str(file))
