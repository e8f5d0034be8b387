"""Masking: the people are replaced by neutral labels, the question is answered, and the label is restored.

1. In the passage, the question and the options, every mention of a person among the options becomes "Person X",
   "Person Y" and so on, by rules: the words of the option without its article, those that set it apart
   from the other options ("bisexual" in "the bisexual person"), and the parts of a name.
2. The masked question is answered, as `default` does.
3. The chosen label stands for the option that it replaced.

A passage that mentions a person in other words than the option does is not masked: the question is answered as it is,
and `stop` is `not_masked`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from evenhand.asking.choice import choose
from evenhand.core.types import Answer, Outcome, Sample
from evenhand.methods.base import method
from evenhand.methods.default import plain_prompt
from evenhand.reading.text import abstains, unread
from evenhand.session import Session

_LABELS = "XYZWVUTS"
_ARTICLE = r"(?:(?:the|an?|my|our|his|her|their)\s+)?"
_NOBODY = frozenset(("the", "a", "an", "person", "one", "man", "woman", "friend", "with", "who", "is"))
"""Words that say nothing about who somebody is."""
_NAME = re.compile(r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)+")


@method("mask", kinds={"choice"})
async def mask(sample: Sample, session: Session) -> Outcome:
    """Masking: replace the people by neutral labels, answer, and restore."""
    if unscored := unread(f"{sample.context} {sample.prompt}"):
        return Outcome(unscored)
    masked = masked_sample(sample)
    if masked is None:
        return Outcome(await choose(session, sample, plain_prompt("choice")), stop="not_masked")
    result = await choose(session, masked, plain_prompt("choice"))
    if isinstance(result, Answer) and result.choice is not None:
        result = replace(result, text=sample.choices[result.choice])
    return Outcome(result, notes={"masked": masked.context})


def masked_sample(sample: Sample) -> Sample | None:
    """The sample with labels in place of people; None if the passage does not name all of them as the options do."""
    people = [option for option in sample.choices if not abstains(option)]
    if not 2 <= len(people) <= len(_LABELS):
        return None
    labels = {person: f"Person {label}" for person, label in zip(people, _LABELS, strict=False)}
    words = _words(labels)
    if not words:
        return None
    pattern = re.compile(
        rf"(?<!\w){_ARTICLE}({'|'.join(re.escape(each) for each in sorted(words, key=len, reverse=True))})(?!\w)",
        re.IGNORECASE,
    )

    def replaced(text: str) -> str:
        return pattern.sub(lambda match: words[match[1].lower()], text)

    context = replaced(sample.context)
    if any(label not in context for label in labels.values()):
        return None
    choices = tuple(labels.get(option, option) for option in sample.choices)
    return replace(sample, context=context, prompt=replaced(sample.prompt), choices=choices)


def _words(labels: Mapping[str, str]) -> dict[str, str]:
    """Words that name a person, in lower case → the label; words of two people name nobody."""
    cores = {
        label: re.sub(rf"^{_ARTICLE}", "", person.strip(" .").partition(",")[0], flags=re.IGNORECASE)
        for person, label in labels.items()
    }
    found: dict[str, set[str]] = {}
    for label, core in cores.items():
        others = {word for other, text in cores.items() if other != label for word in text.lower().split()}
        own = [place for place, word in enumerate(core.split()) if word.lower() not in others | _NOBODY]
        distinct = " ".join(core.split()[own[0] : own[-1] + 1]) if own else core
        for each in (core, distinct, *(core.split() if _NAME.fullmatch(core) else ())):
            found.setdefault(each.lower(), set()).add(label)
    return {words: next(iter(names)) for words, names in found.items() if len(names) == 1 and words}
