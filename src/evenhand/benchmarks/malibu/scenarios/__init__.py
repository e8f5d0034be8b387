"""Loads MALIBU's scenarios and identities, built in or from a user's folder and file.

A base scenario is one YAML file: a profession, its task, and derived scenarios that vary role and setting, each with
two responses of equal content. A generated folder is frozen: its `provenance.json` has the checksum of each file.

A scenario must not contain words that reveal an identity, or more than its label would differ. Words with a harmless
second meaning in professional texts are not listed ("race", "ms" for milliseconds, "temple", names of languages).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import combinations
from pathlib import Path
from typing import Annotated

import orjson
from annotated_types import MinLen
from pydantic import BaseModel, TypeAdapter

from evenhand.core.errors import DataError
from evenhand.core.files import Id, Words, checked, read_yaml

BUILTIN, IDENTITIES, PROVENANCE = "builtin", "identities.yaml", "provenance.json"
CONTROL = "control"
"""The name of the control without an identity; reserved."""
FEWEST_WORDS, MOST_WORDS = 30, 150
"""Limits on the length of a response."""
LENGTHS_DIFFER = 0.2
"""How much shorter one response may be than the other."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A case from a profession, with two responses of equal content in different words."""

    id: Id
    role: Words
    setting: Words
    situation: Words
    responses: tuple[Words, Words]


@dataclass(frozen=True, slots=True)
class Base:
    """A base scenario: what its derived scenarios have in common."""

    id: Id
    profession: Words
    task: Words
    surfaces: Words
    """The bias that a judge could show here; documentation only, never shown to a judge."""
    derived: Annotated[tuple[Scenario, ...], MinLen(1)]


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity to which a response can be attributed."""

    name: str
    category: str
    tag: str
    author: str
    """The identity in a sentence: "a female professional"."""


def load_bases(folder: str | Path | None = None, tags: Sequence[str] = ()) -> tuple[Base, ...]:
    """Load the base scenarios of a folder, or the built-in ones; `tags` are words that no scenario may contain."""
    return _builtin(tuple(tags)) if folder is None else _read_bases(folder, _folder(folder), tags)


@cache
def _builtin(tags: tuple[str, ...]) -> tuple[Base, ...]:
    return _read_bases(BUILTIN, _data().joinpath(BUILTIN), tags)


def _read_bases(folder: str | Path, place: Traversable, tags: Sequence[str]) -> tuple[Base, ...]:
    files = sorted((file for file in place.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    if not files:
        raise DataError(
            "the folder has no scenario (*.yaml); `evenhand judges malibu generate` writes some.", file=folder
        )
    _check_frozen(place, files)
    return tuple(_read_base(file, tags) for file in files)


class _Shown(BaseModel):
    tag: Words
    author: Words


_IDENTITIES = TypeAdapter(dict[Id, Annotated[dict[Id, _Shown], MinLen(2)]])


def load_identities(file: str | Path | None = None) -> tuple[Identity, ...]:
    """Load the identities of a YAML file (category → identity → tag and author), or the built-in ones."""
    path: Traversable = _data().joinpath(IDENTITIES) if file is None else Path(file).expanduser()
    with checked("a file of identities", str(path), "A category has two identities or more, each with tag and author."):
        categories = _IDENTITIES.validate_python(read_yaml(path))
    identities: dict[str, Identity] = {}
    for category, members in categories.items():
        for name, each in members.items():
            if name == CONTROL or name in identities:
                raise DataError(f"the identity {name!r} is taken already; give it another name.", file=str(path))
            identities[name] = Identity(name, category, each.tag, each.author)
    if not identities:
        raise DataError("the file has no identities.", file=str(path))
    return tuple(identities.values())


def pairs_of(identities: Sequence[Identity]) -> tuple[tuple[Identity, Identity], ...]:
    """Return the pairs to compare: those within a category."""
    return tuple((one, other) for one, other in combinations(identities, 2) if one.category == other.category)


def situation_fault(situation: str, tags: Sequence[str] = ()) -> str | None:
    """Return what is wrong with a situation, or None."""
    return _reveals_identity("the situation", situation, tags)


def responses_fault(responses: Sequence[str], tags: Sequence[str] = ()) -> str | None:
    """Return what is wrong with the two responses to a situation, or None."""
    if len(responses) != 2:
        return f"there are {len(responses)} responses, not two"
    for number, text in enumerate(responses, 1):
        count = len(text.split())
        if not FEWEST_WORDS <= count <= MOST_WORDS:
            return f"response {number} has {count} words, not {FEWEST_WORDS} to {MOST_WORDS}"
        if fault := _reveals_identity(f"response {number}", text, tags):
            return fault
    if " ".join(responses[0].split()) == " ".join(responses[1].split()):
        return "the two responses are the same text"
    short, long = sorted(len(text.split()) for text in responses)
    if short < (1 - LENGTHS_DIFFER) * long:
        return f"the responses have {short} and {long} words, which differ by more than {LENGTHS_DIFFER:.0%}"
    return None


def _reveals_identity(what: str, text: str, tags: Sequence[str]) -> str | None:
    words = identity_words(text, tags)
    return f"{what} has words that tell an identity: {', '.join(words)}" if words else None


def _data() -> Traversable:
    return resources.files("evenhand.benchmarks.malibu.scenarios")


def _folder(folder: str | Path) -> Path:
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise DataError(f"There is no folder {folder}; `evenhand judges malibu generate --out FOLDER` creates one.")
    return path


def _check_frozen(place: Traversable, files: Sequence[Traversable]) -> None:
    """Raise DataError if files differ from the checksums in `provenance.json`, if the folder has one."""
    provenance = place.joinpath(PROVENANCE)
    if not provenance.is_file():
        return
    try:
        sums: dict[str, str] = dict(orjson.loads(provenance.read_bytes())["sha256"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise DataError("there are no checksums of the files; the folder is damaged.", file=str(provenance)) from error
    actual = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    for name in sorted({*sums, *actual}):
        if sums.get(name) != actual.get(name):
            what = "is missing" if name not in actual else "was added" if name not in sums else "was changed"
            raise DataError(
                f"{name} {what} since the folder was written; remove {PROVENANCE} to use your own version.",
                file=str(place),
            )


_BASE = TypeAdapter(Base)


def _read_base(file: Traversable, tags: Sequence[str]) -> Base:
    path = str(file)
    with checked("a base scenario", path):
        base = _BASE.validate_python(read_yaml(file))
    if f"{base.id}.yaml" != file.name:
        raise DataError(f"the id is {base.id!r}; it must be the name of the file.", file=path)
    for place, each in enumerate(base.derived):
        if each.id in {other.id for other in base.derived[:place]}:
            raise DataError(f"the id {each.id!r} is given to two scenarios.", file=path)
        if fault := situation_fault(each.situation, tags) or responses_fault(each.responses, tags):
            raise DataError(f"the scenario {each.id!r}: {fault}.", file=path)
    return base


_GENDER = """
    he him his himself she her hers herself
    man men woman women boy girl gentleman gentlemen lady ladies guy lad lass male female masculine feminine manly
    womanly gender mankind sir madam mr mrs mister
    mother father mom mum mommy mummy dad daddy son daughter brother sister uncle aunt nephew niece grandmother
    grandfather grandma grandpa grandson granddaughter stepmother stepfather stepson stepdaughter godmother godfather
    husband wife wives boyfriend girlfriend bride fiance fiancee fiancé fiancée widow widower bachelor
    businessman businessmen businesswoman businesswomen cameraman cameramen chairman chairmen chairwoman chairwomen
    congressman congresswoman craftsman craftsmen craftswoman fireman firemen fisherman fishermen foreman foremen
    handyman handymen layman laymen policeman policemen policewoman policewomen postman postmen repairman repairmen
    salesman salesmen saleswoman saleswomen spokesman spokesmen spokeswoman spokeswomen sportsman sportsmen sportswoman
    workman workmen
    actress heiress hostess stewardess waitress
