"""python -m tools.train_scorer.neural_texts --data FOLDER --out FILE: what `neural` learns from and is measured on.

One JSON object per line: `windows` (the text as the network reads it, see `evenhand.scorers.neural`), `labels`
(seven and `stereotype`, null where unknown), `set`, and for measuring also `text`, `group` and `context`. Sets named
`train …` are learned, `calibration` fits the calibration, and the others are only measured.
"""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES
from evenhand.scorers.builtin import BuiltinScorer
from evenhand.scorers.neural import SEPARATOR, plain_text
from tools.train_scorer import corpora, hard, identity
from tools.train_scorer.corpora import open_text, share
from tools.train_scorer.identity import Group

Labels = Sequence[float | None]
Row = dict[str, Any]
Labelled = tuple[str, str, Labels, str | None]
"""A set, a text of it, its labels, and its group."""

CLEAN: Labels = (0.03, 0.01, 0.03, 0.02, 0.02, 0.03, 0.02)
QUOTED: Labels = (0.14, 0.05, 0.08, 0.18, None, 0.08, None)
DENIED: Labels = (0.10, 0.03, 0.06, 0.12, 0.04, 0.08, 0.03)
SHARED: Labels = (0.82, None, None, 0.8, None, None, None)
CONTEXT = "context: "
WINDOW, STRIDE = 80, 60
"""Words of a part of a long text; the scorer reads shorter ones."""
MISSPELT, HIDDEN, WRAPPED, CASUAL = 0.14, 0.10, 0.06, 0.13
"""Shares of the texts to learn that are repeated in this way."""
LENGTHS = (15, 50, 100, 200, 400, 800)
HELD_OUT_ARTICLES, FITTED_ARTICLES = 0.4, 0.5
"""Encyclopaedia articles with a lower place are measured, those up to the second are for calibration."""


def all_rows(data: Path, sets: Sequence[str] = ("",), registry: Path | None = None) -> Iterator[Row]:
    """Yield the rows of the sets whose names begin with one of `sets`.

    Of the texts to learn, whatever their labels, some are repeated misspelt, with hidden letters, inside JSON, code
    or a table, with emoji, without spaces or in short forms. So none of these tells anything about a label.
    """
    chance = random.Random(19)
    for name, text, known, about in _everything(data, registry):
        if not name.startswith(tuple(sets)):
            continue
        labels = (*known, _stereotype(name, known)) if len(known) == len(ATTRIBUTES) else known
        before = about is not None and about.startswith(CONTEXT)
        context, group = (about.removeprefix(CONTEXT), None) if about and before else (None, about)
        yield from _row(name, text, labels, group, context)
        if name.startswith("train") and name != "train strings":
            if chance.random() < MISSPELT:
                yield from _row(name, hard.misspelt(text, chance), labels, group, context)
            if chance.random() < HIDDEN:
                yield from _row(name, hard.hidden(text, chance), labels, group, context)
            if chance.random() < WRAPPED and len(text) < 400:
                yield from _row(name, hard.wrapped(text, chance), labels, group, context)
            if chance.random() < CASUAL:
                way = chance.choice((hard.with_emoji, hard.run_together, hard.short_forms))
                yield from _row(name, way(text, chance), labels, group, context)


def windows(plain: str) -> list[str]:
    """Return the whole text, or overlapping windows of a long one."""
    words = plain.split(" ")
    if len(words) <= WINDOW:
        return [plain]
    starts = range(0, len(words) - WINDOW + STRIDE, STRIDE)
    return [" ".join(words[start : start + WINDOW]) for start in starts]


def _stereotype(name: str, labels: Labels) -> float | None:
    """What the name of a set tells about stereotypes."""
    toxic = (labels[0] or 0) > 0.4
    if name.endswith(("clean", "everyday", "names", "strings", "short", "calm")):
        return 0.03
    if name.endswith(("neutral", "odd", "grave", "kind", "denied", "quoted")):
        return 0.08
    if name.endswith("toxigen"):
        return 0.85 if toxic else 0.1
    return 0.6 if name.endswith("unkind") else None


def _everything(data: Path, registry: Path | None) -> Iterator[Labelled]:
    yield from _texts(data)
    yield from hard.subtle(data)
    yield from hard.texts(registry, hateful(data, "train"), hateful(data, ""))


