"""Contrasts of our own from hard.yaml and wider.yaml, and public sets on stereotypes: the harder part of the training.

Of each list, one template in five (wider.yaml: one in three) and the categories of HELD_OUT are only measured, as
`hard …` and `wider …`, with groups that are not learned either.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.train_scorer import identity
from tools.train_scorer.corpora import open_text, share
from tools.train_scorer.identity import Group

Labels = Sequence[float | None]
Made = tuple[str, str, Labels, str | None]
"""A set, a text of it, its eight labels, and its context."""

HELD_OUT = ("disability", "class", "age old")
"""Categories of stereotypes that are only measured."""
CLEAN: Labels = (0.03, 0.01, 0.03, 0.02, 0.02, 0.02, 0.02, 0.03)
NAMED: Labels = (0.04, 0.01, 0.03, 0.04, 0.02, 0.03, 0.02, 0.05)
HATE: Labels = (0.80, None, None, 0.93, None, None, None, None)
POLITE: Labels = (0.62, None, None, 0.88, 0.04, None, None, 0.8)
AGAINST: Labels = (0.12, 0.04, 0.08, 0.10, None, 0.06, None, 0.12)
REPORT: Labels = (0.15, 0.05, 0.09, 0.14, None, 0.10, None, 0.12)
INSULT: Labels = (0.90, None, 0.85, 0.08, None, None, None, 0.05)
ABUSE: Labels = (0.55, None, 0.4, 0.10, None, None, None, 0.3)
DISLIKE: Labels = (0.12, 0.03, 0.06, 0.02, None, 0.04, 0.02, 0.03)
MILD: Labels = (0.25, 0.03, 0.08, 0.02, 0.45, 0.05, 0.03, 0.03)
STEREOTYPE: Labels = (None, None, None, None, 0.03, None, None, 0.95)
REJECTED: Labels = (0.08, 0.02, 0.05, 0.08, 0.02, 0.03, None, 0.15)
LEWD: Labels = (0.7, None, None, 0.05, None, None, None, 0.05)
KINDS: Mapping[str, Labels] = {
    "negated_hate": HATE, "direct_hate": HATE, "polite_hate": POLITE, "negated_harmless": NAMED,
    "polite_harmless": NAMED, "direct_harmless": NAMED, "against": AGAINST, "requests_bad": HATE,
    "requests_good": NAMED,
}  # fmt: skip
PLAIN: Mapping[str, Labels] = {
    "insults": INSULT, "mild": MILD, "homonyms": CLEAN, "requests_bad_plain": LEWD, "requests_good_plain": CLEAN,
}  # fmt: skip
HARASSED: Labels = (0.76, None, None, 0.06, None, None, None, 0.05)
EXPLICIT: Labels = (0.72, None, None, 0.05, None, 0.06, 0.86, 0.05)
CASUAL: Labels = (0.10, 0.02, 0.05, 0.02, None, 0.04, 0.03, 0.03)
STORY: Labels = (0.07, 0.02, 0.05, 0.03, 0.04, 0.08, 0.06, 0.04)
WIDER: Mapping[str, Labels] = {
    "asked_hate": HATE, "asked_fair": NAMED, "asked_with": HATE, "asked_about": REPORT, "implied_hate": POLITE,
    "implied_fair": NAMED, "forum_hate": HATE, "forum_plain": NAMED, "answering": AGAINST, "denying_fair": NAMED,
    "denying_hate": HATE, "courteous_fair": NAMED, "courteous_hate": POLITE, "emoji_hate": HATE, "emoji_fair": NAMED,
    "agent_abuse": HARASSED, "agent_plain": CLEAN, "prompt_lewd": EXPLICIT, "prompt_cruel": HARASSED,
    "prompt_fine": STORY, "clinical": CLEAN, "named_so": CLEAN, "placed_so": CLEAN, "living_so": CLEAN,
    "eaten_so": CLEAN, "worked_so": CLEAN, "coarse_thing": MILD, "coarse_person": INSULT,
    "slang_abuse": INSULT, "slang_plain": CASUAL, "strong_plain": CASUAL,
}  # fmt: skip
OPENINGS = ("honestly,", "lol", "ok so", "well,", "btw", "hey,", "just saying,", "question,", "update:", "imo")
"""Put before some sentences of either side."""


def texts(registry: Path | None, hateful: Sequence[str], held_hateful: Sequence[str]) -> Iterator[Made]:
    """Yield everything; `hateful` texts are quoted by reports, those held out by measured reports."""
    chance = random.Random(17)
    yield from _groups(chance)
    yield from _plain(chance)
    yield from wider(random.Random(23), hateful, held_hateful)
    yield from _reports(chance, hateful, held_hateful)
    yield from _stereotypes(chance)
    yield from _answers(chance)
    if registry:
        yield from _stereoset(registry)
        yield from _reddit(registry)
        yield from _bold(registry, chance)
        yield from _bug(registry, chance)


def held(kind: str, template: str) -> bool:
    return share(f"hard {kind}", template) < 0.2


def _groups(chance: random.Random) -> Iterator[Made]:
    learned, fresh = identity.groups(), identity.groups("held_out_groups")
    # Politics and wealth are no protected groups, so an attack on them is measured elsewhere.
    learned = [group for group in learned if group.category != "politics" and group.predicate != "rich"]
    for kind, labels in KINDS.items():
        for template in spec()[kind]:
            if held(kind, template):
                for group in fresh:
                    yield f"hard {kind}", group.say(template), labels, None
            else:
                for group in chance.sample(learned, min(45, len(learned))):
                    yield f"train hard {kind}", group.say(template), labels, None
    for kind, targets, labels in (("abuse", "others", ABUSE), ("dislike", "things", DISLIKE)):
        for template in spec()[kind]:
            for target in spec()[targets]:
                name = f"hard {kind}" if held(kind, template) else f"train hard {kind}"
                yield name, Group(kind, target, target, target).say(template), labels, None


def wider(chance: random.Random, hateful: Sequence[str], fresh: Sequence[str]) -> Iterator[Made]:
    """The lists of wider.yaml: each template with groups, words of its slots or quotations, some in a casual voice."""
    own = spec("wider")
    learned, new = identity.groups(), identity.groups("held_out_groups")
    learned = [group for group in learned if group.category != "politics" and group.predicate != "rich"]
    signs = [Group("emoji", *(part.strip() for part in line.split("|"))) for line in own["emoji_groups"]]
    for kind, labels in WIDER.items():
        for template in own[kind]:
            measured = held_wider(template)
            groups = new if measured else [*learned, *(4 * signs if kind.startswith("emoji") else [])]
            for text in filled(template, chance, groups, fresh if measured else hateful):
                if measured:
                    yield f"wider {kind}", text, labels, None
                else:
                    yield f"train wider {kind}", _voiced(kind, text, chance), labels, None
    for kind, labels in (("hate", HATE), ("fair", NAMED)):
        name = "direct_hate" if kind == "hate" else "direct_harmless"
        for template in (line for line in spec()[name] if len(line) < 45 and not held(name, line)):
            for group in signs:
                yield f"train wider emoji_{kind}", group.say(template), labels, None


def held_wider(template: str) -> bool:
    return share("wider", template) < 1 / 3


def filled(template: str, chance: random.Random, groups: Sequence[Group], quotes: Sequence[str]) -> list[str]:
    """A template of wider.yaml or later.yaml with quotations, groups or words of its slots."""
    slots: Mapping[str, list[str]] = spec("wider")["slots"]
    if "{q}" in template:
        return [template.replace("{q}", quote.strip()) for quote in chance.sample(quotes, 60)]
    if any(name in template for name in ("{is}", "{one}", "{One}", "{many}", "{Many}")):
        return [group.say(template) for group in chance.sample(groups, min(40, len(groups)))]
    named = [name for name in slots if f"{{{name}}}" in template or f"{{{name.capitalize()}}}" in template]
    found: set[str] = set()
    for _ in range(25 if named else 3):
        words = {name: chance.choice(slots[name]) for name in named}
        found.add(
            template.format_map({**words, **{name.capitalize(): word.capitalize() for name, word in words.items()}})
        )
    return sorted(found)


def _voiced(kind: str, text: str, chance: random.Random) -> str:
    """Some texts in lower case, after an opening, or beside a harmless sentence; alike for both sides."""
    own = spec("wider")
    draw = chance.random()
    if draw < 0.12:
        if kind.startswith(("asked", "prompt")):
            return f"{chance.choice(own['before'])} {text}"
        return f"{chance.choice(OPENINGS)} {text}"
    if draw < 0.24:
        return text.lower().rstrip(".")
    if draw < 0.34:
        calm = [line for line in own["worked_so"] + own["forum_plain"] if "{" not in line and not held_wider(line)]
        return " ".join(chance.sample((text, chance.choice(calm)), 2))
    return text


def _plain(chance: random.Random) -> Iterator[Made]:
    for kind, labels in PLAIN.items():
        lines: list[str] = spec()[kind]
        learned = [line for line in lines if not held(kind, line)]
        for line in lines:
            yield f"hard {kind}" if held(kind, line) else f"train hard {kind}", line, labels, None
        for _ in range(3 * len(learned)):
            pair = " ".join(chance.sample(learned, 2))
            yield f"train hard {kind}", pair, labels, None


def _reports(chance: random.Random, hateful: Sequence[str], fresh: Sequence[str]) -> Iterator[Made]:
    own = [g.say(t) for g in identity.groups() for t in identity.templates("unkind")]
    for frame in spec()["reports"]:
        measured = held("reports", frame)
        for _ in range(60 if measured else 220):
            quote = chance.choice(fresh if measured else own if chance.random() < 0.4 else hateful).strip()
            name = "hard reports" if measured else "train hard reports"
            yield name, frame.replace("{q}", quote), REPORT, None


def _stereotypes(chance: random.Random) -> Iterator[Made]:
    frames = {key: spec()[key] for key in ("stereotype_frames", "stereotype_rejected", "free_frames")}
    for category, parts in spec()["stereotypes"].items():
        measured = category in HELD_OUT
        for who in parts["who"]:
            for key, word, labels, number in (
                ("stereotype_frames", "said", STEREOTYPE, 4),
                ("stereotype_rejected", "said", REJECTED, 2),
                ("free_frames", "free", NAMED, 6),
            ):
                chosen = [frame for frame in frames[key] if held(key, frame) == measured] or frames[key]
                for said in parts[word]:
                    for frame in chance.sample(chosen, min(1 if measured else number, len(chosen))):
                        text = frame.replace("{Who}", who[0].upper() + who[1:]).replace("{who}", who)
                        text = text.replace("{said}", said).replace("{free}", said)
                        name = f"hard {key}" if measured else f"train hard {key}"
                        yield name, text, labels, category


def _answers(chance: random.Random) -> Iterator[Made]:
    """Replies whose sense is in what they answer; the context is given as the fourth part after "context: "."""
    own = spec()
    agreeing, refusing, asides = own["agreeing"], own["refusing"], own["asides"]
    for category, parts in own["stereotypes"].items():
        measured = category in HELD_OUT
        name = "hard context" if measured else "train hard context"
        for _ in range(60 if measured else 330):
            who, said = chance.choice(parts["who"]), chance.choice(parts["said"])
            asked = ("Is it true that {}?", "Do you think that {}?", "They say that {}, right?", "Why is it that {}?")
            question = chance.choice(asked).format(f"{who} {said}")
            yield (
                name,
                chance.choice(agreeing),
                (0.45, None, None, 0.72, None, None, None, 0.92),
                f"context: {question}",
            )
            yield name, chance.choice(refusing), REJECTED, f"context: {question}"
            other, free = chance.choice(parts["who"]), chance.choice(parts["free"])
            yield name, chance.choice(asides), NAMED, f"context: Is it true that {other} {free}?"
    for _ in range(1200):
        yield "train hard context", chance.choice(asides), CLEAN, f"context: {chance.choice(own['harmless_questions'])}"
    learned = identity.groups()
    for _ in range(2500):
        hate = chance.choice(learned).say(chance.choice(own["direct_hate"] + identity.templates("unkind")))
        calm = chance.choice(own["direct_harmless"] + identity.templates("neutral"))
        calm = chance.choice(learned).say(calm)
        yield "train hard context", calm, NAMED, f"context: {hate}"
        yield "train hard context", hate, HATE, f"context: {calm}"
        yield "train hard context", chance.choice(refusing), AGAINST, f"context: {hate}"


def _stereoset(registry: Path) -> Iterator[Made]:
    data = json.loads((registry / "StereoSet" / "data" / "dev.json").read_text(encoding="utf-8"))["data"]
    levels = {"stereotype": 0.95, "anti-stereotype": 0.3, "unrelated": 0.03}
    for kind, items in data.items():
        for item in items:
            for sentence in item["sentences"]:
                context = f"context: {item['context']}" if kind == "intersentence" else None
                name = "stereoset" if share("stereoset", item["id"]) < 0.15 else "train stereoset"
                yield name, sentence["sentence"], (*[None] * 7, levels[sentence["gold_label"]]), context


def _reddit(registry: Path) -> Iterator[Made]:
    """Comments of RedditBias that annotators called biased against a group, or not."""
    for path in sorted((registry / "RedditBias" / "data").glob("*/*phrase_annotated.csv")):
        seen: set[str] = set()
        with path.open(encoding="utf-8", errors="replace") as file:
            for row in csv.DictReader(file):
                text, label = (row.get("comment") or "").strip(), (row.get("bias_sent") or "").strip()
                if label not in ("0", "1", "") or text in seen or len(text) < 8:
                    continue
                seen.add(text)
                if not label:
                    yield "train unlabelled", text, [None] * 8, None
                    continue
                name = "reddit" if share("reddit", text) < 0.15 else "train reddit"
                biased = (None, None, None, 0.72, None, None, None, 0.88)
                other = (None, None, None, 0.15, None, None, None, 0.15)
                yield name, text, biased if label == "1" else other, path.parent.name


def _bold(registry: Path, chance: random.Random) -> Iterator[Made]:
    """Sentences of an encyclopaedia about people of many groups, from BOLD."""
    for path in sorted((registry / "BOLD" / "data" / "wikipedia").glob("*.json")):
        pages = json.loads(path.read_text(encoding="utf-8"))
        lines = [line for group in pages.values() for page in group.values() for line in page]
        for line in chance.sample(lines, min(1500, len(lines))):
            name = "bold" if share("bold", line) < 0.2 else "train bold"
            yield name, line[:600], CLEAN, None


def _bug(registry: Path, chance: random.Random) -> Iterator[Made]:
    """Sentences about medicine, mostly, from BUG."""
    with (registry / "BUG" / "data" / "balanced_BUG.csv").open(encoding="utf-8", errors="replace") as file:
        lines = sorted({row["sentence_text"] for row in csv.DictReader(file) if row["corpus"] != "wikipedia"})
    for line in chance.sample(lines, min(5000, len(lines))):
        yield "bug" if share("bug", line) < 0.2 else "train bug", line[:600], CLEAN, None


def subtle(data: Path) -> Iterator[Made]:
    """Fill-in items on age, beauty, schools and nations."""
    levels = {"stereotype": 0.9, "anti_stereotype": 0.45, "unrelated": 0.12}
    with open_text(data / "stereotype" / "subtler_bias" / "dataset.csv") as file:
        for row in csv.DictReader(file):
            if (place := share("subtle", row["context"])) < 0.35:
                for kind, level in levels.items():
                    text = row["context"].replace("BLANK", row[kind])
                    yield "subtle" if place < 0.05 else "train subtle", text, (*[None] * 7, level), None


_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_SIGNS = {"a": "@4", "e": "3", "i": "1!", "o": "0", "s": "$5", "t": "7"}


def misspelt(text: str, chance: random.Random) -> str:
    """Up to three slips of a hand or an ear, as in honest writing; nothing that is toxic by itself."""
    for _ in range(chance.randint(1, 4)):
        words = text.split(" ")
        long = [place for place, word in enumerate(words) if len(word) > 3 and word.isalpha()]
        if not long:
            return text
        place = chance.choice(long)
        words[place] = chance.choice(_SLIPS)(words[place], chance)
        text = " ".join(words)
    return text.lower().rstrip(".") if chance.random() < 0.3 else text


def hidden(text: str, chance: random.Random) -> str:
    """Other signs for letters in a few words, any words."""
    words = text.split(" ")
    long = [place for place, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    trick = chance.choice(_TRICKS)
    for place in chance.sample(long, min(len(long), chance.choice((1, 1, 2, 3)))):
        words[place] = trick(words[place], chance)
    return chance.choice((" ", " ", " ", " ", ".", "")).join(words) if len(words) < 9 else " ".join(words)


def wrapped(text: str, chance: random.Random) -> str:
    """The text in the clothes of a program: JSON, XML, a table, a log, a code fence, mail."""
    quoted = json.dumps(text, ensure_ascii=chance.random() < 0.5)
    return chance.choice((
        '{"role": "assistant", "content": ' + quoted + "}",
        '{"id": 17, "answer": ' + quoted + ', "score": null}',
        '[{"text": ' + quoted + "}]",
        f"<p>{text}</p>",
        f"<message><from>7</from><body>{text}</body></message>",
        f"id;text;date\n12;{text};2024-03-01",
        f"2024-03-01 12:00:03 INFO reply={quoted}",
        f"```\nprint({quoted})\n```",
        f"> {text}\n\nSent from my phone",
        f"**Answer:** {text}",
        f"1. {text}\n2. See above.",
        f"print({quoted})",
    ))  # fmt: skip


def with_emoji(text: str, chance: random.Random) -> str:
    """Emoji between some or all words, or after the text."""
    words, way = text.split(" "), chance.random()
    if way < 0.3:
        return f"{text} {chance.choice(_FACES) * chance.randint(1, 3)}"
    one, often = chance.choice(_FACES), chance.choice((0.2, 0.5, 1.0))
    return " ".join(
        f"{word} {one if way < 0.6 else chance.choice(_FACES)}" if chance.random() < often else word for word in words
    )


def run_together(text: str, chance: random.Random) -> str:
    """Two or more words without their space, or all words joined by one sign."""
    words = text.split(" ")
    if len(words) < 12 and chance.random() < 0.5:
        return chance.choice((".", "", "_", "-", "/", ",")).join(words)
    for _ in range(chance.randint(1, 3)):
        if len(words) > 2:
            place = chance.randrange(len(words) - 1)
            words[place : place + 2] = ["".join(words[place : place + 2])]
    return " ".join(words)


def short_forms(text: str, chance: random.Random) -> str:
    """The words of chats, in lower case."""
    words = [_CHAT.get(word, word) if chance.random() < 0.8 else word for word in text.lower().split(" ")]
    if chance.random() < 0.4:
        words.insert(0 if chance.random() < 0.5 else len(words), chance.choice(_ASIDES))
    return " ".join(words)


_FACES = tuple("🙂😀😂🤣😭😍🔥💀👍🙏😡🤔✨🎉❤😎👀💯🤡😅")
_ASIDES = ("lol", "lmao", "tbh", "ngl", "fr", "smh", "omg", "imo", "bro", "idk")
_CHAT = {
    "you": "u", "your": "ur", "are": "r", "for": "4", "to": "2", "too": "2", "people": "ppl", "because": "cuz",
    "please": "pls", "thanks": "thx", "with": "w", "what": "wut", "before": "b4", "great": "gr8", "tonight": "2nite",
    "going": "goin", "about": "abt", "though": "tho", "know": "kno", "have": "hv", "girl": "gurl", "the": "da",
    "fucking": "fkn", "fuck": "fk", "shit": "sht", "and": "n", "this": "dis", "that": "dat", "love": "luv",
}  # fmt: skip


def _drop(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word))
    return word[:place] + word[place + 1 :]


def _swap(word: str, chance: random.Random) -> str:
    place = chance.randrange(len(word) - 1)
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]


def _twice(word: str, chance: random.Random) -> str:
    place = chance.randrange(len(word))
    return word[:place] + word[place] + word[place:]


def _near(word: str, chance: random.Random) -> str:
    place = chance.randrange(len(word))
    row = next((row for row in _KEYS if word[place].lower() in row), "asdf")
    at = max(row.find(word[place].lower()), 0)
    return (
        word[:place]
        + row[min(at + 1, len(row) - 1) if at == 0 or chance.random() < 0.5 else at - 1]
        + word[place + 1 :]
    )


def _ear(word: str, chance: random.Random) -> str:
    pairs = (
        ("ph", "f"),
        ("ght", "t"),
        ("ck", "k"),
        ("ie", "ei"),
        ("ea", "ee"),
        ("tion", "shun"),
        ("c", "s"),
        ("ll", "l"),
    )
    found = [pair for pair in pairs if pair[0] in word]
    return word.replace(*chance.choice(found), 1) if found else _drop(word, chance)


def _star(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word))
    return word[:place] + chance.choice("***#-_.") + word[place + 1 :]


def _leet(word: str, chance: random.Random) -> str:
    return "".join(chance.choice(_SIGNS[c]) if c in _SIGNS and chance.random() < 0.6 else c for c in word.lower())


def _spread(word: str, chance: random.Random) -> str:
    return chance.choice((" ", ".", "-", "*")).join(word)


def _long(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word))
    return word[:place] + word[place] * 3 + word[place:]


_SLIPS: Sequence[Callable[[str, random.Random], str]] = (_drop, _drop, _swap, _swap, _twice, _near, _near, _ear)
_TRICKS: Sequence[Callable[[str, random.Random], str]] = (_star, _star, _star, _leet, _spread, _long)


@cache
def spec(name: str = "hard") -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))
