"""axe-core, which finds what keeps people with disabilities from using a page; from the npm registry."""

from __future__ import annotations

from typing import Any

from support.clients import node_with

AXE = "axe-core@4.10.3"
RUN = """const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then((found) => done(found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => each.id + ": " + each.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", "))))"""


def serious_findings(driver: Any) -> list[str]:
    """The serious findings on the page that the browser shows."""
    source = (node_with([AXE]) / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    driver.execute_script(source)
    return driver.execute_async_script(RUN)
