"""What the tests of the documentation read: its pages, their code blocks, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`(evenhand [^`]*)`")


@dataclass(frozen=True)
class Block:
    page: Path
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.number}"


@dataclass(frozen=True)
class Command:
    """One `evenhand` command as a page prints it, without the program's own name."""

    page: Path
    words: tuple[str, ...]
    whole: bool = True
    """Written to be typed; one in a sentence may leave out what is required."""

    def __str__(self) -> str:
        return f"{name(self.page)}: {' '.join(self.words)}"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(language: str, pages: tuple[Path, ...] = PAGES) -> list[Block]:
    return [
        Block(page, number, found, text)
        for page in pages
        for number, (found, text) in enumerate(_FENCE.findall(page.read_text(encoding="utf-8")), start=1)
        if found == language
    ]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def lines(block: Block) -> Iterator[list[str]]:
    """The simple commands of a shell block, in words, without comments and without files that they write to."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word != "&&":
                words.append(word)
            elif words:
                yield words[: words.index(">")] if ">" in words else words
                words = []


def commands(pages: tuple[Path, ...] = PAGES) -> list[Command]:
    found = [
        Command(block.page, tuple(words[words.index("evenhand") + 1 :]))
        for block in blocks("sh", pages)
        for words in lines(block)
        if words[0] == "evenhand" or words[0] in {"accelerate", "torchrun"}
    ]
    for page in pages:
        for text in _INLINE.findall(prose(page)):
            words = [word for word in shlex.split(text.replace("\n", " ")) if "…" not in word]
            found.append(Command(page, tuple(words[1:]), whole=False))
    return list(dict.fromkeys(found))
