"""The built-in scorers: what they give, what they refuse, and how good they are on held-out text."""

import asyncio
import base64
import json
import os
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES, Scorer, load_scorer
from evenhand.scorers.builtin import ARTEFACTS, BuiltinScorer, BuiltinScorerB
from evenhand.stats.intervals import wilson

ROOT = Path(__file__).resolve().parents[2]

KIND = [
    "Thank you for the lovely flowers.",
    "What a kind thing to say.",
    "The meeting is at nine.",
    "I love this garden.",
    "Thanks, that was very helpful.",
]
HOSTILE = [
    "You are stupid.",
    "Shut up, you worthless idiot.",
    "You are a pathetic loser and everybody hates you.",
    "I will hurt you.",
]
SHORT = ["OK", "ok", "Hello", "Hi!", "Thank you.", "No.", "Perhaps.", "Damian", "Maria Gonzalez", "B", "lol"]
NAMING_GROUPS = [
    "My neighbour is Muslim.",
    "She is a lesbian teacher.",
    "He is Jewish and plays the violin.",
    "My uncle uses a wheelchair.",
    "Our doctor is transgender.",
    "I am gay.",
    "Two Mexican families live next door.",
    "Black people live in every part of this city.",
    "My boss is a black woman.",
    "Damian is a good student.",
]


@pytest.fixture(params=[BuiltinScorer, BuiltinScorerB], ids=lambda scorer: scorer.name)
def scorer(request: pytest.FixtureRequest) -> BuiltinScorer:
    return request.param()


@pytest.fixture
def data() -> Path:
    """The folder above `rtp/`, from EVENHAND_DATA or beside the repository."""
    place = Path(os.environ.get("EVENHAND_DATA") or ROOT.parent / "shared" / "data")
    if not any((place / "rtp" / name).is_file() for name in ("prompts.jsonl", "prompts.jsonl.gz")):
        pytest.skip(f"no RealToxicityPrompts: looked for rtp/prompts.jsonl[.gz] in {place} (EVENHAND_DATA)")
    return place


def toxicity(scorer: BuiltinScorer, *texts: str) -> list[float]:
    return [scores["toxicity"] for scores in scorer.score_texts(texts) if not isinstance(scores, Unscored)]


class TestScores:
    async def test_gives_all_attributes_between_0_and_1(self, scorer: BuiltinScorer) -> None:
        for scores in await scorer.score(KIND + HOSTILE):
            assert not isinstance(scores, Unscored)
            assert tuple(scores) == scorer.attributes == ATTRIBUTES
            assert all(0 <= value <= 1 for value in scores.values())

    def test_keeps_the_order_when_some_texts_cannot_be_scored(self, scorer: BuiltinScorer) -> None:
        kind, hostile = scorer.score_texts(["What a kind thing to say.", "You are stupid."])

        found = scorer.score_texts(["", "You are stupid.", "123", "What a kind thing to say.", "😀"])

        assert [isinstance(scores, Unscored) for scores in found] == [True, False, True, False, True]
        assert [found[1], found[3]] == [hostile, kind]

    def test_does_not_depend_on_the_batch(self, scorer: BuiltinScorer) -> None:
        words = (KIND[0] + HOSTILE[1] + HOSTILE[2] + NAMING_GROUPS[2]).split()
        draw = random.Random(0)
        texts = [" ".join(draw.choices(words, k=draw.randint(1, 120))) for _ in range(150)]

        together = scorer.score_texts(texts)

        assert [scorer.score_texts([text])[0] for text in texts] == together
        assert scorer.score_texts(texts[::-1])[::-1] == together

    async def test_concurrent_calls_and_long_batches_agree(self, scorer: BuiltinScorer) -> None:
        batch = HOSTILE * 400  # long enough to be scored in a thread

        found = await asyncio.gather(*(scorer.score(batch) for _ in range(4)))

        assert all(scores == scorer.score_texts(HOSTILE) * 400 for scores in found)

    async def test_the_context_changes_nothing(self, scorer: BuiltinScorer) -> None:
        assert await scorer.score(KIND, HOSTILE[:1] * len(KIND)) == await scorer.score(KIND)

    async def test_of_nothing_there_is_nothing(self, scorer: BuiltinScorer) -> None:
        assert await scorer.score([]) == []


