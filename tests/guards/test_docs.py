"""The examples of the guard's page run as they stand there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guard.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example: str, capsys: pytest.CaptureFixture[str]):
    exec(compile(example, str(PAGE), "exec"), {})

    assert capsys.readouterr().out.strip()


def test_there_are_examples():
    assert len(EXAMPLES) == 2