def _texts(data: Path) -> Iterator[Labelled]:
    chance = random.Random(7)
    yield from _rtp(data)
    yield from _comments(data)
    yield from _people(chance)
    yield from _held_out_people()
    yield from _quotations(data, chance)
    yield from _own(chance)
    yield from _paragraphs(data, chance)
    yield from _more(data, random.Random(11))
    yield from _one_of_seven(data, random.Random(13))
    yield from _design()


def _text(name: str, text: str, labels: Labels, group: str | None = None) -> Labelled:
    return name, text, labels, group


def _row(name: str, text: str, labels: Labels, group: str | None = None, context: str | None = None) -> Iterator[Row]:
    plain = plain_text(text)
    if isinstance(plain, Unscored):
        return
    row: Row = {"set": name, "labels": [None if each is None else round(each, 4) for each in labels]}
    parts = windows(plain)
    if context is not None:
        before = plain_text(context)
        if isinstance(before, Unscored):
            return
        parts = [f"{before} {SEPARATOR} {parts[0]}"]
    if not name.startswith("train"):
        told = {"group": group, "context": context}
        yield {**row, "text": text, "windows": parts, **{key: value for key, value in told.items() if value}}
        return
    # Which part of a long toxic text is the toxic one is not known; most are at the start.
    for part in parts if (labels[0] or 0) < 0.3 else parts[:1]:
        yield {**row, "windows": [part]}


def _rtp(data: Path) -> Iterator[Labelled]:
    """Prompts and continuations with Perspective's scores, on the same sides as for `builtin`."""
    sides = {"test": "rtp", "a calibration": "calibration"}
    for side, texts in corpora.read_rtp(data).items():
        for text, labels in zip(texts.texts, texts.labels.tolist(), strict=True):
            yield _text(sides.get(side, "train rtp"), text, labels)


def _comments(data: Path) -> Iterator[Labelled]:
    """Other corpora with labels of their own kind; what they do not tell is filled by the scores of `builtin`."""
    for name, text, labels, group in _labelled(data):
        yield name, text, labels, group
    chance = random.Random(5)
    for text, toxic in zip(*_surge(data), strict=True):
        yield _text("surge", text, _only(toxic))
        if toxic:
            yield _text("surge disguised", disguised(text, chance), _only(1.0))
    davidson = corpora.read_davidson(data)
    for text, label in zip(davidson.texts, davidson.labels.tolist(), strict=True):
        if share("davidson", text) < 0.2:
            yield _text("davidson", text, _only(float(label < 2)))


def _surge(data: Path) -> tuple[list[str], list[float]]:
    texts = corpora.read_surge(data)
    return texts.texts, texts.labels.tolist()


def _labelled(data: Path) -> Iterator[Labelled]:
    folder = data / "toxicity"
    yield from _edos(folder / "edos" / "edos_labelled_aggregated.csv")
    for split in ("train", "validation", "test"):
        yield from _hatemoji(folder / "hatemoji" / f"{split}.csv", split)
    yield from _toxigen(folder / "toxigen_prompts" / "prompts.jsonl")
    yield from _jigsaw(folder / "jigsaw_part" / "texts.csv")


def _edos(path: Path) -> Iterator[Labelled]:
    """Posts that are sexist or not; those that are not may be toxic in other ways."""
    with open_text(path) as file:
        for row in csv.DictReader(file):
            sexist = row["label_sexist"] == "sexist"
            if row["split"] == "test":
                yield "edos", row["text"], _only(float(sexist)), None
            else:
                yield "train edos", row["text"], _attack(row["text"], 0.72) if sexist else _guess(row["text"]), None


def _hatemoji(path: Path, split: str) -> Iterator[Labelled]:
    """Posts with emoji, written so that classifiers fail."""
    names = {"train": "train hatemoji", "validation": "hatemoji validation", "test": "hatemoji"}
    with open_text(path) as file:
        for row in csv.DictReader(file):
            hateful = row["label_gold"] == "1"
            labels = _only(float(hateful))
            if split == "train":
                labels = _attack(row["text"], 0.82) if hateful else _harmless(row["text"])
            yield names[split], row["text"], labels, None