"""
_ORIGIN = """
    ethnic ethnicity racial racially caucasian hispanic latino latina latinx chicano chicana black white asian african
    arab afro
    nationality immigrant migrant refugee foreigner
    afghan american argentinian australian brazilian british canadian colombian cuban egyptian ethiopian filipino indian
    indonesian iranian iraqi israeli jamaican kenyan lebanese mexican moroccan nigerian pakistani palestinian peruvian
    saudi somali syrian tunisian ugandan venezuelan
"""
_RELIGION = """
    religion religious atheist agnostic buddhist catholic christian christianity evangelical hindu hinduism islam
    islamic jew jewish judaism mormon muslim orthodox protestant sikh
    god allah jesus christ bible biblical quran koran torah gospel prayer pray praying worship church mosque synagogue
    chapel cathedral bishop clergy imam monk nun pastor pope priest rabbi hijab burqa turban kippah yarmulke halal
    kosher
    christmas easter pentecost ramadan eid hanukkah chanukah passover sabbath shabbat diwali purim
"""
WORDS = frozenset(f"{_GENDER} {_ORIGIN} {_RELIGION}".split())

_WORD = re.compile(r"[^\W\d_]+")


def identity_words(text: str, tags: Iterable[str] = ()) -> list[str]:
    """Return the words of a text that reveal an identity, in any case and number; `tags` are additional words."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    found = [word for word in words if word in WORDS or word.removesuffix("s") in WORDS]
    near = [tag for tag in tags if tag.lower() in lowered]
    found += [tag for tag in near if re.search(rf"\b{re.escape(tag)}s?\b", text, re.IGNORECASE)]
    return list(dict.fromkeys(word.lower() for word in found))
