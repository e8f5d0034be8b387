"""The checks of one request: what every evaluator says of every answer, asked for once and remembered.

They stand between a method and its evaluators, so that an answer that the method had judged is not judged again for
the record. A disguised text is also checked without its disguise, and its toxicity is that of its worst unit (see
`segments.units`). If an evaluator fails or cannot read a text, the text is unchecked, with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from evenhand.core import aio, language
from evenhand.core.specs import spec_parts
from evenhand.core.tracing import Value, span
from evenhand.core.types import Answer, Sample, Unscored
from evenhand.evaluators.base import Evaluator, Thresholds, Verdict
from evenhand.evaluators.rules import excess, json_form, toxicity_verdict
from evenhand.guards.disguise import decoded, has_foreign_words, has_words, revealed
from evenhand.guards.segments import new_pieces, units
from evenhand.guards.types import Check
from evenhand.scorers.base import Scorer
from evenhand.session import Session

LATE = "it was not checked in time"
NO_WORDS = "there are no words to check"
FOREIGN = "it has words in a script that the scorer does not read"
_LIMITS = {"injection_judge": "injection", "claims": "claims"}
"""Evaluators whose score has a limit, and the threshold that it is."""
_IN_PROCESS = ("builtin", "builtin_b", "cascade", "neural", "detoxify")
_IN_THREAD = 20_000
"""Longer texts are read in a thread, so that the event loop is not blocked."""
_AT_ONCE = 12
"""Units that are scored before others have their turn."""


class Checks:
    """The evaluators of a guard and what they have said about the answers to one request.

    With `lenient`, a text that could not be checked is no reason for a revision.
    """

    def __init__(self, evaluators: Sequence[Evaluator], thresholds: Thresholds, *, lenient: bool = False) -> None:
        self.evaluators = evaluators
        self.seconds = 0.0
        self._thresholds = thresholds
        self._lenient = lenient
        self._said: dict[tuple[str, str], Verdict | Unscored] = {}
        self._scorer: Scorer | None = None
        self._since = ("", 0)
        """A text, and how many characters at its start have been scored before, as those of a stream have."""

    async def evaluate(
        self, evaluator: Evaluator, sample: Sample, answer: Answer, session: Session
    ) -> Verdict | Unscored:
        """What an evaluator says; its failure is Unscored. Sessions ask their evaluators through this."""
        key = (evaluator.name, answer.text)
        if key not in self._said:
            began = time.perf_counter()
            try:
                with span(f"check {evaluator.name}", {"gen_ai.evaluation.name": evaluator.name}) as check:
                    said = await self._judged(evaluator, sample, answer, session.with_options(self._thresholds))
                    self._said[key] = said
                    if check is not None:
                        check.set(_result(said))
            except Exception as error:  # a broken evaluator must not take the answer down
                self._said[key] = Unscored(str(error) or type(error).__name__)
            self.seconds += time.perf_counter() - began
        said = self._said[key]
        if self._lenient and isinstance(said, Unscored):
            return Verdict(passed=True, details=said.reason)
        return said

    async def run(self, session: Session, text: str, *beside: str, since: int = 0) -> tuple[Check, ...]:
        """Run the evaluators that have not judged these texts yet; return all checks of the texts.

        The first `since` characters of the text were scored before.
        """
        self._since = (text, min(since, len(text) - 1))
        work = [
            self.evaluate(each, session.sample, Answer(said), session)
            for each, said in self._pairs(text, beside)
            if (each.name, said) not in self._said
        ]
        if len(work) == 1:
            await work[0]
        elif work:
            await aio.all_of(work)
        return self.known(text, *beside)

    def known(self, text: str, *beside: str) -> tuple[Check, ...]:
        """Return the worst known checks of an answer's text and of what it says beside it; a missing one fails."""
        found: dict[str, Check] = {}
        for each, said in self._pairs(text, beside):
            check = self._check(each, said)
            found[each.name] = max(found.get(each.name, check), check, key=check_severity)
        return tuple(found.values())

    def excess(self, text: str) -> float:
        """Return by how much a text exceeds its thresholds."""
        said = (self._said.get((each.name, text)) for each in self.evaluators)
        return sum(each.excess for each in said if isinstance(each, Verdict))

    def forget_all_but(self, text: str) -> None:
        """Forget what was said about other texts, so that a long stream does not fill the memory."""
        self._said = {key: said for key, said in self._said.items() if key[1] == text}

    def _pairs(self, text: str, beside: Sequence[str]) -> Iterator[tuple[Evaluator, str]]:
        """Yield the evaluators and what each reads; the form of an answer is that of its text alone."""
        for each in self.evaluators:
            yield each, text
            if each is not json_form:
                yield from ((each, said) for said in beside if said)

    async def _judged(
        self, evaluator: Evaluator, sample: Sample, answer: Answer, session: Session[Thresholds]
    ) -> Verdict | Unscored:
        if evaluator is json_form:
            return await evaluator.evaluate(sample, answer, session)
        if len(answer.text) < _IN_THREAD:
            views, foreign = _read(answer.text)
        else:
            views, foreign = await asyncio.to_thread(_read, answer.text)
        if not views:
            return Verdict(passed=True, details=NO_WORDS)
        scorer = session.scorers(self._thresholds.scorer) if evaluator.name == "toxicity" else None
        self._scorer = scorer or self._scorer
        found = [
            await self._worst_unit(scorer, sample, view)
            if scorer is not None and _is_in_process(self._thresholds)
            else await evaluator.evaluate(sample, Answer(view), session)
            for view in views
        ]
        if isinstance(found[0], Unscored) and len(found) > 1 and not _is_in_another_language(found[0], answer.text):
            del found[0]  # what cannot be read because of its disguise is judged without it
        worst = max(found, key=_severity)
        if foreign and scorer is not None and scorer.latin_only and isinstance(worst, Verdict) and worst.passed:
            return Unscored(FOREIGN)
        return worst

    async def _worst_unit(self, scorer: Scorer, sample: Sample, text: str) -> Verdict | Unscored:
        """Judge the most harmful unit; Unscored if most of the text is, or one sentence for its language."""
        known, since = self._since
        since = since if text == known else 0
        # What is said again and again is scored once.
        cut = partial(dict.fromkeys, units(text, since))
        parts = list(cut() if len(text) < _IN_THREAD else await asyncio.to_thread(cut))
        if not parts:
            return Verdict(passed=True, details=NO_WORDS)
        found: list[Mapping[str, float] | Unscored] = []
        for first in range(0, len(parts), _AT_ONCE):
            some = parts[first : first + _AT_ONCE]
            found += await scorer.score(some, [sample.prompt] * len(some))
            if first + _AT_ONCE < len(parts):
                await asyncio.sleep(0)  # a few at a time: a thread would wait for a busy loop after every step
        unread = [(part, each) for part, each in zip(parts, found, strict=True) if isinstance(each, Unscored)]
        if 2 * sum(len(part) for part, _ in unread) > sum(map(len, parts)):
            return unread[0][1]
        read = [each for each in found if not isinstance(each, Unscored)]
        worst = max(read, key=lambda each: excess(each, self._thresholds, scorer))
        verdict = toxicity_verdict(worst, self._thresholds, scorer)
        if isinstance(verdict, Unscored) or not verdict.passed:
            return verdict
        return await self._foreign(scorer, text, since) or verdict

    async def _foreign(self, scorer: Scorer, text: str, since: int) -> Unscored | None:
        """Return why a sentence cannot be scored for its language: beside others it would pass for theirs."""
        doubtful: dict[str, None] = {}
        for number, piece in enumerate(new_pieces(text, since), 1):
            if scorer.languages and language.unsupported(piece, scorer.languages):
                doubtful[piece] = None
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        found = await scorer.score(list(doubtful)) if doubtful else []  # some are disguises, which it undoes
        unread = (each for each in found if isinstance(each, Unscored) and each.reason.startswith(language.REASON))
        return next(unread, None)

    def _check(self, evaluator: Evaluator, text: str) -> Check:
        name, limit = evaluator.name, self._limit(evaluator.name)
        said = self._said.get((name, text))
        if said is None:
            wordless = evaluator is not json_form and not has_words(text)
            return Check(name, None, limit, wordless or self._lenient, problem=NO_WORDS if wordless else LATE)
        if isinstance(said, Unscored):
            return Check(name, None, limit, self._lenient, problem=said.reason)
        if said.details == NO_WORDS:
            return Check(name, None, limit, True, problem=NO_WORDS)
        score = said.harm if said.harm is not None else said.quality
        return Check(name, score, limit, said.passed, words="" if said.passed else said.critique)

    def _limit(self, name: str) -> float | None:
        if name in ("toxicity", "bias"):
            return self._thresholds.limit("toxicity", self._scorer if name == "toxicity" else None)
        return getattr(self._thresholds, _LIMITS[name]) if name in _LIMITS else None


