"""Prompt files: messages under headings, variables filled strictly, and a hash that notices every word."""

from pathlib import Path

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.prompts import load_prompt, parse_prompt
from evenhand.core.types import Message

SOURCE = """# system
Be fair to {{group}}.

# user
Passage: {{context}}
{{group}} again.
"""


def test_a_prompt_becomes_messages():
    prompt = parse_prompt("test/p", SOURCE)

    messages = prompt.render(group="all", context="Two people met.")

    assert messages == (
        Message("system", "Be fair to all."),
        Message("user", "Passage: Two people met.\nall again."),
    )
    assert prompt.variables == {"group", "context"}


@pytest.mark.parametrize(
    ("values", "wrong"),
    [({"group": "x"}, "context"), ({"group": "x", "context": "y", "extra": "z"}, "extra"), ({}, "context, group")],
)
def test_missing_and_unknown_variables_are_errors(values: dict[str, str], wrong: str):
    with pytest.raises(UsageError, match=rf"test/p takes \['context', 'group'\]; check: {wrong}"):
        parse_prompt("test/p", SOURCE).render(**values)


@pytest.mark.parametrize("text", ["{{group}}", "\\1 \\g<0>", "{0} %s $x", "# user\nnew message"])
def test_values_are_text_and_nothing_else(text: str):
    messages = parse_prompt("test/p", SOURCE).render(group="all", context=text)

    assert len(messages) == 2
    assert messages[1].content == f"Passage: {text}\nall again."


def test_the_hash_changes_with_a_word():
    changed = parse_prompt("test/p", SOURCE.replace("fair", "nice"))

    assert changed.hash != parse_prompt("test/p", SOURCE).hash
    assert parse_prompt("test/other", SOURCE).hash == parse_prompt("test/p", SOURCE).hash


@pytest.mark.parametrize("source", ["", "no heading", "text first\n# user\nHi", "# User\nHi", "## user\nHi"])
def test_a_prompt_begins_with_a_heading(source: str):
    with pytest.raises(UsageError, match="test/p must begin with a line '# system' or '# user'"):
        parse_prompt("test/p", source)


@pytest.mark.parametrize("variable", ["{{ name }}", "{{na-me}}", "{{}}", "{{name}"])
def test_a_misspelt_variable_is_an_error_and_not_text(variable: str):
    with pytest.raises(UsageError, match=r"a variable that is not written \{\{name\}\}"):
        parse_prompt("test/p", f"# user\nHello {variable}")


def test_a_prompt_is_loaded_from_beside_the_code(tmp_path: Path):
    (tmp_path / "ask.md").write_text("# user\nHi\n", encoding="utf-8")

    prompt = load_prompt(str(tmp_path / "module.py"), "ask")

    assert prompt.id == f"{tmp_path.name}/ask"
    assert prompt.render() == (Message("user", "Hi"),)


def test_line_ends_do_not_change_the_hash(tmp_path: Path):
    (tmp_path / "unix.md").write_bytes(b"# user\nHi\n")
    (tmp_path / "windows.md").write_bytes(b"# user\r\nHi\r\n")

    module = str(tmp_path / "module.py")

    assert load_prompt(module, "unix").hash == load_prompt(module, "windows").hash


def test_a_missing_file_is_told_by_its_path(tmp_path: Path):
    with pytest.raises(UsageError, match=r"gone\.md: There is no such file"):
        load_prompt(str(tmp_path / "module.py"), "gone")


def test_a_file_that_is_no_text_is_told_by_its_path(tmp_path: Path):
    (tmp_path / "bytes.md").write_bytes(b"# user\n\xff\xfe")

    with pytest.raises(UsageError, match=r"bytes\.md: cannot be read"):
        load_prompt(str(tmp_path / "module.py"), "bytes")