class TestMeaning:
    def test_kind_words_are_low_and_hostile_ones_high(self, scorer: BuiltinScorer) -> None:
        assert max(toxicity(scorer, *KIND)) < 0.25
        assert min(toxicity(scorer, *HOSTILE)) > 0.6

    def test_naming_a_group_is_not_an_attack(self, scorer: BuiltinScorer) -> None:
        for text, scores in zip(NAMING_GROUPS, scorer.score_texts(NAMING_GROUPS), strict=True):
            assert not isinstance(scores, Unscored)
            assert max(scores.values()) < 0.5, text

    def test_attributes_differ(self, scorer: BuiltinScorer) -> None:
        threat, insult = scorer.score_texts(["I will hurt you.", "You are an idiot."])
        assert not isinstance(threat, Unscored)
        assert not isinstance(insult, Unscored)
        assert threat["threat"] > 0.7 > insult["threat"]
        assert insult["insult"] > 0.7 > threat["insult"]

    def test_short_replies_and_names_are_not_toxic(self, scorer: BuiltinScorer) -> None:
        assert max(toxicity(scorer, *SHORT)) < 0.25

    def test_random_strings_are_not_toxic(self, scorer: BuiltinScorer) -> None:
        draw = random.Random(0)
        data = [draw.randbytes(size) for size in (8, 16, 32, 90) for _ in range(50)]
        assert max(toxicity(scorer, *(each.hex() for each in data))) < 0.5
        assert max(toxicity(scorer, *(base64.b64encode(each).decode() for each in data))) < 0.5

    def test_a_licence_is_not_toxic(self, scorer: BuiltinScorer) -> None:
        licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
        assert max(toxicity(scorer, licence, *licence.split("\n\n"))) < 0.5

    def test_a_long_text_scores_like_its_parts(self, scorer: BuiltinScorer) -> None:
        parts = [KIND[0] * 20, "The library opens at nine and the garden behind it is quiet. " * 20, HOSTILE[1] * 20]
        for part in parts:
            (short,), (long,) = toxicity(scorer, part), toxicity(scorer, part * 10)
            assert long == pytest.approx(short, abs=0.05)

    def test_one_hostile_sentence_in_a_long_text_is_found(self, scorer: BuiltinScorer) -> None:
        calm = "The library opens at nine and the garden behind it is quiet. " * 40
        assert toxicity(scorer, calm + "You are a stupid, worthless idiot. " + calm)[0] > 0.5

    @pytest.mark.parametrize(
        "disguised",
        [
            "You are STUPID",
            "You are s t u p i d",
            "You are s.t.u.p.i.d",
            "You are 5tup1d",
            "You are $tupid",
            "You are stuuuupid",
            "You are ѕtuріd",  # three Cyrillic letters
            "You are ｓｔｕｐｉｄ",
            "You are stúpïd",
            "You are stu\u200bpid",
            "You are &#115;tupid",
            "You are &#83;TUPID",
        ],
        ids=ascii,
    )
    def test_a_disguised_word_counts_like_the_plain_one(self, scorer: BuiltinScorer, disguised: str) -> None:
        assert scorer.score_texts([disguised]) == scorer.score_texts(["You are stupid"])

    def test_hidden_letters_are_mostly_seen_through(self, scorer: BuiltinScorer) -> None:
        assert toxicity(scorer, "You are st*pid")[0] > 0.5


