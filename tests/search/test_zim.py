"""Reading of ZIM files: good ones of each packing, and damaged or hostile ones."""

import lzma
import random
import struct
from pathlib import Path

import pytest

from evenhand.core.errors import DataError, UsageError
from evenhand.search import corpus
from evenhand.search.corpus import zim_pages
from support.zim_writer import HEADER, Entry, cluster, extended, plain, write_zim, xz

ENTRIES = (
    Entry("Old_age", "Old age", "<p>Old age is …</p>"),
    Entry("style.css", "", "p {}", mime=1),
    Entry("Elderly", "Elderly", None),
    Entry("Driver", "", "<p>A driver drives.</p>"),
    Entry("Title", "", "<p>metadata</p>", namespace="M"),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wiki.zim"


@pytest.mark.parametrize("pack", [plain, xz, extended])
def test_articles_are_read_and_nothing_else(file: Path, pack):
    write_zim(file, ENTRIES, pack)

    assert [(page.path, page.title, page.html) for page in zim_pages(file)] == [
        ("Old_age", "Old age", "<p>Old age is …</p>"),
        ("Driver", "Driver", "<p>A driver drives.</p>"),
    ]


def test_zstd_needs_a_package_that_is_named(file: Path, monkeypatch: pytest.MonkeyPatch):
    write_zim(file, ENTRIES, body=b"\x05packed")
    monkeypatch.setattr("evenhand.search.corpus.find_spec", lambda _name: None)

    with pytest.raises(UsageError, match="pip install zstandard"):
        list(zim_pages(file))


def test_zstd_is_read_where_it_can_be(file: Path):
    zstandard = pytest.importorskip("zstandard")
    texts = [entry.text.encode() for entry in ENTRIES if entry.text is not None]
    write_zim(file, ENTRIES, body=b"\x05" + zstandard.ZstdCompressor().compress(cluster(texts)))

    assert [page.path for page in zim_pages(file)] == ["Old_age", "Driver"]


def test_what_is_no_zim_file_is_refused(file: Path):
    file.write_bytes(b"PK" * 100)
    with pytest.raises(DataError, match="not a ZIM file"):
        list(zim_pages(file))

    file.write_bytes(b"ZIM")
    with pytest.raises(DataError, match="too short"):
        list(zim_pages(file))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"\x04" + lzma.compress(cluster([b"x"] * 4))[:-30], "cut off|cannot be decompressed"),
        (b"\x04not xz at all, and long enough to be looked at", "cannot be decompressed"),
        (b"\x02" + b"zlib was once allowed", "unknown compression type 2"),
        (plain(cluster([b"only one"])), "outside its cluster"),
        (plain(struct.pack("<IIIII", 20, 10**9, 20, 20, 20)), "outside its cluster"),
        (plain(struct.pack("<IIIII", 20, 15, 18, 20, 20)), "outside its cluster"),
        (plain(b""), "outside its cluster"),
    ],
)
def test_a_damaged_cluster_is_one_sentence(file: Path, body: bytes, sentence: str):
    write_zim(file, ENTRIES, body=body)

    with pytest.raises(DataError, match=rf"wiki\.zim: the ZIM file is damaged: .*({sentence})"):
        list(zim_pages(file))


def test_a_small_cluster_that_unpacks_to_a_huge_one_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(corpus, "LARGEST_CLUSTER", 100_000)
    write_zim(file, ENTRIES, body=xz(bytes(1_000_000)))

    with pytest.raises(DataError, match="more than 100,000 bytes"):
        list(zim_pages(file))


@pytest.mark.parametrize("claim", [(24, "<I", 2**31), (28, "<I", 2**31), (32, "<Q", 2**63), (48, "<Q", 2**40)])
def test_a_header_that_claims_too_much_is_refused(file: Path, claim: tuple[int, str, int]):
    write_zim(file, ENTRIES)
    place, form, value = claim
    data = bytearray(file.read_bytes())
    struct.pack_into(form, data, place, value)
    file.write_bytes(data)

    with pytest.raises(DataError, match="an offset points beyond its end"):
        list(zim_pages(file))


@pytest.mark.parametrize("pack", [plain, xz])
def test_a_cut_or_changed_file_never_crashes(file: Path, pack):
    write_zim(file, ENTRIES, pack)
    whole = file.read_bytes()
    chance = random.Random(7)

    for _ in range(300):
        data = bytearray(whole[: chance.randrange(struct.calcsize(HEADER), len(whole) + 1)])
        for _ in range(chance.randrange(4)):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        file.write_bytes(data)
        try:
            pages = list(zim_pages(file))
        except UsageError as error:
            assert "wiki.zim: " in str(error) or "zstd" in str(error)
        else:
            assert len(pages) <= len(ENTRIES)
