"""`evenhand serve`: the guard as an OpenAI-compatible server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from evenhand.cli.groups import Group
from evenhand.cli.serve.audit import audit
from evenhand.cli.serve.keys import keys
from evenhand.cli.serve.spent import spent
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.specs import model_spec
from evenhand.methods import GUARD_METHOD
from evenhand.server.config import ServeConfig, make_config, read_config
from evenhand.server.process import ServeOptions, check

LOST = 1
"""Exit code of a server that had to end before all requests in flight were answered."""
_ROUTE_FLAGS = (
    "model",
    "method",
    "judge",
    "policy",
    "blocked_text",
    "latency",
    "evaluators",
    "templates",
    "base_url",
    "judge_base_url",
)


@click.group(cls=Group, invoke_without_command=True)
@click.option("--config", "file", type=click.Path(path_type=Path), help="A YAML file with routes, keys and limits.")
@click.option("--model", "-m", metavar="SPEC", help="The model of the one route, where there is no config.")
@click.option("--method", metavar="NAME[:KEY=VALUE,…]", help=f"Revises answers (default {GUARD_METHOD}).")
@click.option("--judge", metavar="SPEC", help="The critics' model (default: the model itself).")
@click.option(
    "--policy",
    type=click.Choice(["revise", "flag", "block"]),
    help="What happens to a biased or toxic answer (default revise).",
)
@click.option(
    "--input",
    "input_policy",
    type=click.Choice(["flag", "block"]),
    help="Check requests too: mark those that fail, or refuse them before the model (default: no check).",
)
@click.option("--blocked-text", help="The text that is sent instead of a blocked answer.")
@click.option("--latency", type=float, metavar="SECONDS", help="After this time the best answer so far is returned.")
@click.option(
    "--evaluator", "evaluators", multiple=True, metavar="NAME", help="A check of every answer; repeat for several."
)
@click.option(
    "--templates", metavar="DIR", help="Prompt files of your own; see evenhand list methods NAME --prompts DIR."
)
@click.option("--base-url", help="The endpoint of openai/ models (default OPENAI_BASE_URL, then OpenAI).")
@click.option("--judge-base-url", help="The judge's own endpoint, one without a key (default: the model's).")
@click.option("--name", metavar="ROUTE", help="What clients call the route (default: the model's name).")
@click.option("--host", default="127.0.0.1", show_default=True, help="Addresses other than loopback need keys.")
@click.option("--port", type=click.IntRange(0, 65535), default=8790, show_default=True, help="0 takes a free one.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes on the one port.")
@click.option("--open", "may_open", is_flag=True, help="Let a reload remove all keys; otherwise it is rejected.")
@click.option("--allow-call", is_flag=True, help="Allow call/ models, which run Python code, in the --config.")
@click.option("--check", "only_check", is_flag=True, help="Check the config, load every route, and exit.")
@click.pass_context
def serve(
    context: click.Context,
    file: Path | None,
    host: str,
    port: int,
    workers: int,
    may_open: bool,
    allow_call: bool,
    only_check: bool,
    **route: Any,
) -> int | None:
    """Answer OpenAI-style requests through a mitigation method, in front of any model.

    \b
    Examples:
      evenhand serve --model local/builtin
      evenhand serve --model openai/gpt-4o-mini --method stardtox --policy block --latency 8
      evenhand serve --model openai/my-model --base-url http://localhost:8000/v1 --judge openai/judge
      evenhand serve --model local-vllm/my-model --judge 'openai/judge?base_url=https://HOST/v1&key=JUDGE_KEY'
      evenhand serve --config guard.yaml --check
      evenhand serve --config guard.yaml --host 0.0.0.0 --workers 2
      evenhand serve keys website --per-minute 600
      evenhand serve spent --config guard.yaml
      evenhand serve audit export audit.sqlite --since 2026-11-01

    Point any OpenAI client at http://HOST:PORT/v1 and use the route's name as its model. The page at / shows live what
    is revised and why. A config is read again when it changes, on SIGHUP, and on POST /admin/reload; SIGTERM ends the
    server when all requests in flight are answered.
    """
    if context.invoked_subcommand is not None:
        return None
    config = _config(file, route)
    options = ServeOptions(config, host, port, file, may_open=may_open, allow_call=allow_call or file is None)
    if only_check or workers > 1:
        check(options)  # one message, not one per process
    if only_check:
        click.echo(f"{file or 'The route'} is fine: {', '.join(options.config.routes)}.")
        return 0
    return 0 if _run(options, workers) else LOST


serve.add_command(keys)
serve.add_command(spent)
serve.add_command(audit)


def _run(options: ServeOptions, workers: int) -> bool:
    def ready(address: str) -> None:
        _greet(options.config, address)

    if workers == 1:
        from evenhand.server.process import serve as serve_here

        return aio.run(serve_here(options, ready))
    from evenhand.server.process import serve_with_workers

    return serve_with_workers(options, workers, ready)


def _config(file: Path | None, given: dict[str, Any]) -> ServeConfig:
    """The file's, or one route out of flags."""
    name = given.pop("name")
    fields = {flag: given[flag] for flag in _ROUTE_FLAGS if given[flag] not in (None, ())}
    if policy := given["input_policy"]:
        fields["input"] = {"policy": policy}
    if file is not None:
        if fields or name:
            raise UsageError("Routes are either in the --config or in flags, not in both.")
        return read_config(file)
    if "model" not in fields:
        raise UsageError("Say what to serve: --model SPEC, e.g. --model openai/gpt-4o-mini, or --config FILE.")
    return make_config({"routes": {name or _route_name(fields["model"]): fields}})


def _route_name(spec: str) -> str:
    """The model's own name, or the last part of it where it is a path, in characters that a route may have."""
    name = model_spec(spec)[0].rsplit("/", 1)[-1].removesuffix(".gguf")
    return re.sub(r"[^A-Za-z0-9._:@-]+", "-", name).strip("-._:@") or "model"


def _greet(config: ServeConfig, address: str) -> None:
    click.echo(f"Serving at {address}/v1" + (f", live page at {address}/" if config.page else ""))
    for name, route in config.routes.items():
        judge = f", judged by {route.judge}" if route.judge else ""
        click.echo(f"  {name}: {route.model} through {route.method}, policy {route.policy}{judge}")
    if any(each.budget for each in config.keys.values()) and not config.state.is_given:
        click.echo("  What keys have spent is forgotten when the server stops. To keep it, add state: {file: FILE}.")
    key = ' -H "Authorization: Bearer $EVENHAND_KEY"' if config.keys else ""
    asked = f'{{"model": "{next(iter(config.routes))}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    click.echo(f"Try: curl {address}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{asked}'")
