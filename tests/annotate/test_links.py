"""Links: long tokens that stay the same until the owner wants new ones."""

from pathlib import Path

import pytest

from evenhand.annotate.pages import LINKS_FILE, read_secret, token
from evenhand.core.errors import DataError


def test_tokens_are_long_differ_and_stay(tmp_path: Path):
    tokens = {who: token(read_secret(tmp_path), who) for who in ("", "ann", "ben")}

    assert {len(each) for each in tokens.values()} == {43}  # 256 bits
    assert len(set(tokens.values())) == 3
    assert token(read_secret(tmp_path), "ann") == tokens["ann"]
    assert (tmp_path / LINKS_FILE).stat().st_mode & 0o777 == 0o600


def test_new_links_end_the_old_ones(tmp_path: Path):
    old = read_secret(tmp_path)

    assert read_secret(tmp_path, renew=True) != old
    assert [path.name for path in tmp_path.iterdir()] == [LINKS_FILE]


@pytest.mark.parametrize("content", ["", "xyz", "abcd"])
def test_a_damaged_secret_is_refused(tmp_path: Path, content: str):
    (tmp_path / LINKS_FILE).write_text(content, encoding="utf-8")

    with pytest.raises(DataError, match="--new-links"):
        read_secret(tmp_path)
