"""A mitigation method of your own, compared with the plain model on a model of your own.

Run it with `python examples/own_method.py`; no model and no network are needed.
"""

import sys
import tempfile
from pathlib import Path

from pydantic import Field

from evenhand import PROVIDERS, FunctionModel, Options, Outcome, Sample, Session, audit, choose, method
from evenhand.core.prompts import parse_prompt

PROMPT = parse_prompt(
    "own/evidence_first",
    """
# user
Passage: {{context}}
Question: {{question}}
Name only what the passage itself says, in {{needed}} of its sentences or more. If it does not say, choose the option
that tells so.
{{options}}
Reply with one letter.
""".lstrip(),
)


class EvidenceOptions(Options):
    """What the method takes; `evenhand list methods evidence_first` prints it."""

    sentences: int = Field(default=1, ge=1, le=5, description="How many sentences of the passage must say it.")


@method("evidence_first", kinds={"choice"}, options=EvidenceOptions)
async def evidence_first(sample: Sample, session: Session[EvidenceOptions]) -> Outcome:
    """Asks for what the passage says, and nothing else."""
    needed = str(session.options.sentences)

    def ask(options: str):
        return PROMPT.render(context=sample.context, question=sample.prompt, needed=needed, options=options)

    return Outcome(await choose(session, sample, PROMPT, ask))


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
        methods = ["default", "evidence_first:sentences=2"]
        result = audit("toy/one", out=Path(folder) / "run", methods=methods, limit=220)
    for verdict in result.verdicts:
        sys.stdout.write(verdict + "\n")


if __name__ == "__main__":
    main()
