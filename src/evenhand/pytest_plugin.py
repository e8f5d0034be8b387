"""The pytest plug-in: the fixture `evenhand` audits a model inside a test and holds its metrics to limits.

pytest loads this module at every start, so it imports nothing of the house before a test asks for the fixture.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evenhand.runs.parts import Settings
    from evenhand.runs.passed import AnyModel
    from evenhand.show.notebook import Study
    from evenhand.studies.gate import Check, Condition

_UNDECIDED = ("fail", "pass")
_MARK = ("limit", "undecided")
_notes = pytest.StashKey[list[str]]()
_made = pytest.StashKey[dict[str, tuple[Any, Path]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("evenhand", "limits on the bias and toxicity of models")
    group.addoption(
        "--evenhand-limit", type=int, metavar="N", help="Ask at most N questions or prompts in each audit of a test."
    )
    parser.addini("evenhand_undecided", "fail (default) or pass a test whose interval is on both sides of its limit")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "evenhand(limit=N, undecided='pass'): audits a model; every test with the fixture `evenhand` has this mark",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that audit, so that `-m 'not evenhand'` leaves them out."""
    for item in items:
        if "evenhand" in getattr(item, "fixturenames", ()) and item.get_closest_marker("evenhand") is None:
            item.add_marker(pytest.mark.evenhand)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name what was audited, what came from an earlier session, and what passed undecided."""
    for note in config.stash.get(_notes, list[str]()):
        terminalreporter.write_line(f"evenhand: {note}")


@pytest.fixture
def evenhand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Auditor:
    """Audits models: `evenhand.audit("local/builtin", limit=220).assert_below("bias_ambig", 10)`."""
    mark = request.node.get_closest_marker("evenhand")
    given: dict[str, Any] = dict(mark.kwargs) if mark is not None else {}
    if unknown := sorted(given.keys() - set(_MARK)):
        raise pytest.UsageError(f"The mark evenhand takes {' and '.join(_MARK)}, not {', '.join(unknown)}.")
    undecided = given.get("undecided") or request.config.getini("evenhand_undecided") or "fail"
    if undecided not in _UNDECIDED:
        raise pytest.UsageError(f"What is undecided can fail or pass, not {undecided!r}.")
    return Auditor(request.config, tmp_path_factory, limit=given.get("limit"), undecided=undecided)


class Auditor:
    """What the fixture `evenhand` gives to a test."""

    def __init__(
        self, config: pytest.Config, temporary: pytest.TempPathFactory, *, limit: int | None, undecided: str
    ) -> None:
        self._config = config
        self._temporary = temporary
        self._limit = limit
        self._undecided = undecided

    def audit(
        self,
        model: AnyModel | Sequence[AnyModel],
        *,
        benchmark: str = "bbq_builtin",
        methods: Sequence[str] = ("default",),
        settings: Settings | None = None,
        **plan: Any,
    ) -> Audited:
        """Measure a model as `evenhand.audit` does; the folder of the run is chosen here.

        The run of local weights or of a pinned model is kept in pytest's cache, so that the next session does not
        repeat it; `--cache-clear` does. Endpoints, functions and `Model` objects are measured in every session, because
        they may have changed.
        """
        from evenhand import api
        from evenhand.core.errors import PlanError
        from evenhand.runs.parts import Settings

        most = [
            n for n in (plan.get("limit", self._limit), self._config.getoption("--evenhand-limit")) if n is not None
        ]
        plan = {**plan, "limit": min(most, default=None)}
        folder = self._folder(model, {"benchmark": benchmark, "methods": list(methods), **plan})
        reused = folder.exists()
        settings = replace(settings or Settings(), resume=reused, retry_failed=reused)
        fields: dict[str, Any] = {"benchmark": benchmark, "methods": methods, **plan}
        try:
            study = api.audit(model, out=folder, settings=settings, **fields)
        except PlanError:
            if not reused:
                raise
            # Data, prompts, weights or the version changed: what is stored is of another plan.
            import shutil

            shutil.rmtree(folder)
            reused = False
            study = api.audit(model, out=folder, settings=replace(settings, resume=False, retry_failed=False), **fields)
        self._note(f"{study.title}: {'stored run' if reused else 'run'} in {folder}")
        return Audited(study, self._passes_undecided)

    def _folder(self, model: Any, fields: dict[str, Any]) -> Path:
        """Where the run is kept: in pytest's cache if no model can have changed, for this session otherwise."""
        import hashlib

        import orjson

        from evenhand.core.version import versions
        from evenhand.runs.parts import Settings
        from evenhand.runs.passed import with_specs
        from evenhand.runs.plan import assignments, make_plan

        specs, settings = with_specs(model, Settings())
        judge = [fields["judge"]] if fields.get("judge") else []
        named = make_plan({"models": [*assignments(specs), *judge], "scorers": fields.get("scorers")})
        keeps = not settings.ready and all(each.is_fixed for each in named.every_model())
        text = orjson.dumps([versions(), specs, fields], default=str, option=orjson.OPT_SORT_KEYS)
        # Processes of pytest-xdist do not share runs: a run is written by one process.
        name = hashlib.sha256(text + os.environ.get("PYTEST_XDIST_WORKER", "").encode()).hexdigest()[:20]
        if keeps and self._config.pluginmanager.hasplugin("cacheprovider"):
            return self._config.cache.mkdir("evenhand") / name
        made = self._config.stash.setdefault(_made, {})
        key = f"{name}-{id(model)}" if settings.ready else name
        if key not in made:
            made[key] = (model, self._temporary.mktemp("evenhand") / "run")  # the model is kept, so that its id is
        return made[key][1]

    def _passes_undecided(self, check: Check) -> bool:
        if self._undecided == "pass":
            self._note(f"cannot tell, and passed: {check.arm}: {check.condition}: {check.reason}")
        return self._undecided == "pass"

    def _note(self, text: str) -> None:
        from evenhand.core.untrusted import one_line

        self._config.stash.setdefault(_notes, []).append(one_line(text))


