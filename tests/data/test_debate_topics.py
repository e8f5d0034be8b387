"""Debate topics: what is built in, files of one's own, and what counts as the same topic."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand.core.errors import DataError, UnknownNameError
from evenhand.core.files import content_hash
from evenhand.data import debates
from evenhand.data.debates import BIASES, DebateTopics, KnownTopics, Role, Topic, load_topics, topic_id, topics_yaml

OWN: dict[str, Any] = {
    "bias": "dialect",
    "about": "Prejudice about people because of how they speak.",
    "roles": [{"name": "townsman", "description": "from town"}, {"name": "farmer", "description": "from a village"}],
    "topics": [{"id": "radio_news", "topic": "radio news", "question": "Who should read the news on the radio?"}],
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({**OWN, **changes}), encoding="utf-8")
    return path


@pytest.mark.parametrize("bias", BIASES)
def test_each_built_in_type_has_five_roles_and_sixty_topics_or_more(bias: str):
    found = load_topics(bias)

    assert found.bias == bias
    assert len(found.roles) == 5
    assert len(found.topics) >= 60
    assert all(2 <= len(each.topic.split()) <= 5 and each.question.endswith("?") for each in found.topics)
    assert all(each.id == topic_id(each.topic) for each in found.topics)


@pytest.mark.parametrize("bias", BIASES)
def test_no_built_in_topic_is_another_in_other_words(bias: str):
    known = KnownTopics()
    for topic in load_topics(bias).topics:
        assert not known.has(topic), topic
        known.add(topic)


def test_the_first_three_roles_are_the_groups_of_the_paper():
    names = {bias: [role.name for role in load_topics(bias).roles[:3]] for bias in BIASES}

    assert names == {
        "age": ["20-year-old", "40-year-old", "60-year-old"],
        "nationality": ["Chinese person", "American person", "Nigerian person"],
        "institution": ["company employee", "government diplomat", "non-profit volunteer"],
        "beauty": ["attractive person", "average-looking person", "unattractive person"],
        "profession": ["doctor", "lawyer", "engineer"],
    }


def test_age_is_the_default_and_others_are_named_or_refused():
    assert load_topics().bias == "age"
    with pytest.raises(UnknownNameError, match="did you mean beauty"):
        load_topics("beaty")


def test_a_file_of_ones_own_brings_its_own_type(tmp_path: Path):
    found = load_topics(file=written(tmp_path))

    assert (found.bias, len(found.roles), found.topics[0].id) == ("dialect", 2, "radio_news")
    with pytest.raises(DataError, match="about 'dialect', not 'age'"):
        load_topics("age", tmp_path / "own.yaml")


TOPIC = OWN["topics"][0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"about": ""}, "not a file of debate topics: about: there is no text"),
        ({"bias": "My Type"}, "'My Type' is not a valid id"),
        ({"roles": OWN["roles"][:1]}, "a debate needs at least two roles"),
        ({"roles": [OWN["roles"][0], OWN["roles"][0]]}, "the role 'townsman' occurs twice"),
        ({"roles": [*OWN["roles"], {"name": "referee", "description": "x"}]}, "no role may be called 'referee'"),
        ({"roles": ["townsman", "farmer"]}, "roles, entry 1: it must be a mapping"),
        ({"topics": []}, "at least two roles and a topic"),
        ({"topics": "all"}, "topics: it must be a list"),
        ({"topics": [TOPIC, TOPIC]}, "the id 'radio_news' occurs twice"),
        ({"topics": [TOPIC, {**TOPIC, "id": "other"}]}, "the question 'Who should read .*' occurs twice"),
        ({"topics": [{**TOPIC, "question": "Read the news."}]}, "does not end with a question mark"),
        ({"topics": [{**TOPIC, "question": None}]}, "topics, entry 1, question: there is no text"),
        ({"topics": [{**TOPIC, "topic": "word " * 9}]}, "the topic has more than 8 words"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(DataError, match=message) as error:
        load_topics(file=written(tmp_path, **changes))

    assert "own.yaml" in str(error.value)


def test_a_folder_has_a_file_for_each_type(tmp_path: Path):
    (tmp_path / "beauty.yaml").write_text(topics_yaml(load_topics("beauty"), {}))

    assert load_topics("beauty", tmp_path) == load_topics("beauty")
    with pytest.raises(DataError, match=r"age\.yaml"):
        load_topics("age", tmp_path)
    with pytest.raises(DataError, match="name the types of bias"):
        load_topics(None, tmp_path)


def test_files_that_are_not_there_or_no_yaml_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="There is no file"):
        load_topics(file=tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("bias: [age\nabout: x", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad.yaml, line 2: not valid YAML"):
        load_topics(file=tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- age", encoding="utf-8")
    with pytest.raises(DataError, match="fields bias, about, roles and topics"):
        load_topics(file=tmp_path / "list.yaml")


def test_topics_can_be_stored_and_read_back(tmp_path: Path):
    topics = DebateTopics("x", "About: x.", (Role("a", "b"), Role("c", "d")), (Topic("t", "t: t", "Is it “so”?"),))
    path = tmp_path / "t.yaml"
    path.write_text(topics_yaml(topics, {"model": "m"}), encoding="utf-8")

    assert load_topics(file=path) == topics
    assert content_hash(load_topics(file=path)) == content_hash(topics)


def idea(topic: str, question: str) -> Topic:
    return Topic(topic_id(topic), topic, question)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_a_topic_is_known_if_it_shares_most_words_with_any(share: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(debates, "ALIKE", share)
    topics = [*load_topics("age").topics, idea("it", "is it?")]  # the last one has common words alone

    for topic in [*load_topics("beauty").topics, *topics]:
        words = debates._words(topic)
        others = [debates._words(each) for each in topics if each is not topic]
        alike = any(len(words & each) >= share * len(words | each) for each in others)
        assert KnownTopics([each for each in topics if each is not topic]).has(topic) == alike


def test_topics_are_the_same_by_their_words_whatever_their_order_and_spelling():
    known = KnownTopics([idea("night shifts", "How should night shifts be shared within a team?")])

    assert known.has(idea("Night Shifts!", "Something else entirely?"))
    assert known.has(idea("shared night shift", "How should a night shift be shared in the team?"))
    assert not known.has(idea("night buses", "Should buses run through the night?"))
    assert not KnownTopics().has(idea("night buses", "Should buses run through the night?"))


def test_an_id_is_made_of_plain_words():
    assert topic_id("  Café visits: athletes' lunch ") == "cafe_visits_athletes_lunch"
    assert topic_id("夜勤") == ""
