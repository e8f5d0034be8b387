"""Asks a question about a passage in one of several answer forms, and writes the answer to learn.

The letters also come in the prompts of the methods `default`, `fair_prompt` and `cot`, which evaluation uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

import orjson

from evenhand.methods.cot import __file__ as _cot
from evenhand.methods.default import __file__ as _default
from evenhand.methods.fair_prompt import __file__ as _fair_prompt
from evenhand.prompts import load_prompt
from evenhand.training.questions.facts import Fact
from evenhand.training.questions.language import Language, Situation, Split, capitalized, load
from evenhand.training.questions.passages import Passage, State
from evenhand.training.questions.row import Form, Row

_LETTER_STYLES = ("{}) ", "{}. ", "({}) ", "{}: ")
_NUMBER_STYLES = ("{}. ", "{}) ", "[{}] ")
_GAPS = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Asked:
    """A passage with a question about it, before a form is chosen."""

    language: Language
    situation: Situation
    category: str
    state: State
    polarity: int
    passage: Passage
    split: Split
    unknown_place: int
    """Where the option of not knowing stands."""
    fact: Fact | None = None


def make_row(rng: Random, asked: Asked, form: Form, verdict: str | None = None) -> Row:
    """Ask in one form; `verdict` is the right answer of a yes/no question: yes, no, unknown or known."""
    return _Asker(rng, asked, held_out=asked.split == "dev" and rng.random() < 0.5).row(form, verdict)


@dataclass(slots=True)
class _Asker:
    rng: Random
    asked: Asked
    held_out: bool

    def row(self, form: Form, verdict: str | None) -> Row:
        if form == "yes_no":
            return self._yes_no(verdict or "yes")
        options, people, unknown = self._options()
        right = self._right(options, unknown)
        question = self._question()
        marks: tuple[str, ...] = ()
        if form in ("letter", "cot"):
            marks = tuple("ABCDE"[: len(options)])
        elif form == "number":
            marks = tuple("12345"[: len(options)])
        elif form == "json" and self.rng.random() < 0.4:
            marks = tuple("ABCDE"[: len(options)])
        ask = getattr(self, f"_{form}")
        messages, answer, marks = ask(options, right, unknown, question, marks)
        return self._made(form, messages, answer, options, right, unknown, people, marks, question)

    def _made(
        self, form: Form, messages: Sequence[Mapping[str, str]], answer: str, options: Sequence[str], right: int,
        unknown: int | None, people: Sequence[tuple[str, ...]], marks: tuple[str, ...], question: str,
    ) -> Row:  # fmt: skip
        asked = self.asked
        person = asked.passage.right
        return Row(
            messages=tuple(messages),
            answer=answer,
            form=form,
            state=asked.state,
            language=asked.language.code,
            category=asked.category,
            options=tuple(options),
            right=right,
            people=tuple(people),
            situation=asked.situation.id,
            unknown=unknown,
            marks=marks,
            polarity=("negative", "positive")[asked.polarity],
            split=asked.split,
            group=None if person is None else asked.passage.people[person].group,
            context=asked.passage.text,
            question=question,
            held_out_wording=self.held_out,
        )

    # The options and the question.

    def _options(self) -> tuple[list[str], list[tuple[str, ...]], int]:
        people = self.asked.passage.people
        options = [capitalized(person.label) for person in people]
        aliases = [person.aliases for person in people]
        unknown = self.asked.unknown_place % (len(people) + 1)
        options.insert(unknown, self.rng.choice(self._of_split(self._wording["unknown"])))
        aliases.insert(unknown, ())
        return options, aliases, unknown

    def _right(self, options: Sequence[str], unknown: int) -> int:
        right = self.asked.passage.right
        return unknown if right is None else options.index(capitalized(self.asked.passage.people[right].label))

    def _question(self) -> str:
        if self.asked.fact:
            return self.asked.fact.question
        return capitalized(self.rng.choice(self._wording["question"][self._kind]).format(q=self._asked_phrase))

    @property
    def _wording(self) -> Mapping[str, Any]:
        return self.asked.language.wording

    @property
    def _kind(self) -> Literal["people", "things"]:
        return self.asked.situation.kind

    @property
    def _asked_phrase(self) -> str:
        return self.asked.situation.asked[self.asked.polarity]

    def _of_split(self, parts: Mapping[str, Sequence[str]]) -> Sequence[str]:
        return parts["dev" if self.held_out else "train"]

    # The forms: (options, right, unknown, question, marks) → messages, answer, marks.

    def _letter(self, options: list[str], right: int, _unknown: int, question: str, marks: tuple[str, ...]) -> Any:
        draw = self.rng.random()
        if draw < 0.35 and not self.held_out:
            return self._as_method(options, question, draw), marks[right], marks
        if self.rng.random() < 0.15:
            marks = tuple(mark.lower() for mark in marks)
        return self._chat("letter", question, self._listed(options, marks, _LETTER_STYLES)), marks[right], marks

    def _as_method(self, options: list[str], question: str, draw: float) -> list[dict[str, str]]:
        listed = "\n".join(f"{letter}) {text}" for letter, text in zip("ABCDE", options, strict=False))
        context = self.asked.passage.text
        if draw < 0.25:
            beside = _default if draw < 0.15 else _fair_prompt
            messages = load_prompt(beside, "choice").render(context=context, question=question, options=listed)
            return [{"role": message.role, "content": message.content} for message in messages]
        reason = load_prompt(_cot, "reason").render(context=context, question=question, options=listed)
        answer = load_prompt(_cot, "answer").render(options=listed)
        turns = [{"role": message.role, "content": message.content} for message in (*reason, *answer)]
        turns.insert(-1, {"role": "assistant", "content": self._reasoning()})
        return turns

    def _number(self, options: list[str], right: int, _unknown: int, question: str, marks: tuple[str, ...]) -> Any:
        return self._chat("number", question, self._listed(options, marks, _NUMBER_STYLES)), marks[right], marks

    def _option(self, options: list[str], right: int, _unknown: int, question: str, marks: tuple[str, ...]) -> Any:
        style = self.rng.choice(("- {}", "* {}", "{}", "– {}"))
        listed = "\n".join(style.format(option) for option in options)
        if self.rng.random() < 0.15:
            listed = " / ".join(options)
        return self._chat("option", question, listed), options[right], marks

    def _sentence(self, options: list[str], right: int, unknown: int, question: str, marks: tuple[str, ...]) -> Any:
        return self._free("sentence", options, right, unknown, question, marks)

    def _short(self, options: list[str], right: int, unknown: int, question: str, marks: tuple[str, ...]) -> Any:
        return self._free("short", options, right, unknown, question, marks)

    def _free(
        self, form: str, options: list[str], right: int, unknown: int, question: str, marks: tuple[str, ...]
    ) -> Any:
        listed = ""
        if self.rng.random() < 0.25:
            listed = "\n".join(f"- {option}" for option in options)
        extra = self.rng.choice(self._wording["only_if_told"])
        known = right != unknown
        if known:
            name = f"told_{form}"
        else:
            contradicted = form == "sentence" and self.asked.state == "contradicted" and self.rng.random() < 0.5
            name = "contradicted_sentence" if contradicted else f"unknown_{form}"
        if self.asked.fact and form == "sentence":
            name = f"fact_{name}"
        templates = self.asked.language.templates(name, self._kind)
        answer = self._say(self.rng.choice(templates), labels=bool(listed))
        return self._chat(form, question, listed, extra=extra), answer, marks

    def _json(self, options: list[str], right: int, unknown: int, question: str, marks: tuple[str, ...]) -> Any:
        if not marks and self.asked.language.code == "en" and not self.held_out and self.rng.random() < 0.3:
            return self._as_extraction(right, unknown, question)
        listed = self._listed(options, marks or tuple("ABCDE"[: len(options)]), _LETTER_STYLES)
        if not marks:
            listed = "\n".join(f"- {option}" for option in options)
        value = marks[right] if marks else options[right]
        answer = orjson.dumps({"answer": value}).decode().replace('":"', '": "')
        return self._chat("json_letter" if marks else "json_text", question, listed), answer, marks

    def _as_extraction(self, right: int, unknown: int, question: str) -> Any:
        """The prompt of `default` for questions whose answer is words of the passage."""
        messages = load_prompt(_default, "answer").render(context=self.asked.passage.text, question=question)
        person = self.asked.passage.right
        words = "" if person is None else self.asked.passage.people[person].mention
        answer = orjson.dumps({"answerable": right != unknown, "answer": words}).decode()
        answer = answer.replace('":', '": ').replace(',"', ', "')
        return [{"role": message.role, "content": message.content} for message in messages], answer, ()

    def _cot(self, options: list[str], right: int, _unknown: int, question: str, marks: tuple[str, ...]) -> Any:
        listed = self._listed(options, marks, _LETTER_STYLES)
        answer = f"{self._reasoning()}\n{self._wording['answer_label']}: {marks[right]}"
        return self._chat("cot", question, listed, shell=self.asked.language), answer, marks

    def _yes_no(self, verdict: str) -> Row:
        wording, rng, asked = self._wording, self.rng, self.asked
        question = self._question()
        yes, no, third = wording["yes_word"], wording["no_word"], rng.choice(wording["third"])
        if verdict in ("known", "unknown_known"):
            template = rng.choice(self._of_split(wording["instruction"]["yes_no_known"]))
            text, options = template.format(question=question), [yes, no]
            right, unknown = (0, None) if verdict == "known" else (1, None)
        else:
            people, right_person = asked.passage.people, asked.passage.right
            place = rng.randrange(len(people)) if right_person is None else right_person
            if verdict == "no":
                place = rng.choice([each for each in range(len(people)) if each != right_person])
            plain = f"{people[place].mention} {self._asked_phrase}"
            if asked.fact:
                plain = asked.fact.statement.format(v=people[place].mention).rstrip(".")
                plain = plain[:1].lower() + plain[1:] if plain.startswith(("The ", "About ", "Visitors ")) else plain
            template = rng.choice(self._of_split(wording["instruction"]["yes_no"]))
            text = template.format(claim=capitalized(asked.language.tidy(plain)) + ".", plain=plain, third=third)
            options, unknown = [yes, no, third], 2
            right = {"yes": 0, "no": 1, "unknown": 2}[verdict]
        context = asked.passage.text
        content = f"{context}\n\n{text}" if rng.random() < 0.7 else f"{text}\n\n{context}"
        answer = options[right] if rng.random() < 0.5 else capitalized(options[right])
        messages = [*self._system(asked.language), {"role": "user", "content": asked.language.tidy(content)}]
        return self._made("yes_no", messages, answer, options, right, unknown, [()] * len(options), (), text)

    # Wording.

    def _say(self, template: str, *, labels: bool = False) -> str:
        people, right = self.asked.passage.people, self.asked.passage.right
        said = [person.label if labels else person.mention for person in people]
        a, b = self.rng.sample(said, 2)
        values = {
            "x": "" if right is None else said[right],
            "X": "" if right is None else capitalized(said[right]),
            "a": a,
            "b": b,
            "q": self._asked_phrase,
            "who": self._wording["who"].get(self._kind, ""),
            "which": self._wording["which"][self._kind],
            "Which": self._wording["which"][self._kind].capitalize(),
            "evidence": self.asked.passage.evidence,
        }
        if fact := self.asked.fact:
            values |= {"clause": fact.clause, "fact": fact.statement.format(v=values["x"])}
        return self.asked.language.tidy(capitalized(template.format_map(values)))

    def _reasoning(self) -> str:
        told = self.asked.passage.right is not None
        templates = self._wording["told_reason"] if told else self._wording["unknown_reason"][self.asked.state]
        if self.asked.fact:
            templates = self._wording["fact_told_reason" if told else "fact_unknown_reason"]
        return self._say(self.rng.choice(templates))

    def _listed(self, options: Sequence[str], marks: Sequence[str], styles: Sequence[str]) -> str:
        style = self.rng.choice(styles)
        between = "\n" if self.rng.random() < 0.85 else "  "
        return between.join(style.format(mark) + option for mark, option in zip(marks, options, strict=True))

    def _chat(
        self, form: str, question: str, listed: str, extra: str = "", shell: Language | None = None
    ) -> list[dict[str, str]]:
        """The prompt in the passage's language, or around it in English where the answer is no sentence."""
        own = self.asked.language
        if shell is None:
            shell = load("en") if form not in ("sentence", "short") and self.rng.random() < 0.4 else own
        wording = shell.wording
        instruction = self.rng.choice(self._of_split(wording["instruction"][form]))
        if form.startswith("json"):
            instruction = instruction.format()
        if extra:
            instruction = f"{instruction} {extra}".strip()
        layout = self.rng.choice(self._of_split(wording["layout"]))
        values = {
            "context": self.asked.passage.text,
            "question": question,
            "options": listed,
            "instruction": instruction,
        }
        content = _GAPS.sub("\n\n", layout.format_map(values)).strip()
        return [*self._system(shell), {"role": "user", "content": content}]

    def _system(self, shell: Language) -> list[dict[str, str]]:
        if self.rng.random() > 0.25:
            return []
        return [{"role": "system", "content": self.rng.choice(self._of_split(shell.wording["system"]))}]
