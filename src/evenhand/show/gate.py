"""The checks of a gate for CI: JUnit XML, a summary in Markdown, and annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from evenhand.core.format import plural
from evenhand.core.untrusted import one_line
from evenhand.show.table import Table, columns, markdown, markdown_text
from evenhand.studies.gate import Check, State, overall

_ORDER: Sequence[State] = ("failed", "cannot tell", "passed")
_SIGNS: dict[State, str] = {"passed": "✅", "failed": "❌", "cannot tell": "❔"}


def in_order(checks: Sequence[Check]) -> list[Check]:
    """What failed first, the largest before the others, then what is undecided."""
    return sorted(checks, key=lambda check: (_ORDER.index(check.state), -abs(check.value or 0.0)))


def sentence(checks: Sequence[Check]) -> str:
    """The result in a sentence, with the worst of what failed."""
    state = overall(checks)
    said = [check for check in in_order(checks) if check.state == state]
    if state == "passed" or not said:
        return f"Gate: {state}."
    what = "failed" if state == "failed" else "could not be decided"
    which = "" if len(said) == 1 else ", the worst" if state == "failed" else ", the first"
    first = one_line(f"{said[0].condition}, {said[0].reason}")
    return f"Gate: {state}. {len(said)} of {plural(len(checks), 'check')} {what}{which}: {first}."


def line(check: Check) -> str:
    return one_line(f"{check.state}: {check.arm}: fails if {check.condition}: {check.reason}")


def junit(title: str, checks: Sequence[Check], *, undecided_passes: bool) -> bytes:
    """A test suite with a test for each check; an undecided one is skipped if it may pass, and fails otherwise."""
    bad = [c for c in checks if c.state == "failed" or (c.state == "cannot tell" and not undecided_passes)]
    skipped = [c for c in checks if c.state == "cannot tell" and undecided_passes]
    counts = {"tests": len(checks), "failures": len(bad), "errors": 0, "skipped": len(skipped)}
    suite = ElementTree.Element("testsuite", {"name": one_line(title)} | {key: str(n) for key, n in counts.items()})
    for check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": one_line(f"evenhand.{check.arm}"), "name": one_line(check.condition)}
        )
        if check in bad:
            ElementTree.SubElement(case, "failure", {"message": line(check), "type": check.state})
        elif check in skipped:
            ElementTree.SubElement(case, "skipped", {"message": line(check)})
    whole = ElementTree.Element("testsuites")
    whole.append(suite)
    return ElementTree.tostring(whole, encoding="utf-8", xml_declaration=True)


def summary(title: str, checks: Sequence[Check], doubts: Sequence[str] = ()) -> str:
    """A heading and a table in Markdown, with what the checks do not see."""
    rows = [[f"{_SIGNS[c.state]} {c.state}", c.arm, c.condition, c.reason] for c in in_order(checks)]
    table = Table(title, columns("", "arm", "fails if", "measured", words=4), rows)
    said = markdown_text(sentence(checks))
    said = "\n\n".join([said, *map(markdown_text, doubts)])
    return f"## Gate: {overall(checks)}\n\n{said}\n\n{markdown_text(title)}\n\n{markdown(table)}\n"


def annotation(check: Check, *, undecided_passes: bool) -> str:
    """A workflow command of GitHub Actions; empty for a check that passed."""
    if check.state == "passed":
        return ""
    level = "error" if check.state == "failed" or not undecided_passes else "warning"
    return f"::{level} title=Evenhand gate::{line(check).replace('%', '%25')}"
