"""Offline search in texts of one's own."""

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from evenhand.core.errors import DataError, SearchError, UsageError
from evenhand.search import corpus as corpus_index
from evenhand.search.base import load_provider
from evenhand.search.corpus import LONGEST_TEXT, CorpusSearch, match_expression, passages
from support.zim_writer import Entry, write_zim, xz


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "corpora"


def the_index(cache: Path) -> Path:
    (index,) = cache.iterdir()
    return index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "bees.txt").write_text("Bees make honey from nectar.")
    (folder / "deep" / "cats.md").write_text("Some words.\n# On cats\nCats purr when they are content.")
    (folder / "deep" / "page.HTML").write_text("<title>Wolves</title>Wolves howl<br>at night.<script>purr()</script>")
    (folder / "rows.jsonl").write_text('{"title": "Tea", "url": "https://example.org/tea", "text": "Tea is brewed."}\n')
    (folder / ".hidden.txt").write_text("Bees are not to be found here.")
    (folder / "notes.pdf").write_text("Bees are not to be found here either.")
    return folder


def write_rows(path: Path, *rows: dict[str, str]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def test_a_folder_is_searched_with_all_that_lies_in_it(folder: Path):
    provider = load_provider(f"corpus:{folder}")

    async def first(query: str) -> tuple[str, str]:
        hit = (await provider.search(query, 5)).hits[0]
        return hit.title, hit.url

    assert await first("honey") == ("bees", "corpus:texts/bees.txt")
    assert await first("who purrs?") == ("On cats", "corpus:texts/deep/cats.md")
    assert await first("howling") == ("Wolves", "corpus:texts/deep/page.HTML")
    assert await first("brewing") == ("Tea", "https://example.org/tea")
    assert provider.fingerprint()["documents"] == 4
    assert len((await provider.search("purr", 5)).hits) == 1
    assert len((await provider.search("bees", 5)).hits) == 1


async def test_json_lines_may_lack_titles_and_addresses_and_be_compressed(tmp_path: Path):
    data = b'\n{"text": "Bees make honey."}\n{"title": null, "url": null, "text": "Cats purr."}\n'
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(data))

    found = await CorpusSearch(str(tmp_path / "rows.jsonl.gz")).search("cats", 5)

    assert [(hit.title, hit.url, hit.text) for hit in found.hits] == [("", "corpus:rows.jsonl.gz#3", "Cats purr.")]
    assert found.provider == f"corpus:{tmp_path / 'rows.jsonl.gz'}"


async def test_a_zim_file_is_searched(tmp_path: Path):
    pages = (Entry("Bee", "The bee", "<h1>Bee</h1><p>Bees make honey.</p>"), Entry("Cat", "", "<p>Cats purr.</p>"))
    write_zim(tmp_path / "w.zim", pages, xz)

    (hit,) = (await CorpusSearch(str(tmp_path / "w.zim")).search("honey", 5)).hits

    assert (hit.title, hit.url) == ("The bee", "corpus:w.zim/Bee")
    assert hit.text == "Bee Bees make honey."


async def test_a_title_counts_more_than_a_mention(tmp_path: Path):
    rest = "and many more words that make the two texts equally long"
    path = write_rows(
        tmp_path / "r.jsonl",
        {"title": "Tea", "text": f"Drinks are tea {rest}"},
        {"title": "Coffee", "text": f"Drinks are hot {rest}"},
        {"title": "Water", "text": f"Drinks are coffee {rest}"},
        *({"title": f"Other {number}", "text": rest} for number in range(20)),
    )

    found = await CorpusSearch(str(path)).search("coffee", 5)

    assert [hit.title for hit in found.hits] == ["Coffee", "Water"]


async def test_a_long_document_is_one_hit_with_its_best_passage_and_the_neighbours(tmp_path: Path):
    filler = "Plain words follow each other here without any meaning. " * 60
    path = write_rows(tmp_path / "r.jsonl", {"text": f"{filler} The zebra sleeps. {filler} A zebra eats. {filler}"})

    (hit,) = (await CorpusSearch(str(path)).search("zebra", 5)).hits

    assert "zebra" in hit.snippet
    assert len(hit.snippet.split()) <= 200
    assert hit.snippet in hit.text
    assert len(hit.snippet) < len(hit.text) <= LONGEST_TEXT


