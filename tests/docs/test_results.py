"""Published results name what made them; a page whose command would give other rows today fails until it says so."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand.judging
from evenhand.scorers.base import SCORERS
from evenhand.training.options import VerifiableOptions

ROOT = Path(__file__).parents[2]
RESULTS, BENCH = ROOT / "docs" / "results", ROOT / "bench"
JUDGING = Path(evenhand.judging.__file__).parent
AGAIN = (
    "The numbers of docs/results/{} were made with other {}; run its command again, or say on the page what changed."
)


def test_the_scorers_of_a_page_are_the_present_ones():
    for page in ("instruments.md", "scorer-card.md"):
        text = (RESULTS / page).read_text(encoding="utf-8")
        for name, version in re.findall(r"`(builtin|builtin_b|neural)` (\d\.\d)", text):
            assert SCORERS.get(name)().id == f"{name}@{version}", AGAIN.format(page, "weights")


def test_the_judges_were_shown_the_present_controls():
    """The texts and the questions of all readings, as the models of the page saw them."""
    shown = [*sorted((JUDGING / "controls").glob("*.yaml")), JUDGING / "odds.md", JUDGING / "against.md"]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in shown)).hexdigest()[:16]

    assert digest == "9f31bb5065bd61bc", AGAIN.format("instruments.md", "controls")


@pytest.mark.parametrize(
    ("name", "value"),
    [("general", 0.3), ("keep", 4.0), ("lora", 16), ("max_new_tokens", 128), ("general_tokens", 320), ("rl", None)],
)
def test_the_recipe_of_the_trainings_is_the_default(name: str, value: object):
    assert VerifiableOptions.model_fields[name].default == value, AGAIN.format("verifiable.md", "defaults")


def test_withdrawn_pages_say_so_before_anything_else():
    for name in ("rldf", "rldf-135m"):
        page = (RESULTS / "pages" / f"{name}.html").read_text(encoding="utf-8")
        assert page.partition("<main>")[2].startswith('<p class="caveat"><b>Computed before judges were checked.</b>')


def test_pages_of_checked_judges_say_what_the_judge_does_not_see():
    for name in ("mabrf", "stardtox"):
        page = (RESULTS / "pages" / f"{name}.html").read_text(encoding="utf-8")
        assert "cannot be determined: the judge does not see it" in page
        assert "Computed before judges were checked." not in page


def test_the_picture_of_recipes_is_drawn_from_the_tables_of_its_page(tmp_path: Path):
    drawn = tmp_path / "recipes.svg"

    subprocess.run([sys.executable, BENCH / "verifiable" / "recipes.py", RESULTS / "verifiable.md", drawn], check=True)

    assert drawn.read_text() == (RESULTS.parent / "images" / "verifiable-recipes.svg").read_text()
