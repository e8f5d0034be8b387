"""Scenarios and identities of MALIBU: what is read, and what is refused in which words."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand.benchmarks.malibu.scenarios import identity_words, load_bases, load_identities, pairs_of, responses_fault
from evenhand.core.errors import DataError
from evenhand.core.files import content_hash

ONE = " ".join(["I check the lock twice and write it down."] * 8)
OTHER = " ".join(["Twice I look at the lock and note it."] * 8)


def base(**changes: Any) -> dict[str, Any]:
    row = {"id": "keeper", "profession": "keeper", "task": "Keep it.", "surfaces": "None.", "derived": [scenario()]}
    return row | changes


def scenario(**changes: Any) -> dict[str, Any]:
    row = {
        "id": "night",
        "role": "alone",
        "setting": "at night",
        "situation": "A lock jams.",
        "responses": [ONE, OTHER],
    }
    return row | changes


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(row)` puts a base scenario into a folder of its own."""

    def make(row: Any, name: str = "keeper") -> Path:
        (tmp_path / f"{name}.yaml").write_text(row if isinstance(row, str) else yaml.safe_dump(row), encoding="utf-8")
        return tmp_path

    return make


def test_the_built_in_scenarios_are_fit_with_the_built_in_identities():
    bases = load_bases(tags=[identity.tag for identity in load_identities()])

    assert len(bases) == 20
    assert {len(each.derived) for each in bases} == {10}
    texts = [text for each in bases for one in each.derived for text in (one.situation, *one.responses)]
    assert len(set(texts)) == len(texts)


def test_the_built_in_identities_make_thirteen_pairs():
    identities = load_identities()

    assert [each.name for each in identities if each.category == "gender"] == ["female", "male"]
    assert (identities[0].tag, identities[0].author) == ("Female", "a female professional")
    assert len(identities) == 10
    assert len(pairs_of(identities)) == 13
    assert all(one.category == other.category for one, other in pairs_of(identities))


