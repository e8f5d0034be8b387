"""Write the tables of presets into docs/papers/NAME.md, from the declarations in presets.yaml."""

import re
from pathlib import Path

from evenhand.papers.base import PAPERS
from evenhand.papers.page import element_rows

FOLDER = Path(__file__).parents[1] / "docs/papers"
BEGIN, END = "<!-- presets -->", "<!-- end of presets -->"


def main() -> None:
    for name in PAPERS.names():
        page = FOLDER / f"{name}.md"
        elements = PAPERS.get(name).elements
        if page.is_file() and elements:
            heads, rows = element_rows(elements)
            lines = [heads, ["---"] * len(heads), *rows]
            table = "\n".join(
                "|---" * len(heads) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines
            )
            text = page.read_text(encoding="utf-8")
            made = re.sub(rf"{BEGIN}.*?{END}", lambda _, table=table: f"{BEGIN}\n{table}\n{END}", text, flags=re.DOTALL)
            page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