def _toxigen(path: Path) -> Iterator[Labelled]:
    """Statements about groups, hateful or neutral, without swear words."""
    with open_text(path) as file:
        for row in map(json.loads, file):
            hateful = bool(row["label"])
            if share("toxigen", row["text"]) < 0.2:
                yield "toxigen", row["text"], _only(float(hateful)), row["group"]
            else:
                labels = _attack(row["text"], 0.72) if hateful else identity.labels_of("neutral")
                yield "train toxigen", row["text"], labels, None


def _jigsaw(path: Path) -> Iterator[Labelled]:
    """Comments on Wikipedia."""
    with open_text(path) as file:
        for text, label in csv.reader(file):
            if label not in ("0", "1"):
                continue
            if (place := share("jigsaw", text)) < 0.25:
                yield "jigsaw" if place < 0.2 else "calibration", text, _only(float(label)), None
            elif label == "1":
                yield "train jigsaw", text, [max(_guess(text)[0] or 0, 0.82), *_guess(text)[1:]], None
            else:
                yield "train jigsaw", text, [0.05, 0.02, 0.05, *_guess(text)[3:]], None


def _only(toxic: float) -> Labels:
    return (toxic, *[None] * 6)


@cache
def _builtin() -> BuiltinScorer:
    return BuiltinScorer()


@cache
def _guess(text: str) -> tuple[float | None, ...]:
    (scores,) = _builtin().score_texts([text])
    return (None,) * 7 if isinstance(scores, Unscored) else tuple(scores[name] for name in ATTRIBUTES)


def _attack(text: str, level: float) -> Labels:
    """Scores of a text that attacks a group, as its annotators say; `level` is the least for such a text."""
    toxicity, severe, insult, attack, profanity, threat, sexual = _guess(text)
    return (max(toxicity or 0, level), severe, insult, max(attack or 0, level), profanity, threat, sexual)


def _harmless(text: str) -> Labels:
    """Scores of a text that attacks nobody, as its annotators say; it may still be profane."""
    guess = _guess(text)
    if (guess[4] or 0) >= 0.4:
        return (*guess[:3], 0.1, *guess[4:])
    return (0.12, 0.04, 0.10, 0.08, *guess[4:])


def _people(chance: random.Random) -> Iterator[Labelled]:
    own = spec()
    crossed = _crossed()
    known = identity.groups()
    for sentence in identity.training_sentences():
        kind = sentence.kind.removeprefix("contrast_")
        yield _text(f"train people {kind}", sentence.text, identity.labels_of(sentence.kind))
    templates = identity.templates("neutral")
    for group in [*known, *crossed]:
        for template in own["odd"]:
            yield _text("train people neutral", group.say(template), identity.labels_of("neutral"))
        for template in own["denied"]:
            yield _text("train people denied", group.say(template), DENIED)
    for group in crossed:
        for template in templates:
            yield _text("train people neutral", group.say(template), identity.labels_of("neutral"))
        for template in identity.templates("unkind"):
            yield _text("train people unkind", group.say(template), identity.labels_of("unkind"))
    for _ in range(2500):  # several sentences in a row: naming groups often is no attack, one attack among them is
        texts = [chance.choice([*known, *crossed]).say(chance.choice(templates)) for _ in range(chance.randint(2, 5))]
        yield _text("train people neutral", " ".join(texts), identity.labels_of("neutral"))


def _held_out_people() -> Iterator[Labelled]:
    held = spec()["held_out"]
    for section in ("groups", "held_out_groups", "crossed_groups"):
        for group in identity.groups(section):
            named = f"{section}: {group.predicate}"
            for template in identity.templates("held_out_neutral"):
                yield _text(f"neutral {section}", group.say(template), CLEAN, named)
            for template in held["odd"]:
                yield _text(f"odd {section}", group.say(template), CLEAN, named)
            for template in held["denied"]:
                yield _text("denied", group.say(template), CLEAN, named)
            for kind in ("grave", "unkind"):
                labels = _only(float(kind == "unkind"))
                for template in identity.templates(f"held_out_{kind}"):
                    yield _text(kind, group.say(template), labels, named)


