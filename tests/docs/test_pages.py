"""The pages are for people in a hurry: nothing is said twice, nothing was lost, and titles are answered at once."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from support.docs import DOCS, PAGES, ROOT, commands, name, prose

_PLACES = (Path(__file__).parent / "places.txt").read_text(encoding="utf-8").splitlines()
_GENERATED = DOCS / "reference" / "options.md"
_KILOBYTES = 350
_WORDS = 8
_LONG_ROW = 50
"""Letters and digits; shorter rows may be alike by chance."""


def sentences(page: Path) -> set[str]:
    """The sentences of a page with at least eight words, without marks, links and tables' bars."""
    text = re.sub(r"\]\([^)]*\)", "]", prose(page))
    text = re.sub(r"^(?:#.*|\|[-|]+)$", "\n\n", text, flags=re.MULTILINE)
    parts = re.split(r"(?<=[.!?:;])\s+|\n\n|\n(?=[-|])|\|", re.sub(r"[*`\[\]]", "", text))
    words = (" ".join(re.findall(r"\w+", part.lower())) for part in parts)
    return {sentence for sentence in words if sentence.count(" ") >= _WORDS - 1}


def test_no_sentence_is_on_two_pages():
    pages = defaultdict[str, list[str]](list)
    for page in PAGES:
        if page != _GENERATED:
            for sentence in sentences(page):
                pages[sentence].append(name(page))

    assert not {sentence: places for sentence, places in pages.items() if len(places) > 1}


def test_no_row_of_a_table_is_on_two_pages():
    pages = defaultdict[str, set[str]](set)
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("|") and re.sub(r"\W", "", line)[_LONG_ROW:]:
                pages[line].add(name(page))

    assert not {line: places for line, places in pages.items() if len(places) > 1}


def test_every_command_of_the_former_pages_has_a_place():
    typed = {" ".join(["evenhand", *command.words]) for command in commands(tuple({*PAGES} - {_GENERATED}))}
    former = [place for place in _PLACES if place.startswith("evenhand ")]

    assert not [place for place in former if not any(f"{line} ".startswith(f"{place} ") for line in typed)]


def test_every_option_of_the_former_pages_has_a_place():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = {*re.findall(r"(?<![\w-])--[a-z][a-z-]+\b", text), *re.findall(r"`([a-z_]+)[`=]", text)}

    assert not {place for place in _PLACES if not place.startswith("evenhand ")} - named


def test_the_pages_stay_small():
    assert sum(page.stat().st_size for page in DOCS.rglob("*.md")) < _KILOBYTES * 1024
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name)
def test_a_page_answers_its_title_before_anything_else(page: Path):
    title, first = re.match(r"# ([^\n]+)\n\n(.+?)(?:\n\n|\Z)", page.read_text(encoding="utf-8"), re.DOTALL).groups()  # pyright: ignore

    assert not first.startswith(("|", "```", "#", "- ", "**", "::")), f"{title}: {first}"