def test_a_folder_of_ones_own_is_read(write: Any):
    [found] = load_bases(write(base()))

    assert (found.id, found.profession, found.derived[0].responses) == ("keeper", "keeper", (ONE, OTHER))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (base(id="other"), "keeper.yaml: the id is 'other'; it must be the name of the file"),
        (base(id="Keeper!"), "'Keeper!' is not a valid id"),
        (base(task=""), "not a base scenario: task: there is no text"),
        (base(derived=[]), "derived: it needs at least 1 "),
        (base(derived=["night"]), "derived, entry 1: it must be a mapping"),
        (base(derived=[scenario(), scenario()]), "the id 'night' is given to two scenarios"),
        (base(derived=[scenario(role=None)]), "derived, entry 1, role: there is no text"),
        (base(derived=[scenario(responses=[ONE])]), "derived, entry 1, responses: entry 2 is missing"),
        (base(derived=[scenario(responses="x")]), "derived, entry 1, responses: it must be a list"),
        (base(derived=[scenario(responses=[ONE, f" {ONE} "])]), "the two responses are the same text"),
        (base(derived=[scenario(responses=[ONE, "Too short."])]), "response 2 has 2 words, not 30 to 150"),
        (base(derived=[scenario(responses=[ONE, OTHER[: len(OTHER) * 6 // 10]])]), "which differ by more than 20%"),
        (base(derived=[scenario(situation="His lock jams.")]), "the situation has words that tell an identity: his"),
        (base(derived=[scenario(responses=[ONE, f"{OTHER} Amen, MOSQUE."])]), "response 2 has words .*: mosque"),
        ("derived: [", r"keeper.yaml, line \d+: not valid YAML"),
        ("- a\n- b\n", "the file: it must be a mapping"),
    ],
)
def test_a_fault_is_told_with_its_place(write: Any, row: Any, told: str):
    with pytest.raises(DataError, match=told):
        load_bases(write(row))


def test_a_tag_of_an_identity_may_not_be_in_a_scenario(write: Any):
    folder = write(base(derived=[scenario(situation="The left-handed keeper jams a lock.")]))

    assert load_bases(folder)
    with pytest.raises(DataError, match="tell an identity: left-handed"):
        load_bases(folder, ["Left-handed"])


def test_folders_without_scenarios_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="has no scenario"):
        load_bases(tmp_path)
    with pytest.raises(DataError, match="There is no folder"):
        load_bases(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["He's late", "ask HER", "two women", "the chairman", "at Christmas", "a Muslim"])
def test_words_that_tell_an_identity_are_found(text: str):
    assert identity_words(text)


@pytest.mark.parametrize("text", ["the other humans", "a whiteboard", "40 ms", "a manual", "they", "shelf", "hero"])
def test_words_that_only_look_like_it_are_not(text: str):
    assert not identity_words(text)


def test_lengths_may_differ_by_a_fifth():
    words = ["word"] * 50

    assert responses_fault([" ".join(words), " ".join(["other"] * 40)]) is None
    assert responses_fault([" ".join(words), " ".join(["other"] * 39)]) is not None


def frozen(folder: Path) -> None:
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.yaml")}
    (folder / "provenance.json").write_text(json.dumps({"sha256": sums}))


def test_a_frozen_folder_says_which_file_was_changed(write: Any):
    write(base(id="one"), "one")
    folder = write(base(id="two"), "two")
    frozen(folder)
    assert len(load_bases(folder)) == 2

    write(base(id="two", task="Another."), "two")

    with pytest.raises(DataError, match=r"two\.yaml was changed since"):
        load_bases(folder)


def test_a_frozen_folder_misses_and_refuses_files(write: Any):
    folder = write(base())
    frozen(folder)
    write(base(id="more"), "more")
    with pytest.raises(DataError, match=r"more\.yaml was added"):
        load_bases(folder)

    (folder / "keeper.yaml").unlink()
    with pytest.raises(DataError, match=r"keeper\.yaml is missing"):
        load_bases(folder)


def test_a_broken_provenance_is_told(write: Any):
    folder = write(base())
    (folder / "provenance.json").write_text("[]")

    with pytest.raises(DataError, match=r"provenance\.json: there are no checksums"):
        load_bases(folder)


def test_the_hash_is_of_the_content_and_not_of_its_spelling(write: Any):
    before = content_hash(load_bases(write(base())))
    assert content_hash(load_bases(write(json.dumps(base())))) == before
    assert content_hash(load_bases(write(base(task="Another.")))) != before


def test_an_identity_is_one_line(tmp_path: Path):
    file = tmp_path / "identities.yaml"
    file.write_text("age:\n  younger: {tag: Young, author: a young one}\n  older: {tag: Old, author: an old one}\n")

    assert [(each.name, each.category, each.tag) for each in load_identities(file)] == [
        ("younger", "age", "Young"),
        ("older", "age", "Old"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("age:\n  younger: {tag: Young, author: x}\n", "age: it needs at least 2 .*two identities or more"),
        ("age: young\n", "age: it must be a mapping"),
        ("age:\n  younger: {tag: Young}\n  older: {tag: Old}\n", "age.younger: the field author is missing"),
        ("age:\n  a: {tag: A, author: a}\n  control: {tag: B, author: b}\n", "'control' is taken"),
        (
            "x:\n  a: {tag: A, author: a}\n  b: {tag: B, author: b}\n"
            "y:\n  a: {tag: A, author: a}\n  c: {tag: C, author: c}\n",
            "'a' is taken",
        ),
        ("age:\n  a: A\n  b: B\n", "age.a: it must be a mapping"),
        ("age:\n  1: {tag: A, author: a}\n  b: {tag: B, author: b}\n", "1 is not a valid id"),
        ("{}", "has no identities"),
        ("", "the file: it must be a mapping"),
    ],
)
def test_a_wrong_identity_is_told(tmp_path: Path, text: str, told: str):
    file = tmp_path / "identities.yaml"
    file.write_text(text)

    with pytest.raises(DataError, match=told):
        load_identities(file)


def test_a_missing_file_of_identities_is_told(tmp_path: Path):
    with pytest.raises(DataError, match=r"none.yaml: cannot be read"):
        load_identities(tmp_path / "none.yaml")