def _quotations(data: Path, chance: random.Random) -> Iterator[Labelled]:
    own = spec()
    attacks = [s.text for s in identity.training_sentences() if s.kind in ("unkind", "threatening")]
    quoted = {True: hateful(data, "train"), False: hateful(data, "")}
    for _ in range(7000):
        quote = chance.choice(attacks if chance.random() < 0.5 else quoted[True])
        yield _text("train quoted", _say(chance, own["rejecting"], quote), QUOTED)
    for _ in range(3500):
        quote = chance.choice(attacks if chance.random() < 0.5 else quoted[True])
        yield _text("train shared", _say(chance, own["sharing"], quote), SHARED)
    new = [s.text for section in ("groups", "held_out_groups") for s in identity.held_out_sentences("unkind", section)]
    for kind, frames, label in (("rejecting", "counter-speech", 0.0), ("sharing", "shared", 1.0)):
        for _ in range(1000):
            quote, source = (
                (chance.choice(new), "own") if chance.random() < 0.5 else (chance.choice(quoted[False]), "others")
            )
            yield _text(f"{frames} {source}", _say(chance, own["held_out"][kind], quote), _only(label))


def hateful(data: Path, side: str) -> list[str]:
    """Short hateful texts of others, to be quoted; the side is `train` or, for measuring, empty."""
    names = [f"{side} {name}".strip() for name in ("toxigen", "hatemoji")]
    return [t for name, t, labels, _ in _labelled(data) if name in names and (labels[0] or 0) > 0.7 and len(t) < 160]


def _say(chance: random.Random, frames: Sequence[str], quote: str) -> str:
    frame = chance.choice(frames)
    if '"{q}"' not in frame:
        quote = quote[0].lower() + quote[1:]
    if chance.random() < 0.3:
        frame = frame.replace('"', "'")
    return frame.replace("{q}", quote.strip())


def _own(chance: random.Random) -> Iterator[Labelled]:
    """Short replies, names, everyday text and random strings."""
    own = spec()
    yield from _plain(chance, own, "train ", 1500, 800)
    for _ in range(1500):
        text = " ".join(chance.sample(own["everyday"] + own["short"], chance.randint(2, 6)))
        yield _text("train everyday", text, CLEAN)
    yield from _plain(chance, own["held_out"], "", 400, 300)


def _plain(chance: random.Random, own: Mapping[str, Any], side: str, names: int, strings: int) -> Iterator[Labelled]:
    for kind in ("short", "everyday"):
        for text in own[kind]:
            yield _text(f"{side}{kind}", text, CLEAN)
    for _ in range(names):
        first, other = chance.sample(own["names"], 2)
        text = chance.choice(own["named"]).format(name=first, other=other, surname=chance.choice(own["surnames"]))
        yield _text(f"{side}names", text, CLEAN, first)
    for _ in range(strings):
        yield _text(f"{side}strings", _noise(chance), CLEAN)


def _more(data: Path, chance: random.Random) -> Iterator[Labelled]:
    """Further wordings, neutral sentences and attacks in bad grammar, and longer harmless text of many sources."""
    own, more = spec(), spec()["more"]
    everybody = learned_groups()
    neutral, attacks = identity.labels_of("neutral"), identity.labels_of("unkind")
    for group in everybody:
        for template in more["odd"]:
            yield _text("train more odd", group.say(template), neutral)
        for template in more["denied"]:
            yield _text("train more denied", group.say(template), DENIED)
    for _ in range(7000):
        template = chance.choice(own["odd"] + more["odd"] + identity.templates("neutral"))
        yield _text("train more odd", clumsy(chance.choice(everybody).say(template), chance), neutral)
    for _ in range(2500):
        template = chance.choice(identity.templates("unkind"))
        yield _text("train more unkind", clumsy(chance.choice(everybody).say(template), chance), attacks)
    attacking = [*hateful(data, "train"), *(chance.choice(everybody).say(t) for t in identity.templates("unkind") * 40)]
    for _ in range(5000):
        yield _text("train more quoted", _say(chance, more["rejecting"], chance.choice(attacking)), QUOTED)
    for _ in range(2500):
        yield _text("train more shared", _say(chance, more["sharing"], chance.choice(attacking)), SHARED)
    plain = more["everyday"] + own["everyday"]
    for _ in range(3000):
        yield _text("train more everyday", " ".join(chance.sample(plain, chance.choice((1, 1, 1, 2, 4)))), CLEAN)
    calm = [text for text, labels in _learned_rtp(data) if max(labels) < 0.25]
    for _ in range(6000):
        text = " ".join(each.strip() for each in chance.sample(calm, chance.randint(2, 5)))
        yield _text("train more calm", text, CLEAN)