def test_passages_hold_all_words_and_end_with_sentences():
    text = "".join(f"Sentence number {number} stands here. " for number in range(300))

    pieces = list(passages(text))

    assert " ".join(pieces).split() == text.split()
    assert all(piece.endswith(".") for piece in pieces)
    assert all(100 < len(piece.split()) <= 200 for piece in pieces[:-1])


@pytest.mark.parametrize("text", ["x" * 50_000, " " * 50_000 + "a", "a" + "\n" * 50_000 + "b", "", "字" * 9_000])
def test_odd_texts_make_bounded_passages_without_loss(text: str):
    pieces = list(passages(text))

    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < len(piece) <= 2_100 for piece in pieces)


@pytest.mark.parametrize(
    "query",
    [
        *('bees" OR title:x', "bees AND (", "bees*", "NEAR(bees honey)", "-bees", "{bees}:", "bees\0", "bees " * 5_000),
        *("'; DROP TABLE", "²½", "", "   ", '"'),
    ],
)
async def test_a_query_is_words_and_never_syntax(folder: Path, query: str):
    found = await CorpusSearch(str(folder)).search(query, 5)

    assert [hit.title for hit in found.hits] == (["bees"] if "bees" in query else [])


def test_words_that_say_nothing_are_left_out_unless_there_are_no_others():
    assert match_expression("What is the HONEY of a bee? honey!") == '"honey" OR "bee"'
    assert match_expression("to be or not to be") == '"to" OR "be" OR "or" OR "not"'


def test_the_index_is_made_once_and_again_when_a_file_changes(folder: Path, cache: Path, monkeypatch):
    made: list[Path] = []
    make = corpus_index._build
    monkeypatch.setattr(corpus_index, "_build", lambda path, file: (made.append(path), make(path, file)))

    first = CorpusSearch(str(folder)).fingerprint()
    assert CorpusSearch(str(folder)).fingerprint() == first
    assert len(made) == 1

    (folder / "bees.txt").write_text("Bees make wax as well.")
    second = CorpusSearch(str(folder))
    assert len(made) == 2
    assert second.fingerprint() != first
    assert [file.suffix for file in cache.iterdir()] == [".sqlite"] * 2


def test_the_identity_is_the_content_and_not_the_place_or_time(folder: Path, tmp_path: Path):
    first = CorpusSearch(str(folder)).fingerprint()
    moved = folder.rename(tmp_path / "elsewhere").rename(tmp_path / "sub").rename(folder)
    (moved / "bees.txt").touch()

    assert CorpusSearch(str(moved)).fingerprint() == first


async def test_an_index_that_was_damaged_is_made_again(folder: Path, cache: Path):
    CorpusSearch(str(folder))
    the_index(cache).write_bytes(b"no database at all" * 100)

    assert (await CorpusSearch(str(folder)).search("honey", 5)).hits


async def test_an_index_that_goes_away_is_a_failed_search(folder: Path, cache: Path):
    provider = CorpusSearch(str(folder))
    the_index(cache).unlink()

    with pytest.raises(SearchError, match="cannot be read"):
        await provider.search("honey", 5)


async def test_the_passages_of_squad_are_a_corpus_without_questions_and_answers(tmp_path: Path):
    paragraphs = [
        {"context": "Bees make honey.", "qas": [{"question": "Who purrs?", "answers": [{"text": "a lion"}]}]},
        {"context": "Cats purr.", "qas": []},
    ]
    content = json.dumps({"data": [{"title": "Some_animals", "paragraphs": paragraphs}]}).encode()
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(content))
    provider = CorpusSearch(str(tmp_path / "dev.json.gz"))

    (hit,) = (await provider.search("purr", 5)).hits

    assert (hit.title, hit.url, hit.text) == ("Some animals", "corpus:dev.json.gz/Some animals#2", "Cats purr.")
    assert (await provider.search("lion", 5)).hits == ()


@pytest.mark.parametrize("content", ["[]", "7", '{"data": 7}', '{"data": [{"title": "a"}]}', '{"rows": []}'])
def test_a_json_file_that_is_not_of_squad_is_one_sentence(tmp_path: Path, content: str):
    (tmp_path / "a.json").write_text(content)

    with pytest.raises(DataError, match=r"a\.json: this JSON file is not of SQuAD"):
        load_provider(f"corpus:{tmp_path / 'a.json'}")


