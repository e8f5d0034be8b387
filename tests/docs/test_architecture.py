"""The architecture page draws the package as it is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TREE = re.search(r"src/evenhand/\n(.*?)```", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_tree_names_every_room_and_no_other():
    assert TREE is not None
    drawn = set(re.findall(r"^  ((?:[\w.]+/? )*[\w.]+/?)(?:\s|$)", TREE[1], re.MULTILINE))
    named = {name.rstrip("/") for line in drawn for name in line.split() if name.endswith(("/", ".py"))}
    package = ROOT / "src/evenhand"
    real = {path.name for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}

    assert named == real - {"__init__.py", "__main__.py"}