def _design() -> Iterator[Labelled]:
    """Sentences for choosing among networks; neither learned nor reported."""
    design = spec("groups")["design"]
    for section in ("groups", "held_out_groups", "crossed_groups"):
        for group in identity.groups(section):
            for kind, label in (("odd", 0.0), ("attacks", 1.0)):
                for template in design[kind]:
                    yield _text(f"design {kind}", group.say(template), _only(label), group.predicate)


def clumsy(text: str, chance: random.Random) -> str:
    """Worsen the grammar: small words dropped or exchanged, neighbours swapped, capitals and full stops lost."""
    words = [w for w in text.split() if not (w.lower() in _SMALL and chance.random() < 0.45)]
    words = [chance.choice(_FORMS[w.lower()]) if w.lower() in _FORMS and chance.random() < 0.4 else w for w in words]
    if len(words) > 3 and chance.random() < 0.3:
        place = chance.randrange(len(words) - 1)
        words[place : place + 2] = reversed(words[place : place + 2])
    text = " ".join(words)
    return text.rstrip(".?!") if chance.random() < 0.6 else text


_SMALL = (
    "a",
    "an",
    "the",
    "is",
    "are",
    "was",
    "were",
    "to",
    "of",
    "that",
    "has",
    "have",
    "do",
    "does",
    "on",
    "at",
    "in",
)
_FORMS = {
    "i": ("me", "i"),
    "he": ("him", "he"),
    "she": ("her", "she"),
    "we": ("us", "we"),
    "is": ("are", "be", "been"),
    "are": ("is", "be"),
    "was": ("were", "is"),
    "met": ("meet", "meeted"),
    "came": ("come", "comed"),
    "told": ("tell", "say"),
    "bought": ("buy", "buyed"),
    "my": ("me", "mine"),
    "saw": ("seen", "see"),
}


def _noise(chance: random.Random) -> str:
    raw = chance.randbytes(chance.randint(4, 60))
    return chance.choice((base64.b64encode(raw).decode(), raw.hex(), f"id={raw[:8].hex()}", raw[:4].hex().upper()))


def _paragraphs(data: Path, chance: random.Random) -> Iterator[Labelled]:
    """Encyclopaedia text of all lengths, of articles that are either learned, fitted or measured."""
    with open_text(data / "squad" / "dev-v2.0.json") as file:
        articles = json.load(file)["data"]
    held = [article for article in articles if place_of(article) < HELD_OUT_ARTICLES]
    fitted = [article for article in articles if HELD_OUT_ARTICLES <= place_of(article) < FITTED_ARTICLES]
    for article in fitted:
        for _ in range(100):
            text = piece_of(chance, words_of_article(article), chance.choice(LENGTHS[:3]))
            yield _text("calibration", text, _only(0.0))
    yield from _learned_paragraphs(data, chance, [each for each in articles if place_of(each) >= FITTED_ARTICLES])
    yield from _held_out_paragraphs(data, chance, [words_of_article(article) for article in held])


def place_of(article: Mapping[str, Any]) -> float:
    return share("squad", article["title"])


def _learned_paragraphs(data: Path, chance: random.Random, articles: Sequence[Mapping[str, Any]]) -> Iterator[Labelled]:
    toxic = [(text, labels) for text, labels in _learned_rtp(data) if labels[0] > 0.75]
    words = [words_of_article(article) for article in articles]
    for _ in range(7000):
        article = chance.choice(words)
        text = piece_of(chance, article, chance.choice((3, 6, 10, 15, 25, 40, 60, 75)))
        yield _text("train clean", text, CLEAN)
    for _ in range(2500):  # one toxic sentence among clean ones is still found, if with less certainty
        article = chance.choice(words)
        text, labels = chance.choice(toxic)
        before, after = (piece_of(chance, article, chance.randint(0, 25)) for _ in range(2))
        yield _text("train embedded", f"{before} {text} {after}", [max(each - 0.08, 0.02) for each in labels])
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"][:3]:
                yield _text("train clean", question["question"], CLEAN)


