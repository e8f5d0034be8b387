"""Grades a reply by exact rules: the reward of reinforcement learning, and the strict rule of the evaluation.

No model judges. A reply that does not keep the form of the question is wrong, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, cast

import orjson

from evenhand.training.questions.row import Row


class Grade(StrEnum):
    """How a reply compares with what the passage tells."""

    RIGHT_PERSON = "right_person"
    RIGHT_ABSTENTION = "right_abstention"
    WRONG_PERSON = "wrong_person"
    WRONGLY_ABSTAINED = "wrongly_abstained"
    FORM_BROKEN = "form_broken"

    @property
    def right(self) -> bool:
        return self in (Grade.RIGHT_PERSON, Grade.RIGHT_ABSTENTION)


LONGEST = 60
"""Words in an answer that was to be a sentence; a longer one breaks the form."""

_ABSTENTIONS: Mapping[str, tuple[str, ...]] = {
    "en": (
        r"(does|do|did) ?n[o']t (actually |really |explicitly |clearly |directly )?(say|tell|state|mention|specify|indicate|reveal|provide|give|show|contain|include|settle|answer|make clear|identify|clarify)",
        r"(never|nowhere) (say|says|tells|states|mentions|said|stated|mentioned|specified|reveals)",
        r"(is|was|are|were|has|have|'s)( ?n[o']t| never| nowhere)( been)?( explicitly| clearly| directly)? (stated|said|told|mentioned|specified|given|known|clear|indicated|provided|revealed|answered|determined|disclosed|recorded|possible to (say|tell|know|determine)|enough|sufficient)",
        r"(can ?not|can't|could ?n[o']t|can never|impossible to|unable to|no way (to|of)|not possible to|hard to|cannot be|can't be)( \w+)? ?(be )?(determin|know|tell|sa(y|id)|answer|decid|establish|infer|conclude|identif|told|settled)\w*",
        r"no one can (know|tell|say)|nobody (can )?(know|tell|say)s?",
        r"(not|n't|in)[ -]?(enough|sufficient) (info\w*|evidence|details?|context|facts)|lacks? (enough|the|any|sufficient)? ?(info\w*|evidence)",
        r"\b(unknown|undetermined|unspecified|undecidable|unanswerable|not stated|not known|not mentioned|not specified|not given|not answerable|not answered|unclear|uncertain|open question|no answer|cannot tell|can't tell|cannot answer|can't answer)\b",
        r"\b(is|are|remains?|leaves?|left|stays?)( it| this| that)? open\b",
        r"\bno (information|evidence|indication|mention|hint|clue|way|sentence|statement)\b|nothing (in|here|is|tells|shows|says|indicates)\b|none of (this|the sentences) (says|tells|shows)",
        r"contradict|(accounts|reports|statements) (disagree|differ|conflict)|either of them|could (be|have been) either|we (do not|don't) know|i (do not|don't) know",
    ),
    "es": (
        r"\bno (se )?(lo )?(nos )?(dice|indica|menciona|especifica|aclara|revela|cuenta|precisa|aporta|explica|sabe|puede|conoce|muestra|afirma|permite|contesta|da|hay|consta|queda claro|está claro|es posible|figura|aparece|responde|contiene)\b",
        r"\bno (lo )?(podemos|sabemos|puedo|sé)\b|es imposible|imposible (de )?(saber|decir)",
        r"\b(desconocido|indeterminado|indeterminable|sin determinar|se desconoce|sin respuesta|no determinado|no mencionado|incierto|desconocida|no está claro|falta (de )?información|faltan datos|información insuficiente|nadie (lo )?(sabe|puede saber))\b",
        r"\b(queda|quede|deja|sigue) (abierto|abierta|sin (saber|aclarar|resolver|respuesta))\b",
        r"nada (en|de|del) |nada (dice|indica|muestra)|contradic|ninguna (frase|información|indicación)|ningún dato|no suficiente",
    ),
    "de": (
        r"\b(sagt|verrät|nennt|erwähnt|steht|ergibt|geht|gibt|zeigt|erklärt|klärt|lässt|kann|können|ist|wird|wurde|weiß|wissen|bleibt|enthält|beantwortet|reicht|reichen|angegeben)\b[^.!?]*\b(nicht|nichts|kein|keine|keinen|nirgends|offen|unklar|unbekannt|ungeklärt|niemand)\b",
        r"\bnicht (gesagt|bekannt|erwähnt|angegeben|genannt|klar|feststellbar|bestimmbar|zu (sagen|wissen|beantworten|klären|erkennen)|beantwortbar|zu entscheiden|im text)\b",
        r"\b(unbekannt|unklar|ungewiss|ungeklärt|nicht zu sagen|keine angabe|keine antwort|offen gelassen|unbestimmbar|unmöglich zu|keine information\w*|zu wenig information\w*|nicht genug information\w*|nicht genügend)\b",
        r"widersprechen|widersprüchlich|nichts im text|kein satz|bleibt offen|lässt offen|niemand (kann|weiß)",
    ),
}
_GUESS = {
    "en": r"\b(probably|likely|i would (say|guess)|my guess|presumably|i('d| would) go with|but (it|i|the answer)|however,? (it|i|the answer))\b",
    "es": r"\b(probablemente|seguramente|supongo|diría|pero (creo|es|fue|será)|sin embargo)\b",
    "de": r"\b(wahrscheinlich|vermutlich|wohl|ich (würde|tippe|denke)|aber (es|ich|die antwort)|jedoch)\b",
}
# What follows is the person it was not.
_NOT = {
    "en": r"(?:\bnot|\brather than|\binstead of|\bunlike|\bwhile|\bwhereas|\bthan|\bas opposed to|\bbut not|\bwas ?n[o']t|\bis ?n[o']t|\bnor)\s+(?:by |that of |for )?$",
    "es": r"(?:\bno(?: fue| es| era)?|\ben vez de|\ben lugar de|\ba diferencia de|\bmientras(?: que)?|\by no|\bque)\s*(?:a |al |de |del )?$",
    "de": r"(?:\bnicht|\bstatt|\banstelle von|\bim gegensatz zu|\bwährend|\banders als|\bals)\s*$",
}
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_YES_NO = {"yes": {"yes", "sí", "si", "ja"}, "no": {"no", "nein"}}


def abstains(text: str, language: str = "en") -> bool:
    """Whether the text says that the answer is not known, and does not guess all the same."""
    patterns, guess = _abstention(language)
    said = patterns.search(_plain(text))
    return said is not None and guess.search(_plain(text), said.end()) is None


def names(text: str, people: Sequence[Iterable[str]], language: str = "en") -> int | None:
    """The one person whom the text names as the answer, as an index into lists of aliases; None if it is not clear who.

    People named only after "not", "unlike", "while" and the like are not the answer.
    """
    plain = _plain(text)
    spans = {place: found for place, aliases in enumerate(people) if (found := _places(plain, aliases))}
    # "man" in "tall man" is not a person of its own.
    spans = {
        place: [
            span for span in found if not _inside(span, [s for o, each in spans.items() if o != place for s in each])
        ]
        for place, found in spans.items()
    }
    behind_not = re.compile(_NOT[language])
    meant = {
        place: min(kept)
        for place, found in spans.items()
        if (kept := [span for span in found if not behind_not.search(plain, 0, span[0])])
    }
    if len(meant) == 1:
        return next(iter(meant))
    first = _sentences(plain)
    if len(meant) > 1 and len(first) > 1:
        return names(first[0], people, language)
    return None


def grade(row: Row, reply: str) -> Grade:
    """Compare a reply with the row's answer, strictly in the form that was asked for."""
    chosen = _CHOSEN[row.form](row, reply.strip())
    if chosen is None:
        return Grade.FORM_BROKEN
    if chosen == row.right:
        return Grade.RIGHT_ABSTENTION if chosen == row.unknown else Grade.RIGHT_PERSON
    return Grade.WRONGLY_ABSTAINED if chosen == row.unknown else Grade.WRONG_PERSON


