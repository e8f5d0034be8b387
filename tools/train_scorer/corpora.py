"""The texts: what the scorers learn from, what they are measured on, and which text is on which side."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.scorers.base import ATTRIBUTES

TEST_SHARE, CALIBRATION_SHARE = 0.15, 0.10


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts with one row of labels each; texts of one cluster come from one document."""

    texts: list[str]
    labels: NDArray[np.float64]
    clusters: NDArray[np.int64]


def read_rtp(data: Path) -> dict[str, Texts]:
    """RealToxicityPrompts by side (`test`, and `a`, `b`, `a calibration`, `b calibration`).

    Prompts and continuations are texts of their own, with Perspective's seven scores as labels.
    """
    sides: dict[str, list[tuple[str, list[float], int]]] = {}
    documents: dict[str, int] = {}
    with open_text(data / "rtp" / "prompts.jsonl") as file:
        for row in map(json.loads, file):
            source = row["filename"] or row["prompt"]["text"]
            cluster = documents.setdefault(source, len(documents))
            for part in (row["prompt"], row["continuation"]):
                if part.get("toxicity") is not None:
                    labels = [part[attribute] for attribute in ATTRIBUTES]
                    sides.setdefault(side_of(source), []).append((part["text"], labels, cluster))
    return {side: _texts(*zip(*rows, strict=True)) for side, rows in sides.items()}


def side_of(source: str) -> str:
    """The side of everything that comes from one document (or, where that is unknown, from one prompt).

    A prompt and its continuation are never on two sides; the side depends on nothing but the name of the document.
    """
    place = share("side", source)
    if place < TEST_SHARE:
        return "test"
    half = "a" if place < (1 + TEST_SHARE) / 2 else "b"
    return f"{half} calibration" if share("calibration", source) < CALIBRATION_SHARE else half


def read_surge(data: Path) -> Texts:
    """1,000 social media comments, half of them toxic; never trained on."""
    with open_text(data / "toxicity" / "surge" / "toxicity_en.csv") as file:
        rows = list(csv.DictReader(file))
    return _texts([row["text"] for row in rows], [float(row["is_toxic"] == "Toxic") for row in rows])


def read_davidson(data: Path) -> Texts:
    """Tweets; the label is the class (0 hate, 1 offensive, 2 neither). Never trained on."""
    with open_text(data / "toxicity" / "davidson" / "labeled_data.csv") as file:
        rows = list(csv.DictReader(file))
    return _texts([row["tweet"] for row in rows], [float(row["class"]) for row in rows])


def read_bbq(data: Path) -> dict[str, list[str]]:
    """BBQ's contexts without repeats, by category: neutral text about many groups that nobody wrote for this scorer."""
    contexts: dict[str, list[str]] = {}
    for path in sorted((data / "bbq").glob("*.jsonl*")):
        with open_text(path.with_suffix("") if path.suffix == ".gz" else path) as file:
            texts = dict.fromkeys(json.loads(line)["context"] for line in file)
        contexts[path.name.partition(".")[0]] = list(texts)
    return contexts


def read_squad(data: Path) -> list[list[str]]:
    """The paragraphs of each article of SQuAD v2 dev: clean encyclopaedic prose, never trained on."""
    with open_text(data / "squad" / "dev-v2.0.json") as file:
        articles = json.load(file)["data"]
    return [[paragraph["context"] for paragraph in article["paragraphs"]] for article in articles]


def read_jigsaw(data: Path) -> Texts:
    """Wikipedia comments, toxic (1) or not (0); never trained on."""
    with open_text(data / "toxicity" / "jigsaw_part" / "texts.csv") as file:
        rows = [row for row in csv.reader(file) if row[1] in ("0", "1")]
    return _texts([text for text, _ in rows], [float(label) for _, label in rows])


def read_names(data: Path) -> list[str]:
    """Full names that are typical of one of four ethnic groups and one gender; a set on hiring."""
    found: list[str] = []
    for file in ("top_mens_names", "top_womens_names"):
        with open_text(data / "hiring" / f"{file}.json") as opened:
            found += [name.title() for names in json.load(opened).values() for name in names]
    return found


def read_discrimeval(data: Path) -> list[str]:
    """Decisions about people whose race, gender and age are named."""
    with open_text(data / "discrimeval" / "discrim-eval-templated.jsonl") as file:
        return [json.loads(line)["filled_template"] for line in file]


def _texts(texts: Sequence[str], labels: Sequence[Any], clusters: Sequence[int] | None = None) -> Texts:
    return Texts(list(texts), np.array(labels), np.array(range(len(texts)) if clusters is None else clusters))


def share(purpose: str, source: str) -> float:
    digest = hashlib.sha256(f"evenhand scorer {purpose}: {source}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def open_text(path: Path) -> IO[str]:
    """A text file, plain or compressed."""
    packed = path.with_name(path.name + ".gz")
    return gzip.open(packed, "rt", encoding="utf-8") if packed.is_file() else path.open(encoding="utf-8")