def _held_out_paragraphs(data: Path, chance: random.Random, articles: Sequence[Sequence[str]]) -> Iterator[Labelled]:
    for length in LENGTHS:
        for _ in range(400):
            yield _text(f"clean {length} words", piece_of(chance, chance.choice(articles), length), CLEAN)
    rtp = corpora.read_rtp(data)["test"]
    test = [text for text, labels in zip(rtp.texts, rtp.labels.tolist(), strict=True) if labels[0] > 0.75]
    for length in LENGTHS[1:]:
        for text in chance.sample(test, 150):
            before = piece_of(chance, chance.choice(articles), length // 2)
            after = piece_of(chance, chance.choice(articles), length // 2)
            yield _text(f"toxic in {length} words", f"{before} {text} {after}", _only(1.0))
    for category, texts in corpora.read_bbq(data).items():
        for text in chance.sample(texts, min(len(texts), 400)):
            yield _text("bbq", text, CLEAN, category)


def _one_of_seven(data: Path, chance: random.Random) -> Iterator[Labelled]:
    """Six harmless sentences of BBQ's contexts, alone and with one toxic one among them."""
    rtp = corpora.read_rtp(data)["test"]
    toxic = [
        text.strip().rstrip(".!?")
        for text, labels in zip(rtp.texts, rtp.labels.tolist(), strict=True)
        if labels[0] > 0.75 and 4 <= len(text.split()) <= 15
    ]
    contexts = [text for texts in corpora.read_bbq(data).values() for text in texts]
    everyday = list(dict.fromkeys(part for text in contexts for part in re.findall(r"\w[^.!?]{20,}[.!?]", text)))
    for _ in range(100):
        harmless = chance.sample(everyday, 6)
        yield _text("six sentences", " ".join(harmless), CLEAN)
        harmless.insert(chance.randrange(7), f"{chance.choice(toxic)}.")
        yield _text("toxic in seven sentences", " ".join(harmless), _only(1.0))


def _learned_rtp(data: Path) -> Iterator[tuple[str, list[float]]]:
    for side, texts in corpora.read_rtp(data).items():
        if side not in ("test", "a calibration"):
            yield from zip(texts.texts, texts.labels.tolist(), strict=True)


def words_of_article(article: Mapping[str, Any]) -> list[str]:
    return " ".join(paragraph["context"] for paragraph in article["paragraphs"]).split()


def piece_of(chance: random.Random, words: Sequence[str], length: int) -> str:
    start = chance.randrange(max(len(words) - length, 1))
    return " ".join(words[start : start + length])


_SWAPS = {"a": "@4", "e": "3", "i": "1!", "o": "0", "s": "$5", "t": "7", "u": "*v", "c": "k", "l": "1"}


def disguised(text: str, chance: random.Random) -> str:
    """Hide a third of the longer words: other signs for letters, swapped, doubled, dropped or spaced letters."""
    return " ".join(
        chance.choice(_TRICKS)(word, chance) if len(word) > 3 and chance.random() < 0.35 else word
        for word in text.split()
    )


def _signs(word: str, chance: random.Random) -> str:
    return "".join(chance.choice(_SWAPS[c]) if c in _SWAPS and chance.random() < 0.5 else c for c in word.lower())


def _swapped(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word) - 2) if len(word) > 4 else 1
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]


def _dropped(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word) - 1)
    return word[:place] + chance.choice(("", "*", "-", ".")) + word[place + 1 :]


def _doubled(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word))
    return word[:place] + word[place - 1] * chance.choice((1, 3)) + word[place:]


def _spaced(word: str, chance: random.Random) -> str:
    return chance.choice((" ", ".", "-", "_")).join(word)


_TRICKS: Sequence[Callable[[str, random.Random], str]] = (_signs, _signs, _swapped, _dropped, _doubled, _spaced)


@cache
def spec(name: str = "neural") -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))


def learned_groups() -> list[Group]:
    """Return every group of the training."""
    return [*identity.groups(), *_crossed()]


def _crossed() -> list[Group]:
    return [Group("crossed", *(part.strip() for part in line.split("|"))) for line in spec()["crossed"]]


def write(rows: Iterable[Row], path: Path) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.neural_texts", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with rtp/, toxicity/, squad/ and bbq/")
    parser.add_argument("--out", type=Path, required=True, help="the file to write, .jsonl.gz")
    parser.add_argument("--sets", nargs="+", default=[""], help="only sets whose names begin so")
    parser.add_argument("--registry", type=Path, help="folder with StereoSet/, RedditBias/, BOLD/ and BUG/")
    options = parser.parse_args()
    write(all_rows(options.data, options.sets, options.registry), options.out)


if __name__ == "__main__":
    main()
