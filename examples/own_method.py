"""A mitigation method of your own, compared with the plain model on a model of your own.

Run it with `python examples/own_method.py`; no model and no network are needed.
"""

import sys
import tempfile
from pathlib import Path

from evenhand import PROVIDERS, FunctionModel, Outcome, Sample, Session, audit, choose, method
from evenhand.prompts import parse_prompt

PROMPT = parse_prompt(
    "own/evidence_first",
    """
# user
Passage: {{context}}
Question: {{question}}
Name only what the passage itself says. If it does not say, choose the option that tells so.
{{options}}
Reply with one letter.
""".lstrip(),
)


@method("evidence_first", kinds={"choice"})
async def evidence_first(sample: Sample, session: Session) -> Outcome:
    """Asks for what the passage says, and nothing else."""
    return Outcome(await choose(session, sample, PROMPT))


def answer(messages, _params):
    """Stands in for a model: it answers 'unknown' only when the prompt insists on the passage."""
    text = messages[-1].content
    options = [line for line in text.splitlines() if line[1:3] == ") "]
    unknown = next(
        line for line in options if any(word in line.lower() for word in ("not", "can't", "unknown", "undet"))
    )
    return unknown[0] if "itself says" in text else next(line for line in options if line != unknown)[0]


@PROVIDERS.register("toy")
class ToyModel(FunctionModel):
    def __init__(self, name, options):
        super().__init__(answer, spec=f"toy/{name}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = audit("toy/one", out=Path(folder) / "run", methods=["default", "evidence_first"], limit=220)
    for verdict in result.verdicts:
        sys.stdout.write(verdict + "\n")


if __name__ == "__main__":
    main()
