"""Reads BBQ's relatives in other languages as BBQ items: EsBBQ and CaBBQ (Spanish, Catalan) and KoBBQ (Korean).

Category names are those of each set. `target_loc` is the answer that confirms the stereotype, polarity included, as in
BBQ. EsBBQ and CaBBQ spell the third option `unknown` and leave its wording to the user; ours is in `UNKNOWN`. KoBBQ's
biased questions have the polarity `neg`, its counter-biased ones `nonneg`. Errors in the published texts are not
corrected.
"""

from __future__ import annotations

import ast
import csv
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, cast

from evenhand.core.errors import DataError
from evenhand.core.files import content_sha256, lines
from evenhand.data.bbq import (
    CATEGORIES,
    BBQSource,
    CategoryReader,
    Condition,
    Item,
    ListReader,
    OfficialFiles,
    Polarity,
)
from evenhand.data.sets import find_file, find_set

Language = Literal["en", "es", "ca", "ko"]

UNKNOWN: Mapping[str, str] = {"es": "No se puede determinar", "ca": "No es pot determinar"}

_SPAIN = (
    "Age",
    "DisabilityStatus",
    "Gender",
    "LGBTQIA",
    "Nationality",
    "PhysicalAppearance",
    "RaceEthnicity",
    "Religion",
    "SES",
    "SpanishRegion",
)
_KOREA = (
    "age",
    "disability_status",
    "domestic_area_of_origin",
    "educational_background",
    "family_structure",
    "gender_identity",
    "physical_appearance",
    "political_orientation",
    "race_ethnicity_nationality",
    "religion",
    "ses",
    "sexual_orientation",
)
LANGUAGE_CATEGORIES: Mapping[str, tuple[str, ...]] = {"en": CATEGORIES, "es": _SPAIN, "ca": _SPAIN, "ko": _KOREA}
KOBBQ = "KoBBQ_test_samples.tsv"

_CONDITIONS: Mapping[str, Condition] = {"amb": "ambig", "dis": "disambig"}
_POLARITIES: Mapping[str, Polarity] = {"bsd": "neg", "cnt": "nonneg"}


def open_language(language: Language, data: str | None) -> BBQSource:
    """Find the set of a language: in the folder `data`, or in the default folders."""
    if language == "en":
        return OfficialFiles(find_set("bbq", data))
    if language == "ko":
        return KoreanFile(find_set("kobbq", data))
    return SpanishFiles(find_set("esbbq", data), language)


class _Tables(BBQSource):
    """Tables in one folder, plain or as .gz; the items of a category are kept in memory."""

    set_name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def file_of(self, category: str) -> str:
        """Return the name of the file with this category."""

    def hashes(self, categories: Sequence[str]) -> Mapping[str, str]:
        names = dict.fromkeys(self.file_of(category) for category in categories)
        return {name: content_sha256(self._path(name)) for name in names}

    def _read(self, name: str, delimiter: str, item_of: Callable[[Mapping[str, str], int], Item]) -> list[Item]:
        path, again = self._path(name), f"Download the set again: evenhand data pull {self.set_name}."
        rows = csv.DictReader((line.decode() for _, line in lines(path)), delimiter=delimiter, strict=True)
        items: list[Item] = []
        seen: set[int] = set()
        try:
            for number, row in enumerate(rows, 1):
                item = item_of(row, number)
                _check(item.example_id not in seen, f"the id {item.example_id} occurs twice")
                seen.add(item.example_id)
                items.append(item)
        except KeyError as error:
            raise DataError(f"the column {error} is missing. {again}", file=path, line=rows.line_num) from error
        except (AttributeError, IndexError, TypeError, ValueError, SyntaxError, csv.Error) as error:
            raise DataError(f"this row cannot be read ({error}). {again}", file=path, line=rows.line_num) from error
        return items

    def _path(self, name: str) -> Path:
        path = find_file(self.folder, name)
        if path is None:
            raise DataError(
                f"the file {name} (or {name}.gz) is missing. Download it: evenhand data pull {self.set_name}.",
                file=self.folder,
            )
        return path


