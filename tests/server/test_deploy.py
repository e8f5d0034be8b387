"""The files in deploy/: linters accept them, configs in them load, and every metric in them is one of /metrics."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenhand.server.config import make_config
from support.guard_server import RUDE, Guarding, route
from support.server import chat

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = {file.stem: yaml.safe_load(file.read_text()) for file in (DEPLOY / "kubernetes").glob("*.yaml")}
ALERTS = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
SELECTOR = re.compile(r"\b(evenhand_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def tool(name: str) -> str:
    """The path of a linter, in this environment or on this machine."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def lint(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def queries() -> Iterator[str]:
    """Every PromQL expression of the dashboard, with Grafana's variables filled in."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
            yield text.replace("$route", ".*")


async def shown_metrics(guarding: Guarding, serve: Any, tmp_path: Path) -> dict[str, set[str]]:
    """The names of all series at /metrics, as they are queried, with the labels of each."""
    behind = await serve(chat(RUDE))
    files = {"audit": {"file": str(tmp_path / "audit.sqlite")}, "state": {"file": str(tmp_path / "state.sqlite")}}
    guard = await guarding(route(behind.url), **files)
    await guard.chat()
    await guard.told()
    text = (await guard.get("/metrics")).text
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    names = {name for name, kind in types.items() if kind != "histogram"}
    names |= {f"{name}_{part}" for name, kind in types.items() if kind == "histogram" for part in _HISTOGRAM}
    labels: dict[str, set[str]] = {name: set() for name in names}
    for name, given in re.findall(r"^(evenhand_\w+)\{([^}]*)\} ", text, re.MULTILINE):
        labels.setdefault(name, set()).update(LABEL.findall(given))
    return labels


_HISTOGRAM = ("bucket", "sum", "count")


async def test_alerts_and_dashboard_name_metrics_and_labels_that_exist(guarding: Guarding, serve, tmp_path: Path):
    shown = await shown_metrics(guarding, serve, tmp_path)

    used = [
        match.groups() for text in (*(rule["expr"] for rule in ALERTS), *queries()) for match in SELECTOR.finditer(text)
    ]

    assert len(used) > 40
    assert {name for name, _ in used} <= set(shown)
    for name, selector in used:
        if shown[name]:  # a metric without samples shows no labels
            assert set(LABEL.findall(selector or "")) <= shown[name], name


def test_every_metric_of_the_docs_that_counts_losses_has_an_alert():
    text = " ".join(rule["expr"] for rule in ALERTS)

    for name in (
        "evenhand_audit_rows_lost",
        "evenhand_events_lost",
        "evenhand_upstream_errors_total",
        "evenhand_state_down",
    ):
        assert name in text


def test_promtool_accepts_alerts_and_queries(tmp_path: Path):
    promtool = tool("promtool")
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(queries())]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    lint(promtool, "check", "rules", DEPLOY / "prometheus-alerts.yml", tmp_path / "queries.yml")


def test_alerts_fire_and_rest(tmp_path: Path):
    promtool = tool("promtool")

    def case(series: str, values: str, alert: str, *labels: dict[str, str]) -> dict[str, Any]:
        expected = [{"exp_labels": {"severity": _severity(alert), **each}} for each in labels]
        tested = {"eval_time": "30m", "alertname": alert, "exp_alerts": expected}
        return {"interval": "1m", "input_series": [{"series": series, "values": values}], "alert_rule_test": [tested]}

    lost, failing = 'evenhand_audit_rows_lost{instance="a"}', 'evenhand_requests_total{route="r",status="502"}'
    tests = [
        case(lost, "0x20 5x20", "EvenhandAuditRowsLost", {"instance": "a"}),
        case(lost, "5x40", "EvenhandAuditRowsLost"),
        case(failing, "0+10x40", "EvenhandErrors", {}),
        case(failing.replace("502", "200"), "0+10x40", "EvenhandErrors"),
        case('up{job="evenhand",instance="a"}', "0x40", "EvenhandDown", {"job": "evenhand", "instance": "a"}),
    ]
    for test in tests:  # what is tested is when alerts fire, not how they are worded
        for each in test["alert_rule_test"]:
            for alert in each["exp_alerts"]:
                alert["exp_annotations"] = {}
    rules = [{**rule, "annotations": {}} for rule in ALERTS]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "evenhand", "rules": rules}]}))
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": tests}))

    lint(promtool, "test", "rules", tmp_path / "test.yml")


def _severity(alert: str) -> str:
    return next(rule["labels"]["severity"] for rule in ALERTS if rule["alert"] == alert)


def test_the_dashboards_panels_have_places_and_ids_of_their_own():
    panels = DASHBOARD["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]

    assert len({panel["id"] for panel in panels}) == len(set(places)) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_systemd_accepts_the_unit_and_finds_it_well_confined(tmp_path: Path):
    analyze = tool("systemd-analyze")
    unit = tmp_path / "evenhand.service"
    text = (DEPLOY / "evenhand.service").read_text()
    unit.write_text(text.replace("/opt/evenhand/bin/evenhand", "/bin/true"))  # it must exist to be verified

    lint(analyze, "verify", unit)
    lint(analyze, "security", "--offline=yes", "--threshold=20", unit)


def test_hadolint_accepts_the_dockerfile():
    lint(tool("hadolint"), DEPLOY / "Dockerfile")


def test_manifests_are_valid_for_kubernetes():
    lint(tool("kubernetes-validate"), "--strict", *sorted((DEPLOY / "kubernetes").glob("*.yaml")))


def test_what_the_dockerfile_copies_exists_and_is_not_ignored():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().split() if line.startswith("!")}

    names = {name for line in copied for name in line.split()}
    assert names == kept
    assert all((ROOT / name).exists() for name in names)


def test_all_files_name_the_image_of_this_version():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    pod = MANIFESTS["deployment"]["spec"]["template"]["spec"]

    assert compose["services"]["evenhand"]["image"] == f"evenhand:{VERSION}"
    assert pod["containers"][0]["image"] == f"evenhand:{VERSION}"
    assert f"evenhand:{VERSION} " in (DEPLOY / "Dockerfile").read_text()


def test_the_manifests_fit_together():
    labels = MANIFESTS["deployment"]["spec"]["template"]["metadata"]["labels"]
    pod = MANIFESTS["deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert labels.items() >= MANIFESTS["service"]["spec"]["selector"].items()
    assert labels.items() >= MANIFESTS["disruption-budget"]["spec"]["selector"]["matchLabels"].items()
    assert labels.items() >= MANIFESTS["network-policy"]["spec"]["podSelector"]["matchLabels"].items()
    assert MANIFESTS["autoscaler"]["spec"]["scaleTargetRef"]["name"] == MANIFESTS["deployment"]["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    assert f"USER {pod['securityContext']['runAsUser']}:" in (DEPLOY / "Dockerfile").read_text()
    assert {container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe")} == {
        "/readyz",
        "/healthz",
    }


@pytest.mark.parametrize(
    "text",
    [(DEPLOY / "guard.yaml").read_text(), MANIFESTS["config"]["data"]["guard.yaml"]],
    ids=["compose and systemd", "Kubernetes"],
)
def test_the_configs_load_and_stop_in_time(text: str):
    config = make_config(yaml.safe_load(text))

    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["evenhand"]
    grace = MANIFESTS["deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    unit = re.search(r"TimeoutStopSec=(\d+)", (DEPLOY / "evenhand.service").read_text())
    assert unit
    assert config.keys  # without, it would not serve other machines
    for seconds in (int(compose["stop_grace_period"].removesuffix("s")), grace, int(unit[1])):
        assert seconds >= config.limits.shutdown_seconds + 10