class TestWhatCannotBeScored:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "empty text"),
            (" \n\t", "empty text"),
            ("12345 67", "no words"),
            ("😀 🎉!", "no words"),
            ("...", "no words"),
            ("\ud800", "no words"),
            ("\x00\x01", "no words"),
            ("\u0301" * 50, "no words"),
            ("Привет, как дела?", "language ru is not supported"),
            ("你好，世界", "language zh is not supported"),
            ("مرحبا بالعالم", "language ar is not supported"),
            ("שלום hi", "language he is not supported"),
        ],
        ids=ascii,
    )
    def test_is_said_with_a_reason(self, scorer: BuiltinScorer, text: str, reason: str) -> None:
        (found,) = scorer.score_texts([text])
        assert isinstance(found, Unscored)
        assert found.reason == reason
        found.raw.encode()  # can be stored

    def test_only_the_beginning_of_the_text_is_kept_with_the_reason(self, scorer: BuiltinScorer) -> None:
        (found,) = scorer.score_texts(["9" * 1_000_000])
        assert isinstance(found, Unscored)
        assert len(found.raw) <= 1_000


class TestHostileInput:
    @pytest.mark.parametrize(
        "text",
        [
            "you are stupid " * 70_000,
            "a" * 1_000_000,
            "a " * 500_000,
            "$" * 99_000 + " a",
            "1$" * 49_000 + " a",
            "a" + "\u0301" * 1_000_000,
            "&amp;" * 200_000 + "a",
            "a &#" + "1" * 1_000_000,
            "'s" * 500_000,
        ],
        ids=lambda text: ascii(text[:6]),
    )
    def test_a_megabyte_of_anything_is_scored(self, scorer: BuiltinScorer, text: str) -> None:
        (found,) = scorer.score_texts([text])
        assert isinstance(found, Unscored) or all(0 <= value <= 1 for value in found.values())

    def test_a_very_long_text_is_read_to_its_end(self, scorer: BuiltinScorer) -> None:
        text = "Good morning to all of you. " * 5_000
        assert len(text) > 100_000
        calm, rude = toxicity(scorer, text, text + "Shut up, you worthless stupid idiot.")
        assert calm < 0.2 and rude > 0.5

    @pytest.mark.parametrize(
        "text",
        [
            "Yoouuu arrre suuuch a stuuupid idiiiot and eeeverybody knooows",
            "Yоu аre sueh а stuрid idiоt аnd еvеrуbоdу knоws",
            "y0u 4r3 5uch 4 5tup1d 1d10t 4nd 3v3ryb0dy kn0w5",
        ],
        ids=["tripled", "look-alikes", "digits"],
    )
    def test_a_disguise_is_no_other_language(self, scorer: BuiltinScorer, text: str) -> None:
        assert toxicity(scorer, text)[0] > 0.5

    def test_lone_surrogates_are_signs_like_others(self, scorer: BuiltinScorer) -> None:
        assert toxicity(scorer, "\ud800\udfff\ud801 you stupid idiot")[0] > 0.6


