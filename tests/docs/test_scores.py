"""The page on scores has every metric and attribute, and says the direction that the code declares."""

import re

import pytest

from evenhand import BENCHMARKS, SCORERS, load_benchmark
from support.docs import DOCS

PAGE = (DOCS / "measure" / "scores.md").read_text(encoding="utf-8")
SECTIONS = {
    "agents": "Agents and conversations",
    "bbq": "BBQ",
    "bbq_builtin": "BBQ",
    "conversations": "Agents and conversations",
    "crows_pairs": "CrowS-Pairs",
    "debates": "Debates",
    "decisions": "Decisions",
    "difference_awareness": "Difference awareness",
    "framing": "Framing",
    "fresh": "Fresh questions",
    "hiring": "Hiring",
    "hiring_builtin": "Hiring",
    "imported": "Imported answers",
    "imported_choices": "Imported answers",
    "malibu": "MALIBU",
    "opinions": "Opinions",
    "overrefusal": "Over-refusal",
    "political": "Political",
    "prompts": "Your own prompts",
    "realtoxicity": "RealToxicityPrompts",
    "realtoxicity_builtin": "RealToxicityPrompts",
    "squad": "SQuAD",
    "stances": "Stances",
    "squad_builtin": "SQuAD",
    "stereoset": "StereoSet",
}


def rows(section: str) -> dict[str, tuple[str, str]]:
    """Score → the direction that is good, and what is said about it."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found: dict[str, tuple[str, str]] = {}
    for names, good, meaning in re.findall(r"^\| (`[^|]+) \| (\S+) \| (.+) \|$", text, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`([^`]+)`", names), (good, meaning))
    return found


def test_every_benchmark_has_a_section():
    ours = {name for name in BENCHMARKS.names() if BENCHMARKS.get(name).__module__.startswith("evenhand.")}
    assert ours - {*SECTIONS} == {"bbq_hard"}  # BBQ's scores; it cannot be made without a list


@pytest.mark.parametrize("name", SECTIONS)
def test_every_metric_is_explained_with_its_direction(name: str):
    said = rows("In all benchmarks") | rows(SECTIONS[name])
    options = {"legacy": True} if name.startswith("bbq") else {}
    options |= {"language": "ko"} if name == "bbq" else {"data": "FILE"} if name == "fresh" else {}

    for metric in load_benchmark(name, **options).metrics():
        base = re.sub(r"_(?:dis)?ambig$", "", metric.name)
        assert metric.name in said or base in said, metric.name
        good, _ = said.get(metric.name) or said[base]
        assert good == (metric.better or "–"), metric.name


@pytest.mark.parametrize("name", SCORERS.names())
def test_every_attribute_of_a_scorer_is_explained(name: str):
    assert {*SCORERS.get(name).attributes} <= {*rows("Scorers")}


@pytest.mark.parametrize("section", ["In all benchmarks", *dict.fromkeys(SECTIONS.values()), "Scorers"])
def test_an_explanation_has_two_sentences(section: str):
    for score, (_, meaning) in rows(section).items():
        assert len(re.findall(r"[.!?](?: |$)", meaning)) == 2, score
