"""Prompts of the user's own, written for different groups: does the answer change with the person?

Every prompt is asked for each group of each attribute, `repeats` times. `findings` has what is measured of an answer,
`audit` the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from evenhand.benchmarks.base import BENCHMARKS, AnswerBenchmark, Example, Metric, Selection, draw_key
from evenhand.benchmarks.prompts.audit import audit
from evenhand.benchmarks.prompts.findings import METRICS, PromptsAudit, counted_words, stance
from evenhand.core.errors import DataError, UsageError
from evenhand.core.files import content_hash
from evenhand.core.language import language_of
from evenhand.core.options import Names, Options, Text
from evenhand.core.types import Answer, Grade, Record, Sample, SampleKind
from evenhand.data.identities import Group, Name, choose_attributes, load_identities, load_names
from evenhand.data.identities.grammar import LANGUAGES as INFLECTED
from evenhand.data.identities.substitute import Variants, check_slots, neutral, variants, without_slots
from evenhand.data.texts import TextFile

FIELDS = ("prompt", "text", "question", "instruction")
"""The fields that may hold the prompt, if none is named; a file with a single field needs none of these."""
LANGUAGES = ("en", *INFLECTED)
_LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class OwnPrompt:
    """A prompt with its place in the file, counted from 1."""

    number: int
    text: str
    language: str = "en"

    @property
    def id(self) -> str:
        return f"{self.number:05d}"


def load_prompts(
    data: str | Path | None = None, field: str | None = None, language: str | None = None
) -> list[OwnPrompt]:
    """Read the prompts; blank ones are skipped, and a prompt that occurs again is kept once."""
    if data is None:
        text = resources.files("evenhand.data").joinpath("prompts_builtin.txt").read_text("utf-8")
        return checked(text.splitlines(), language="en")
    path = Path(data).expanduser()
    chosen = None if path.suffix.lower() == ".txt" else field or _field(path)
    return checked([row.text for row in TextFile(path, chosen).rows()], str(path), language)


def checked(texts: Sequence[Any], where: str = "prompts", language: str | None = None) -> list[OwnPrompt]:
    """Return the prompts, numbered, each with its language; raise DataError for a slot that does not exist.

    A prompt too short to tell is in the language of all of them together.
    """
    found: dict[str, OwnPrompt] = {}
    plain = {text: without_slots(text) for text in texts}
    declared = language or language_of("\n".join(plain.values()), likely=LANGUAGES)
    for number, text in enumerate(texts, 1):
        if len(text) > _LONGEST:
            raise DataError(f"prompt {number} has {len(text):,} characters; the most are {_LONGEST:,}.", file=where)
        if text.strip() and text.strip() not in found:
            code = language or language_of(plain[text], declared, LANGUAGES)
            if code not in LANGUAGES:
                raise DataError(
                    f"prompt {number} is in the language {code}, in which people cannot be written into prompts; use "
                    f"{', '.join(LANGUAGES[:-1])} or {LANGUAGES[-1]}, or say which of them it is with --set "
                    "language=CODE.",
                    file=where,
                )
            check_slots(text, f"{where}, prompt {number}", code)
            found[text.strip()] = OwnPrompt(number, text.strip(), code)
    if not found:
        raise DataError("there are no prompts in it.", file=where)
    return list(found.values())


def _field(path: Path) -> str | None:
    """Return the field with the prompts, by its name, or because it is the only one."""
    names = list(TextFile(path).fields())
    if not names:
        raise DataError("the file has no rows; write a prompt in each, in a field called prompt.", file=path)
    found = next((name for name in FIELDS if name in names), names[0] if len(names) == 1 else None)
    if found is None:
        raise DataError(
            f"none of its fields is called {', '.join(FIELDS[:-1])} or {FIELDS[-1]}; name the field with --set "
            f"field=NAME (it has {', '.join(names)}).",
            file=path,
        )
    return found


_KEPT = 4_000
"""Characters of an answer that are kept for the comparison side by side."""
_SHOWN = 3
"""Prompts in the table of examples."""


class IdentityOptions(Options):
    """Options of benchmarks that ask the same for different people."""

    attributes: Names = Field(default=("gender", "race"), description="The attributes that are varied.")
    names: Text | list[dict[str, str]] | None = Field(
        default=None, description="A CSV file with names of your own: name, gender, race."
    )
    identities: Text | dict[str, dict[str, dict[str, str]]] | None = Field(
        default=None, description="A YAML file with attributes and groups of your own."
    )


def written_as(groups: Mapping[str, Sequence[Group]]) -> list[tuple[str, ...]]:
    """Returns how groups are written, for a fingerprint."""
    return [(each.attribute, each.name, each.adjective, each.noun) for all_ in groups.values() for each in all_]


class PromptsOptions(IdentityOptions):
    data: Text | None = Field(
        default=None,
        description="A .csv, .jsonl, .xlsx, .txt or .parquet file, or a saved data set; else a built-in set.",
    )
    field: Text | None = Field(default=None, description="The field with the prompt: prompt, text, … by default.")
    language: Literal["en", "de", "es", "fr", "it", "pt", "nl"] | None = Field(
        default=None, description="The language of the prompts; by default that of each prompt is detected."
    )
    repeats: int = Field(default=1, ge=1, le=1000, description="How often each prompt is asked for each group.")
    neutral: bool = Field(default=True, description="Score answers without names, gender and group words.")
    prompts: tuple[str, ...] | None = Field(
        default=None, strict=False, description="The prompts themselves, as a plan file has them."
    )


@BENCHMARKS.register("prompts")
class Prompts(AnswerBenchmark[PromptsOptions]):
    """Prompts of your own, asked for different groups of people; `evenhand audit MODEL --prompts FILE`.

    A limit counts prompts; each is asked for every group of every attribute.
    """

    version: ClassVar[str] = "1"
    kind: ClassVar[SampleKind] = "chat"
    headline: ClassVar[str] = "gap"
    # An arm that refuses, or says little, shows no differences either.
    guardrails: ClassVar[tuple[str, ...]] = ("similarity", "refusals", "sentiment", "toxicity", "length", "coverage")
    group_key: ClassVar[str] = "identity"
    scorers: ClassVar[tuple[str, ...]] = ("builtin_b", "sentiment")
    report_sections: ClassVar[tuple[str, ...]] = ("identities", "what_changed")
    Options = PromptsOptions

    @cached_property
    def groups(self) -> Mapping[str, tuple[Group, ...]]:
        """The groups as they are written in the language of the first prompt."""
        return self._groups_in(self.prompts[0].language)

    def _groups_in(self, language: str) -> Mapping[str, tuple[Group, ...]]:
        if language not in self._groups:
            known = load_identities(self.options.identities, language)
            self._groups[language] = choose_attributes(known, self.options.attributes)
        return self._groups[language]

    @cached_property
    def _groups(self) -> dict[str, Mapping[str, tuple[Group, ...]]]:
        return {}

    @cached_property
    def names(self) -> Sequence[Name]:
        return load_names(self.options.names)

    @cached_property
    def prompts(self) -> Sequence[OwnPrompt]:
        """The prompts, read on first use: grades and metrics do not need them."""
        if self.options.prompts is not None:
            return checked(self.options.prompts, language=self.options.language)
        return load_prompts(self.options.data, self.options.field, self.options.language)

    def facts(self) -> Mapping[str, Any]:
        names = [(each.text, sorted(each.groups.items())) for each in self.names]
        content = content_hash(
            [[each.text for each in self.prompts], written_as(self.groups), names, *self._inflections()]
        )
        return {"prompts": len(self.prompts), "sha256": content}

    def _inflections(self) -> list[Any]:
        """Returns what a fingerprint needs besides for prompts in other languages than English."""
        codes = sorted({each.language for each in self.prompts} - {"en"})
        return [
            [code, each.attribute, each.name, each.fields()]
            for code in codes
            for groups in self._groups_in(code).values()
            for each in groups
        ]

    def variants(self, prompt: OwnPrompt, attribute: str, repeat: int = 0) -> Variants:
        """Returns the prompt for all groups of an attribute; repeats have different names."""
        groups = self._groups_in(prompt.language)[attribute]
        return variants(prompt.text, groups, self.names, prompt.number + repeat, prompt.language)

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields prompts in an order drawn by the seed, each for all groups and repeats."""
        drawn = sorted(self.prompts, key=lambda each: draw_key(selection.seed, each.id))
        usable = (each for each in drawn if any(self.variants(each, name).found for name in self.groups))
        found = 0
        for prompt in islice(usable, selection.limit):
            for attribute in self.groups:
                for repeat in range(self.options.repeats):
                    for variant in self.variants(prompt, attribute, repeat).found:
                        found += 1
                        yield Sample(
                            id=f"{prompt.id}/{attribute}/{variant.group.name}/{repeat:03d}",
                            kind="chat",
                            prompt=variant.text,
                            cluster=prompt.id,
                            metadata={
                                "attribute": attribute,
                                "group": variant.group.name,
                                "identity": f"{attribute}: {variant.group.name}",
                                "inserted": list(variant.inserted),
                                "names": [] if variant.name is None else [variant.name.text],
                                "asked": variant.text,
                                **({} if prompt.language == "en" else {"language": prompt.language}),
                            },
                        )
        if not found:
            raise UsageError(f"No prompt can be asked. {self._left_out()[0]}.")

    def examples(self) -> tuple[Sequence[Example], Sequence[str]]:
        """Returns the first prompts for every group, and what is left out."""
        shown = [each for each in self.prompts if any(self.variants(each, name).found for name in self.groups)]
        rows = [
            Example(prompt.text, f"{attribute}: {variant.group.name}", variant.text)
            for prompt in shown[:_SHOWN]
            for attribute in self.groups
            for variant in self.variants(prompt, attribute).found
        ]
        return rows, [*self._left_out(), *self._unmeasured()]

    def _unmeasured(self) -> list[str]:
        """Says what is not measured of answers in other languages than English."""
        codes = sorted({each.language for each in self.prompts} - {"en"})
        return [
            f"Answers in {', '.join(codes)} have no stance, and no sentiment or toxicity by the built-in scorers; name "
            "a judge with --scorer judge:MODEL. They are compared in refusals, length and similarity"
        ] * bool(codes)

    def portable(self) -> Mapping[str, Any]:
        given = self.options.model_dump(exclude_defaults=True, exclude={"data", "field"})
        content: dict[str, Any] = {"prompts": [each.text for each in self.prompts]}
        if self.options.names is not None:
            content["names"] = [{"name": each.text, **each.groups} for each in self.names]
        if self.options.identities is not None:
            content["identities"] = {name: {g.name: g.fields() for g in groups} for name, groups in self.groups.items()}
        if "attributes" in given:
            given["attributes"] = list(self.options.attributes)
        return {**given, **content}

    def _left_out(self) -> list[str]:
        reasons: dict[tuple[str, str], list[int]] = {}
        for prompt in self.prompts:
            for attribute in self.groups:
                if reason := self.variants(prompt, attribute).reason:
                    reasons.setdefault((attribute, reason), []).append(prompt.number)
        return [
            f"Left out for {attribute}: {len(numbers)} of {len(self.prompts)} prompts "
            f"(no. {', '.join(map(str, numbers[:5]))}{', …' if len(numbers) > 5 else ''}), since {reason}"
            for (attribute, reason), numbers in reasons.items()
        ]

    def scored_text(self, sample: Sample, text: str) -> str:
        if not self.options.neutral:
            return text
        language = sample.metadata.get("language", "en")
        groups = self._groups_in(language).get(sample.metadata["attribute"], ())
        return neutral(text, groups, sample.metadata["names"], language)

    def grade_answer(self, sample: Sample, answer: Answer) -> Grade:
        """Grades the text alone; a run adds the scorers' scores."""
        return Grade(
            {
                "length": len(answer.text.split()),
                "stance": stance(answer.text),
                "words": counted_words(answer.text, sample.metadata["inserted"], sample.metadata.get("language", "en")),
                # In a list, since it is the answer itself and not shown as a grade.
                "answer": [answer.text[:_KEPT]],
            }
        )

    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def audit(self, records: Sequence[Record]) -> PromptsAudit | None:
        return audit(records)

    def caveats(self) -> Sequence[str]:
        return (
            "The difference between identities can be above 0 by chance alone, since answers vary; the tests by group "
            "say which differences are not chance",
            "Differences are about these prompts and this way of writing the groups",
        )
