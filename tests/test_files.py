"""Files are complete or absent, locks are exclusive, and there is one place for all of it."""

import gzip
import re
import stat
from pathlib import Path

import pytest
from pydantic import BaseModel, field_validator

import evenhand
from evenhand.core import files
from evenhand.core.errors import DataError


class Tea(BaseModel):
    cups: int

    @field_validator("cups")
    @classmethod
    def _some(cls, cups: int) -> int:
        if not cups:
            raise ValueError("No cup is no tea")
        return cups


class Menu(BaseModel):
    tea: Tea


def test_a_file_is_replaced_only_if_the_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.txt"
    files.write_text(target, "first")

    with pytest.raises(RuntimeError), files.draft(target) as draft:
        draft.write_text("second")
        raise RuntimeError

    assert target.read_text() == "first"
    assert [path.name for path in target.parent.iterdir()] == ["file.txt"]


def test_two_writers_do_not_share_a_draft(tmp_path: Path) -> None:
    with files.draft(tmp_path / "file") as one, files.draft(tmp_path / "file") as other:
        assert one != other


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    with files.draft(tmp_path / "key", mode=0o600) as draft:
        assert stat.S_IMODE(draft.stat().st_mode) == 0o600


def test_a_folder_is_complete_or_absent(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), files.draft_folder(tmp_path / "made") as draft:
        (draft / "one").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []

    with files.draft_folder(tmp_path / "made", durable=True) as draft:
        (draft / "one").write_text("1")
    assert (tmp_path / "made" / "one").read_text() == "1"


def test_json_lines_are_read_with_numbers_and_appended_to_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"a": 2}')
    files.append_json_lines(path, [{"a": 3}])

    assert list(files.json_lines(path)) == [(1, {"a": 1}), (3, {"a": 2}), (4, {"a": 3})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{', "line 2: not valid JSON"),
        (b"[1]", "line 1: not a JSON object"),
        (b"x" * 2_000, "line 1: the line has more than 1,000 bytes"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1_000)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)

    with pytest.raises(DataError, match=message):
        list(files.json_lines(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"tea": {"cups": "many"}}', "tea.cups: it must be a whole number"),
        ('{"tea": {}}', "tea: the field cups is missing"),
        ("{}", "the field tea is missing"),
        ('{"tea": {"cups": 0}}', "tea.cups: no cup is no tea"),
        ("[]", r"the file: it must be a mapping \(name: value\)"),
    ],
)
def test_what_is_wrong_with_a_field_is_said(content: str, said: str) -> None:
    with (
        pytest.raises(DataError, match=rf"^menu\.json: this is not a menu: {said}\. See the cook\.$"),
        files.checked("a menu", Path("menu.json"), "See the cook."),
    ):
        Menu.model_validate_json(content)


def test_a_field_of_a_yaml_file_that_is_there_twice_is_refused() -> None:
    with pytest.raises(DataError, match=r"^plan\.yaml, line 3: not valid YAML \(limit is there twice\)"):
        files.parse_yaml(b"limit: 10\nseeds: [0]\nlimit: 9000\n", Path("plan.yaml"))

    merged = files.parse_yaml(b"a: &a {x: 1}\nb: {<<: *a, x: 2}\n", Path("plan.yaml"))
    assert merged["b"] == {"x": 2}


def test_the_checksum_of_a_packed_file_is_that_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"content")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"content"))

    assert files.content_sha256(tmp_path / "packed.gz") == files.sha256(tmp_path / "plain")


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with files.locked(lock):
        assert files.is_locked(lock)
        with pytest.raises(BlockingIOError), files.locked(lock):
            pass
    assert not files.is_locked(lock)


ONLY_IN_CORE = {
    r"\bsqlite3\.connect\(": "core/sqlite.py",
    r"\bClientSession\(": "core/http.py",
    r"\bos\.replace\(|\b(?:draft|partial|tmp|unfinished)\.(?:replace|rename)\(": "core/files.py",
    r"\btempfile\b|\bmkstemp\b|\bmkdtemp\b": "core/files.py",
    r"\bfcntl\b": "core/files.py",
}


@pytest.mark.parametrize(("pattern", "place"), ONLY_IN_CORE.items())
def test_the_tree_has_one_of_each(pattern: str, place: str) -> None:
    root = Path(evenhand.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(pattern, re.sub(r'(["`])[^"`\n]*\1', "", path.read_text(encoding="utf-8")))
    }
    assert found == {place}