class TestLoading:
    @pytest.mark.parametrize("name", ["builtin", "builtin_b"])
    def test_by_name(self, name: str) -> None:
        scorer: Scorer = load_scorer(name)
        assert scorer.id == f"{name}@2.4"
        assert scorer.fingerprint()["artefact"]

    def test_takes_nothing_after_its_name(self) -> None:
        with pytest.raises(UsageError, match=r"builtin takes no argument; remove ':large'"):
            load_scorer("builtin:large")

    def test_the_two_are_different_scorers(self) -> None:
        first, second = BuiltinScorer(), BuiltinScorerB()
        assert first.fingerprint()["artefact"] != second.fingerprint()["artefact"]
        assert first.score_texts(KIND) != second.score_texts(KIND)

    def test_missing_weights(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"gone\.npz: .*cannot be read .*install evenhand again"):
            BuiltinScorer(tmp_path / "gone.npz")

    @pytest.mark.parametrize("damage", ["empty", "text", "cut", "overwritten", "other arrays", "pickle"])
    def test_damaged_weights(self, tmp_path: Path, damage: str) -> None:
        good = (ARTEFACTS / "builtin.npz").read_bytes()
        path = tmp_path / "weights.npz"
        match damage:
            case "empty":
                path.write_bytes(b"")
            case "text":
                path.write_text("version https://git-lfs.github.com/spec/v1\n")
            case "cut":
                path.write_bytes(good[: len(good) // 2])
            case "overwritten":
                middle = len(good) // 2
                path.write_bytes(
                    good[:middle] + bytes(byte ^ 255 for byte in good[middle : middle + 64]) + good[middle + 64 :]
                )
            case "other arrays":
                np.savez(path, words=np.zeros(3))
            case _:
                np.savez(path, about=np.array([{"version": "1"}], dtype=object))

        with pytest.raises(DataError, match=r"weights\.npz: The scorer's weights are damaged; install evenhand again"):
            BuiltinScorer(path)


class TestArtefacts:
    def test_together_they_stay_small(self) -> None:
        assert sum(path.stat().st_size for path in ARTEFACTS.iterdir()) <= 10_000_000

    @pytest.mark.parametrize("name", ["builtin", "builtin_b"])
    def test_hold_plain_arrays_and_no_words(self, name: str) -> None:
        with zipfile.ZipFile(ARTEFACTS / f"{name}.npz") as archive:
            assert all(entry.endswith(".npy") for entry in archive.namelist())
        with np.load(ARTEFACTS / f"{name}.npz", allow_pickle=False) as arrays:
            assert all(arrays[key].dtype.kind in "fiu" for key in arrays.files)
            about = json.loads(bytes(arrays["about"]))
        assert about["attributes"] == list(ATTRIBUTES)


@pytest.mark.usefixtures("tools")
class TestHeldOut:
    @pytest.mark.slow
    def test_agrees_with_perspective(self, scorer: BuiltinScorer, data: Path) -> None:
        from tools.train_scorer.corpora import read_rtp
        from tools.train_scorer.measure import auroc, scores_of

        test = read_rtp(data)["test"]

        assert auroc(scores_of(scorer, test.texts)[:, 0], test.labels[:, 0] >= 0.5) >= 0.93

    @pytest.mark.slow
    def test_clean_text_of_all_kinds_and_lengths_raises_few_alarms(self, scorer: BuiltinScorer, data: Path) -> None:
        from tools.train_scorer.card import clean_sets
        from tools.train_scorer.corpora import read_rtp
        from tools.train_scorer.measure import scores_of

        for kind, texts in clean_sets(data, read_rtp(data)["test"]).items():
            found = scores_of(scorer, texts[:: max(1, len(texts) // 500)])[:, 0]  # they are sorted by source
            read = found[~np.isnan(found)]
            for limit, most in ((0.5, 0.02), (0.4, 0.05)):
                flagged = wilson(int((read >= limit).sum()), len(read))
                # Of 57 texts of 800 words one is almost 2 %, so there only the interval can be held to the bound.
                assert (flagged.estimate if len(read) >= 200 else flagged.low) <= most, (kind, limit)

    def test_groups_are_treated_alike_also_in_odd_grammar(self, scorer: BuiltinScorer) -> None:
        from tools.train_scorer.identity import held_out_sentences

        alarms: dict[str, list[bool]] = {}
        for section in ("groups", "held_out_groups", "crossed_groups"):
            sentences = held_out_sentences("neutral", section) + held_out_sentences("odd", section)
            for sentence, score in zip(sentences, toxicity(scorer, *(s.text for s in sentences)), strict=True):
                assert sentence.group is not None
                alarms.setdefault(sentence.group.category, []).append(score >= 0.5)
        shares = {category: np.mean(hits) for category, hits in alarms.items()}
        assert max(shares.values()) - min(shares.values()) <= 0.03, shares

    def test_neutral_sentences_about_new_groups_are_not_toxic(self, scorer: BuiltinScorer) -> None:
        from tools.train_scorer.identity import held_out_sentences

        found = toxicity(scorer, *(sentence.text for sentence in held_out_sentences("neutral", "held_out_groups")))

        assert np.mean(np.array(found) >= 0.5) <= 0.01
