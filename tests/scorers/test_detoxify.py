"""Detoxify behind a stand-in for its package: the network is not run here, only what Evenhand does around it."""

import sys
from pathlib import Path

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.types import Unscored
from evenhand.scorers.base import load_scorer
from evenhand.scorers.detoxify import parts_of

STAND_IN = """
class Detoxify:
    loaded = []
    passes = []

    def __init__(self, model_type, device="cpu"):
        if ERROR:
            raise OSError(ERROR)
        self.loaded.append((model_type, device))
        self.names = ["toxicity", "severe_toxicity", "obscene", "threat", "insult"]
        self.names += ["identity_hate"] if model_type == "original" else ["identity_attack", "sexual_explicit", "male"]

    def tokenizer(self, text, verbose=True):
        text.encode()
        return {"input_ids": ["<s>", *text.split(), "</s>"]}

    def predict(self, texts):
        self.passes.append(len(texts))
        if "crash" in texts:
            raise RuntimeError("out of memory")
        read = [" ".join(self.tokenizer(text)["input_ids"][1:-1][:510]) for text in texts]
        columns = {
            name: [(min(len(text), 500) + place) / 1000 for text in read] for place, name in enumerate(self.names)
        }
        columns["toxicity"] = [
            float("nan") if text == "nan" else 0.9 if "HIDDEN" in text else len(text[:500]) / 1000 for text in read
        ]
        return columns
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package called detoxify on the path, as pip would put it there."""

    def install(error: str = ""):
        (tmp_path / "detoxify").mkdir()
        (tmp_path / "detoxify" / "__init__.py").write_text(f"ERROR = {error!r}\n{STAND_IN}")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "detoxify", raising=False)

    yield install
    sys.modules.pop("detoxify", None)


async def test_names_are_ours(package):
    package()

    (result,) = await load_scorer("detoxify").score(["a" * 100])

    assert result == {
        "toxicity": 0.1,
        "severe_toxicity": 0.101,
        "profanity": 0.102,
        "threat": 0.103,
        "insult": 0.104,
        "identity_attack": 0.105,
        "sexually_explicit": 0.106,
    }


async def test_the_original_has_no_sexually_explicit(package):
    package()
    scorer = load_scorer("detoxify:original")

    (result,) = await scorer.score(["a" * 100])

    assert scorer.spec == "detoxify:original"
    assert not isinstance(result, Unscored)
    assert set(result) == set(scorer.attributes)
    assert "sexually_explicit" not in result
    assert result["identity_attack"] == 0.105


async def test_the_multilingual_variant_reads_its_languages_only(package):
    package()
    scorer = load_scorer("detoxify:multilingual")

    french, russian, german = await scorer.score(
        [
            "Les femmes ne savent pas conduire une voiture",
            "Все соседи пришли вечером на праздник",
            "Alle Nachbarn kamen am Abend zu dem Fest",
        ]
    )

    assert not isinstance(french, Unscored)
    assert set(french) == set(scorer.attributes)
    assert not isinstance(russian, Unscored)
    assert german == Unscored("language de is not supported")
    assert isinstance(
        (await load_scorer("detoxify").score(["Les femmes ne savent pas conduire une voiture"]))[0], Unscored
    )


async def test_it_is_loaded_once_and_texts_go_in_batches(package):
    package()
    scorer = load_scorer("detoxify")

    results = await scorer.score(["a"] * 40 + [""] + ["b"] * 30)
    await scorer.score(["c"])

    network = sys.modules["detoxify"].Detoxify
    assert len(network.loaded) == 1
    assert network.passes == [32, 32, 6, 1]
    assert [place for place, each in enumerate(results) if isinstance(each, Unscored)] == [40]


@pytest.mark.parametrize("before", [0, 509, 510, 700, 5_000])
async def test_a_long_text_is_read_in_parts_whose_highest_score_counts(package, before: int):
    package()
    text = " ".join(["the table is green and"] * (before // 5) + ["now"] * (before % 5))

    hidden, clean, short = await load_scorer("detoxify").score(
        [f"{text} HIDDEN {'the sky is blue ' * 300}", "the sky is blue " * 300, "a" * 100]
    )

    assert not isinstance(hidden, Unscored)
    assert hidden["toxicity"] == 0.9
    assert not isinstance(clean, Unscored)
    assert clean["toxicity"] == 0.5
    assert not isinstance(short, Unscored)
    assert short["toxicity"] == 0.1


SIGNS = "".join(map(chr, range(0x4E00, 0x4E00 + 3_000)))
"""No two are alike, so that the place of a part is known."""


@pytest.mark.parametrize(
    "text",
    [SIGNS, f"{SIGNS[0]} {SIGNS[1:]}", f"{SIGNS[:-9]} {SIGNS[-9:-5]} {SIGNS[-5:]}", " ".join(SIGNS)],
    ids=["one word", "a short word first", "short words last", "words"],
)
def test_parts_fit_overlap_and_leave_nothing_out(text: str):
    parts = parts_of(text, lambda part: len(part) <= 512)

    assert max(map(len, parts)) <= 512
    reached = 0
    for part in parts:
        assert text.index(part) < reached or reached == 0
        reached = max(reached, text.index(part) + len(part))
    assert reached == len(text)


async def test_a_text_that_cannot_be_encoded_is_unscored(package):
    package()

    (broken,) = await load_scorer("detoxify").score(["\udcff this text is not a text"])

    assert isinstance(broken, Unscored)
    assert broken.reason.startswith("detoxify failed: UnicodeEncodeError")


async def test_a_bad_number_and_a_crash_are_not_zeros(package):
    package()
    scorer = load_scorer("detoxify")

    (bad,) = await scorer.score(["nan"])
    (crashed,) = await scorer.score(["crash"])

    assert bad == Unscored("detoxify returned an invalid score: toxicity is nan, which is not a number in 0–1")
    assert crashed == Unscored("detoxify failed: RuntimeError: out of memory")


async def test_a_failed_download_is_one_sentence(package):
    package(error="<urlopen error timed out>")

    with pytest.raises(UsageError, match=r"detoxify:unbiased could not load .*urlopen error.* connect to the network"):
        await load_scorer("detoxify").score(["a"])


def test_without_the_package_one_sentence_says_what_to_install():
    with pytest.raises(UsageError, match=r"pip install .*\[detoxify\]'"):
        load_scorer("detoxify")


def test_an_unknown_variant_gets_a_suggestion(package):
    package()

    with pytest.raises(UsageError, match="did you mean unbiased"):
        load_scorer("detoxify:unbiassed")