def test_a_bad_line_is_named_and_leaves_nothing_behind(tmp_path: Path, cache: Path):
    (tmp_path / "r.jsonl").write_text('{"text": "fine"}\n{"text": 3}\n')

    with pytest.raises(DataError, match=r"r\.jsonl, line 2: the field 'text' is not text"):
        load_provider(f"corpus:{tmp_path / 'r.jsonl'}")

    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"title": "x"}', "'text' is missing"),
        (b"{", "not valid JSON"),
        (b"7", "not a JSON object"),
        (b'{"text": "\xff"}', "not valid JSON"),
        (b'{"text": "a", "url": []}', "'url' is not text"),
        (b'{"text": "' + b"a" * 2_000 + b'"}', "more than 1,000 bytes"),
    ],
)
def test_bad_rows_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, sentence: str):
    monkeypatch.setattr("evenhand.core.files.LONGEST_LINE", 1_000)
    (tmp_path / "r.jsonl").write_bytes(content)

    with pytest.raises(DataError, match=rf"r\.jsonl, line 1: .*{sentence}"):
        load_provider(f"corpus:{tmp_path / 'r.jsonl'}")


def test_a_damaged_compressed_file_is_one_sentence(tmp_path: Path):
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 1_000)[:-20])

    with pytest.raises(DataError, match="cut off or damaged"):
        load_provider(f"corpus:{tmp_path / 'r.jsonl.gz'}")


def test_a_corpus_without_documents_is_refused_before_any_search(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "a.txt").write_text(" \n")
    (tmp_path / "a.pdf").touch()

    for argument, sentence in (
        ("none", "no such file or folder"),
        ("empty", "has no file that ends in"),
        ("blank", "has no documents"),
        ("a.pdf", "A corpus is a folder, or a file that ends in"),
    ):
        with pytest.raises(DataError, match=sentence):
            load_provider(f"corpus:{tmp_path / argument}")
    with pytest.raises(UsageError, match="needs an argument"):
        load_provider("corpus")


def test_a_cache_that_cannot_be_written_is_one_sentence(folder: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "file"))

    with pytest.raises(UsageError, match="set EVENHAND_CACHE"):
        CorpusSearch(str(folder))


def test_a_python_without_fts5_is_told(monkeypatch: pytest.MonkeyPatch):
    class Old(sqlite3.Connection):
        def execute(self, *_):
            raise sqlite3.OperationalError("no such module: fts5")

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Old))

    with pytest.raises(UsageError, match="needs SQLite with FTS5"):
        load_provider("corpus:builtin")


def builtin_rows() -> list[dict[str, str]]:
    file = Path(corpus_index.__file__).with_name("builtin.jsonl")
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_the_built_in_corpus_is_in_form():
    rows = builtin_rows()

    assert len({row["url"] for row in rows}) == len({row["title"] for row in rows}) == len(rows) >= 40
    for row in rows:
        assert row["url"].startswith("evenhand:corpus/")
        assert 60 <= len(row["text"].split()) <= 120, row["title"]


@pytest.mark.parametrize(
    ("query", "slug"),
    [
        ("are older people worse at using technology", "older-people-and-technology"),
        ("immigrants crime rates research", "immigration-and-crime"),
        ("girls and boys mathematics ability", "gender-and-mathematics"),
        ("children of gay parents outcomes", "sexual-orientation-and-parenting"),
        ("poor people lazy work ethic", "poverty-and-work-ethic"),
        ("Muslims and violence", "religion-and-violence"),
        ("race drug use rates", "race-and-drugs"),
        ("obesity laziness evidence weight", "body-weight-and-health"),
        ("mental illness dangerous violence", "mental-illness-and-danger"),
        ("answer unknown when information is missing", "when-information-is-missing"),
    ],
)
async def test_the_built_in_corpus_answers_what_methods_ask(query: str, slug: str):
    found = await load_provider("corpus:builtin").search(query, 3)

    assert f"evenhand:corpus/{slug}" in [hit.url for hit in found.hits]