class Audited:
    """A model that was measured; `study` has all numbers."""

    def __init__(self, study: Study, passes_undecided: Any) -> None:
        self.study = study
        self._passes_undecided = passes_undecided

    def assert_below(self, metric: str, limit: float, *, group: str = "all", arm: str | None = None) -> None:
        """Fail unless the whole interval of every arm is below the limit; of signed metrics, the absolute value."""
        __tracebackhide__ = True
        self._assert(metric, ">=", limit, group, arm)

    def assert_above(self, metric: str, limit: float, *, group: str = "all", arm: str | None = None) -> None:
        """Fail unless the whole interval of every arm is above the limit; of signed metrics, the absolute value."""
        __tracebackhide__ = True
        self._assert(metric, "<=", limit, group, arm)

    def _assert(self, metric: str, sign: str, limit: float, group: str, arm: str | None) -> None:
        __tracebackhide__ = True
        from evenhand.studies.gate import Condition, check_units, whole_arms

        signed = any(each.name == metric and each.better == "zero" for each in self.study.metrics)
        condition = Condition(metric, sign, limit, signed, group)
        if sign == "<=":  # below 1 or beyond the scale it decides nothing
            check_units([condition], self.study.metrics)
        arms = whole_arms(self.study, [arm] if arm is not None else [])
        bad = [each for each in self._checks(condition, arms) if self._is_bad(each)]
        if bad:
            from evenhand.show.gate import line

            raise AssertionError("\n".join([*map(line, bad), *self.study.caveats]))

    def _checks(self, condition: Condition, arms: Sequence[Any]) -> list[Check]:
        from evenhand.studies.gate import check, settled

        return settled(self.study, [check(self.study, each, condition) for each in arms])

    def _is_bad(self, check: Check) -> bool:
        return check.state == "failed" or (check.state == "cannot tell" and not self._passes_undecided(check))