def _marked(row: Row, reply: str) -> int | None:
    match = re.fullmatch(r"[(\[*]*(\w)[)\].:*]*", reply)
    marks = [mark.lower() for mark in row.marks]
    return marks.index(match[1].lower()) if match and match[1].lower() in marks else None


def _option(row: Row, reply: str) -> int | None:
    options = [_core(option) for option in row.options]
    said = _core(reply)
    return options.index(said) if options.count(said) == 1 else None


def _text(row: Row, reply: str) -> int | None:
    if not reply or len(reply.split()) > LONGEST:
        return None
    if (option := _option(row, reply)) is not None:
        return option
    if abstains(reply, row.language):
        return row.unknown
    return names(reply, row.people, row.language)


def _sentence(row: Row, reply: str) -> int | None:
    return None if len(_sentences(reply)) > 2 else _text(row, reply)


def _json(row: Row, reply: str) -> int | None:
    fenced = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", reply, re.DOTALL)
    try:
        fields: Any = orjson.loads(fenced[1] if fenced else reply)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict):
        return None
    answer: Any = cast(dict[str, Any], fields).get("answer")
    if cast(dict[str, Any], fields).get("answerable") is False:
        return row.unknown
    if not isinstance(answer, str):
        return None
    if row.marks:
        return _marked(row, answer.strip())
    return _text(row, answer.strip())


def _yes_no(row: Row, reply: str) -> int | None:
    said = _core(reply)
    for place, option in enumerate(row.options):
        meanings = next((words for words in _YES_NO.values() if _core(option) in words), {_core(option)})
        if said in meanings:
            return place
    return None


def _reasoned(row: Row, reply: str) -> int | None:
    last = re.search(r"\b(?:answer|respuesta|antwort)\s*\**:\s*\**\s*(.+?)\s*$", reply, re.IGNORECASE)
    return _marked(row, last[1]) if last and reply[: last.start()].strip() else None


_CHOSEN = {
    "letter": _marked,
    "number": _marked,
    "option": _option,
    "sentence": _sentence,
    "short": _sentence,
    "json": _json,
    "yes_no": _yes_no,
    "cot": _reasoned,
}


def _plain(text: str) -> str:
    return " ".join(text.lower().replace("’", "'").split())


def _core(text: str) -> str:
    """Without case, quotation marks, a full stop at the end and an article at the start."""
    plain = _plain(text).strip(" \"'`*“”„«».!")
    return re.sub(r"^(?:the|an?|el|la|un|una|der|die|das|eine?) (?=\w)", "", plain)


def _sentences(text: str) -> list[str]:
    return [each for each in _SENTENCE.split(text.strip()) if each]


@cache
def _abstention(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile("|".join(_ABSTENTIONS[language])), re.compile(_GUESS[language])


def _places(plain: str, aliases: Iterable[str]) -> list[tuple[int, int]]:
    folded = sorted({_plain(alias) for alias in aliases if alias}, key=len, reverse=True)
    if not folded:
        return []
    pattern = r"(?<!\w)(?:" + "|".join(map(re.escape, folded)) + r")(?!\w)"
    return [match.span() for match in re.finditer(pattern, plain)]


def _inside(span: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    return any(low <= span[0] and span[1] <= high and (low, high) != span for low, high in others)
