"""Three named presets for each paper: declared once, held against the code, shown in the docs, run by the command."""

from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.malibu import MalibuOptions
from evenhand.core.errors import UsageError
from evenhand.papers.base import PAPERS, PRESETS, PresetField
from evenhand.papers.page import element_rows
from evenhand.papers.rldf.arms import DECLARED, stages_of
from evenhand.papers.rldf.steps import STAGES
from support.papers import options_of

ROOT = Path(__file__).parents[2]
NAMES = {
    "mabrf": ("paper", "released", "evenhand"),
    "stardtox": ("paper", "evenhand"),
    "malibu": ("paper", "evenhand"),
    "rldf": ("paper", "released", "evenhand"),
}


def options_class(paper: str) -> Any:
    return PAPERS.get(paper).Options


@pytest.mark.parametrize("paper", NAMES)
def test_a_paper_has_the_presets_that_its_declarations_name(paper: str):
    assert issubclass(options_class(paper), PresetField)
    assert options_class(paper).names() == NAMES[paper]


@pytest.mark.parametrize("paper", NAMES)
def test_every_element_says_what_each_preset_does_and_why(paper: str):
    elements = PAPERS.get(paper).elements

    assert len(elements) > 5
    for each in elements:
        assert tuple(name for name in PRESETS if name in each.said) == NAMES[paper], each.name
        assert each.why, each.name
        for values in each.options.values():
            assert set(values) == set(NAMES[paper]), each.name


@pytest.mark.parametrize("paper", NAMES)
def test_an_element_whose_option_does_not_differ_is_none(paper: str):
    for each in PAPERS.get(paper).elements:
        differing = [len({repr(value) for value in values.values()}) > 1 for values in each.options.values()]
        assert not each.options or any(differing) or "as printed" in each.why, each.name


@pytest.mark.parametrize("paper", NAMES)
def test_a_preset_that_there_is_not_is_refused_in_one_sentence(paper: str):
    model = "hf/m" if paper == "rldf" else "fake/A"
    with pytest.raises(UsageError, match="has no preset 'printed': choose one of paper, "):
        options_of(type(PAPERS.get(paper)), model, preset="printed")


@pytest.mark.parametrize("paper", ["stardtox", "malibu"])
def test_without_code_of_the_authors_there_is_no_released_preset(paper: str):
    with pytest.raises(UsageError, match="no preset 'released': its authors have released no code that could be read"):
        options_of(type(PAPERS.get(paper)), "fake/A", preset="released")


def test_the_values_of_malibus_scenes_are_those_of_the_code():
    for each in MalibuOptions.presets.elements:
        for option, values in each.options.items():
            assert values["evenhand"] == MalibuOptions.model_fields[option].default, option


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_the_stages_of_rldf_have_the_declared_options(preset: str):
    stages = stages_of(preset)

    assert stages["debate"]["preset"] == preset
    assert all(name in STAGES[stage] for stage, values in stages.items() for name in values)
    assert stages["ppo"]["algorithm"] == {"paper": "ppo", "released": "remax"}[preset]
    assert stages["pairs"]["policy"] == {"paper": "threshold", "released": "rounds"}[preset]
    assert stages["debate"]["held_out"] == 100
    released = {"lora": 8, "lora_layers": "q_proj,v_proj", "lora_dropout": 0.05}
    adapted = {"paper": {"lora_dropout": 0.0}, "released": released}[preset]
    for stage in ("sft", "reward", "ppo"):
        found = {name: value for name, value in stages[stage].items() if name.startswith("lora")}
        assert found == ({} if stage == "ppo" else adapted), stage
    rising = {"paper": [None] * 3, "released": [200, 200, 0]}[preset]
    assert [stages[stage].get("warmup") for stage in ("sft", "reward", "ppo")] == rising
    assert [stages[stage]["lr_decay"] for stage in ("sft", "reward")] == ["linear", "linear"]
    assert stages["reward"]["from_base"] is (preset == "released")
    assert [stages[stage]["batch"] for stage in ("sft", "reward", "ppo")] == [16, 32, 4]
    assert "train" not in stages
    assert (stages["sft"]["lr"], stages["sft"]["epochs"]) == {"paper": (2e-5, 1), "released": (5e-5, 3)}[preset]
    assert stages["ppo"]["drift_limits"] is False
    if preset == "released":
        assert [stages[stage]["max_length"] for stage in ("sft", "reward", "ppo")] == [1024, 512, 1024 + 512]
    assert stages["ppo"]["weight_decay"] == {"paper": 0, "released": 0.1}[preset]
    assert stages["ppo"]["lr_decay"] == {"paper": "constant", "released": "cosine"}[preset]


def test_what_rldf_declares_of_ours_is_the_default_of_each_stage():
    for each in DECLARED.elements:
        for name, values in each.options.items():
            stage, _, option = name.partition(".")
            # Sizes of debates and pairs, and how a threshold reads, have no default in the table of stages.
            if values["evenhand"] is not None and name not in ("pairs.threshold", "pairs.length_ratio"):
                assert values["evenhand"] == STAGES[stage][option], name


@pytest.mark.parametrize("paper", NAMES)
def test_the_documentation_has_the_table_that_is_made_from_the_declarations(paper: str):
    heads, rows = element_rows(PAPERS.get(paper).elements)
    page = (ROOT / f"docs/papers/{paper}.md").read_text(encoding="utf-8")

    table = "\n".join(
        [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    )
    assert table in page, "run .venv/bin/python tools/presets_page.py"
