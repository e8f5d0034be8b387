"""The arms of StarDTox's runs, and the rows of its tables that they fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.papers.base import PRESETS, preset_of
from evenhand.runs.plan import ArmKey
from evenhand.studies.results import ArmResult, StudyResult

NAME = "stardtox"
TEXTS, CHOICES, BASES = "realtoxicity", "bbq", "self_debias"
"""The runs: completions, questions, and completions of models without instruction tuning."""
ITERATIONS = (1, 2)
_SIZES = {"gpt2": "Standard", "gpt2-medium": "Medium", "gpt2-large": "Large", "gpt2-xl": "XL"}
"""The models of the paper's rows of Self-Debias (Gen)."""


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm of the paper's runs."""

    method: str
    preset: str = ""
    """The preset of StarDTox; empty for methods without one."""
    performance: bool = True
    """Whether StarDTox's performance evaluator takes part."""

    @property
    def title(self) -> str:
        return self.method if self.performance else f"{self.method} without performance"

    def fits(self, key: ArmKey) -> bool:
        if key.method != self.method:
            return False
        with_performance = bool(key.options.get("performance", True))
        return not self.preset or (preset_of(key), with_performance) == (self.preset, self.performance)


DEFAULT, FAIR = Arm("default"), Arm("fair_prompt")
STEERED = Arm("self_debias_gen")
EXPLAINED, REPROMPTED = Arm("self_debias_explain"), Arm("self_debias_reprompt")


@dataclass(frozen=True, slots=True)
class Line:
    """A row: our arm (None if there is none) and its name in the paper (empty if it is not there)."""

    method: str
    setting: str
    arm: Arm | None
    published_as: str
    iteration: int | None = None


_DEFAULT = Line("Default", "", DEFAULT, "GPT-3.5 Default")
_FAIR = Line("Fairness-aware prompt", "", FAIR, "GPT-3.5 + Fairness-aware Prompt")


def text_lines(presets: Sequence[str]) -> list[Line]:
    """Returns the rows of Table II, without those of Self-Debias on other models."""
    return [
        _DEFAULT,
        _FAIR,
        Line("Self-Debias (Gen)", "this model", STEERED, ""),
        *_iterations("StarDTox w/ performance", "STARDTOX w/ Performance", presets, performance=True),
        *_iterations("StarDTox w/o performance", "STARDTOX w/o Performance", presets, performance=False),
    ]


def choice_lines(presets: Sequence[str]) -> list[Line]:
    """Returns the rows of Table III."""
    return [
        _DEFAULT,
        _FAIR,
        *_iterations("StarDTox", "STARDTOX", presets, performance=True),
        Line("Self-Debias (QA)", "Explanation", EXPLAINED, "Self-Debias (QA), Explanation"),
        Line("Self-Debias (QA)", "Reprompting", REPROMPTED, "Self-Debias (QA), Reprompting"),
    ]


def _iterations(method: str, published_as: str, presets: Sequence[str], *, performance: bool) -> list[Line]:
    """Returns a row for each preset and iteration; the published numbers stand beside the first preset."""
    return [
        Line(
            method,
            f"{preset}, Iter. {k}",
            Arm(NAME, preset, performance),
            f"{published_as}, Iter. {k}" if preset == presets[0] else "",
            k,
        )
        for preset in presets
        for k in ITERATIONS
    ]


def size_of(spec: str) -> str:
    """Returns the size of GPT-2 that a spec names, as in the paper; empty for other models."""
    return _SIZES.get(spec.partition("?")[0].rpartition("/")[2].lower(), "")


def sizes() -> tuple[str, ...]:
    return tuple(_SIZES.values())


def presets_in(studies: Sequence[StudyResult]) -> list[str]:
    """Returns the presets of StarDTox that were run; all if none was."""
    found = {preset_of(arm.key) for each in studies for arm in each.arms if arm.key.method == NAME}
    return [each for each in PRESETS if each in found or not found]


def find_arm(found: StudyResult | None, arm: Arm | None, iteration: int | None = None) -> ArmResult | None:
    """Returns the arm's results; if no item needed the iteration, the final ones."""
    if found is None or arm is None:
        return None
    fitting = [each for each in found.arms if arm.fits(each.key)]
    at = [each for each in fitting if each.iteration == iteration]
    return next(iter(at or [each for each in fitting if each.iteration is None]), None)