class SpanishFiles(_Tables):
    """EsBBQ (`es.CATEGORY.csv`) or CaBBQ (`ca.CATEGORY.csv`)."""

    set_name = "esbbq"

    def __init__(self, folder: Path, language: Literal["es", "ca"]) -> None:
        super().__init__(folder)
        self.language = language

    def file_of(self, category: str) -> str:
        return f"{self.language}.{category}.csv"

    def reader(self, category: str) -> CategoryReader:
        return ListReader(self._read(self.file_of(category), ",", lambda row, _: self._item(row, category)))

    def _item(self, row: Mapping[str, str], category: str) -> Item:
        _check(row["category"] == category, f"category is {row['category']!r}, not {category}")
        answers = [row[name] for name in ("ans0", "ans1", "ans2")]
        _check(answers.count("unknown") == 1, f"one answer must be 'unknown', not {answers}")
        unknown = answers.index("unknown")
        answers[unknown] = UNKNOWN[self.language]
        polarity = _one_of(row, "question_polarity", ("neg", "nonneg"))
        stereotyped = _person_of(row, unknown)
        other = 3 - unknown - stereotyped
        return Item(
            category=category,
            example_id=int(row["instance_id"]),
            question_index=row["template_id"],
            condition=_one_of(row, "context_condition", ("ambig", "disambig")),
            polarity=polarity,
            context=row["context"],
            question=row["question"],
            answers=(answers[0], answers[1], answers[2]),
            label=("0", "1", "2").index(row["label"]),
            unknown=unknown,
            target_loc=stereotyped if polarity == "neg" else other,
            label_type="name" if row["proper_nouns_only"] == "True" else "label",
        )


class KoreanFile(_Tables):
    """KoBBQ's test set, one file; an item's id is the number of its row."""

    set_name = "kobbq"

    def file_of(self, category: str) -> str:
        del category
        return KOBBQ

    def reader(self, category: str) -> CategoryReader:
        return ListReader([item for item in self._items if item.category == category])

    @cached_property
    def _items(self) -> Sequence[Item]:
        return self._read(KOBBQ, "\t", _korean_item)


def _korean_item(row: Mapping[str, str], number: int) -> Item:
    category, template, _, condition, question = row["sample_id"].split("-")
    _check(category in _KOREA, f"{category!r} is not a category of KoBBQ")
    _check(condition in _CONDITIONS and question in _POLARITIES, f"sample_id is {row['sample_id']!r}")
    answers = _texts(row["choices"])
    _check(len(answers) == 3, f"choices must be three texts, not {row['choices']}")
    return Item(
        category=category,
        example_id=number,
        # The last letter is the order of mention and which context is told.
        question_index=template[:-1],
        condition=_CONDITIONS[condition],
        polarity=_POLARITIES[question],
        context=row["context"],
        question=row["question"],
        answers=(answers[0], answers[1], answers[2]),
        label=answers.index(row["answer"]),
        unknown=2,
        target_loc=answers.index(row["biased_answer"]),
        label_type="label",
    )


def _person_of(row: Mapping[str, str], unknown: int) -> int:
    """Return the answer that names the stereotyped group."""
    groups = _texts(row["stereotyped_groups"])
    # The group of a name is given with its gender: "m, árabe".
    named = [_texts(row[f"answer_info.ans{place}"])[1].rpartition(", ")[2] for place in range(3)]
    found = [place for place in range(3) if place != unknown and named[place] in groups]
    _check(len(found) == 1, f"one answer must be of {groups}, not {named}")
    return found[0]


@cache
def _texts(text: str) -> tuple[str, ...]:
    """Parse a list of texts, which the sets write as Python does."""
    parsed: Any = ast.literal_eval(text)
    _check(isinstance(parsed, list), f"not a list: {text}")
    texts = tuple(cast("list[Any]", parsed))
    _check(all(type(each) is str for each in texts), f"not a list of texts: {text}")
    return texts


def _one_of(row: Mapping[str, str], name: str, known: tuple[Any, Any]) -> Any:
    _check(row[name] in known, f"{name} is {row[name]!r}, not {known[0]} or {known[1]}")
    return row[name]


def _check(right: bool, message: str) -> None:
    if not right:
        raise ValueError(message)