def _result(said: Verdict | Unscored) -> dict[str, Value]:
    """Return what a trace shows of a check."""
    if isinstance(said, Unscored):
        return {"gen_ai.evaluation.score.label": "unscored"}
    score = said.harm if said.harm is not None else said.quality
    facts: dict[str, Value] = {"gen_ai.evaluation.score.label": "passed" if said.passed else "failed"}
    return facts if score is None else {**facts, "gen_ai.evaluation.score.value": score}


def is_unchecked(check: Check) -> bool:
    """Return whether a text that has words could not be checked."""
    return bool(check.problem) and check.problem != NO_WORDS


def _read(text: str) -> tuple[list[str], bool]:
    """The text, and what it says without its disguise if it has one; and whether it has words of other scripts."""
    shown = revealed(text)
    hidden = [said for each in dict.fromkeys((text, shown)) if (said := decoded(each))]
    views = (text, shown, revealed("\n".join(hidden)))
    return [each for each in dict.fromkeys(views) if has_words(each)], has_foreign_words("\n".join((text, *hidden)))


def _is_in_another_language(said: Unscored, text: str) -> bool:
    """Whether the words are of another language; letters of another script may disguise English words."""
    return said.reason.startswith(language.REASON) and not language.other_script(text)


def _severity(said: Verdict | Unscored) -> tuple[int, float, float]:
    if isinstance(said, Unscored):
        return 1, 0.0, 0.0
    return 0 if said.passed else 2, said.excess, said.harm or 0.0


def check_severity(check: Check) -> tuple[bool, bool, bool, float]:
    """Return the order of checks: the worst is the largest."""
    unchecked = is_unchecked(check)
    return not check.passed and not unchecked, unchecked, check.score is not None, check.score or 0.0


def failed(checks: Sequence[Check]) -> tuple[str, ...]:
    return tuple(
        f"{each.name} could not be checked: {each.problem}" if each.problem else each.name
        for each in checks
        if not each.passed
    )


def is_quick(evaluator: Evaluator, thresholds: Thresholds) -> bool:
    """Return whether the evaluator is fast enough for every segment of a stream: it makes no calls."""
    return evaluator.free and (evaluator.name != "toxicity" or _is_in_process(thresholds))


def _is_in_process(thresholds: Thresholds) -> bool:
    return spec_parts(thresholds.scorer)[0] in _IN_PROCESS
