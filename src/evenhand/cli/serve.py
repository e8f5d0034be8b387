"""`evenhand serve`: the guard as an OpenAI-compatible server, the keys of its clients, and its audit file."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import click
from pydantic import TypeAdapter, ValidationError

from evenhand.cli.groups import Group
from evenhand.cli.options import command, declared
from evenhand.cli.output import print_json
from evenhand.core import aio
from evenhand.core.config import read_config as read_project
from evenhand.core.errors import UsageError
from evenhand.core.fields import ALL_ROLES, ProfileField
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.specs import model_spec
from evenhand.methods import GUARD_METHOD
from evenhand.server.config import ServeConfig, make_config, read_config
from evenhand.server.process import ServeOptions, check
from evenhand.server.telemetry.events import Recorded
from evenhand.web.keys import KeyConfig, Name, Per, Permission, new_key

if TYPE_CHECKING:
    from evenhand.guards.types import CheckList
    from evenhand.server.state.types import AllSpent, Spent
    from evenhand.server.telemetry.audit import ChainState


class KeysCommand(Request):
    name: str = argument("The client that gets the key.")
    may: tuple[Permission, ...] = option(
        (),
        "What the key may do besides chat: switch off the method (bypass), score texts (score), read metrics "
        "(metrics), use all of the server's own pages (admin). Repeat for several.",
    )
    per_minute: float | None = option(None, "Most requests per minute (default: no limit).", gt=0)
    at_once: int | None = option(None, "Most requests at once (default: no limit).", ge=1)
    budget: Several = option(
        (),
        "Most tokens or money, e.g. '2M tokens' or '$20'; repeat for both. Money needs prices in the config.",
        metavar="AMOUNT",
    )
    per: Literal["day", "month", "total"] | None = option(None, "When the budget renews, in UTC; total: never.")
    routes: Several = option((), "A route it may use; repeat for several (default: all).", flag="--route")
    expires: datetime | None = option(None, "The day from which it is rejected.", metavar="DATE")


@command(KeysCommand)
def keys(request: KeysCommand) -> None:
    """Make an API key for the client NAME: the key, shown this once, and its hash for the config file.

    \b
    Examples:
      evenhand serve keys web-app
      evenhand serve keys prometheus --may metrics
      evenhand serve keys moderation --may score --per-minute 600
      evenhand serve keys partner --at-once 10 --budget '2M tokens' --budget '$20' --per month
      evenhand serve keys visitor --route assistant --expires 2027-01-31
    """
    for each, what in ((request.name, "key"), *((route, "route") for route in request.routes)):
        try:
            TypeAdapter(Name).validate_python(each)
        except ValidationError as error:
            why = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise UsageError(f"{each!r} is not a name for a {what}: {why}.") from error
    key, digest = new_key()
    fields = [f'hash: "{digest}"']
    if request.may:
        fields.append(f"may: [{', '.join(dict.fromkeys(request.may))}]")
    if request.per_minute is not None:
        fields.append(f"per_minute: {request.per_minute:g}")
    if request.at_once is not None:
        fields.append(f"at_once: {request.at_once}")
    if request.budget or request.per:
        fields.append(f"budget: {{{_budget(request.budget, request.per)}}}")
    if request.routes:
        quoted = ", ".join(f'"{route}"' for route in dict.fromkeys(request.routes))
        fields.append(f"routes: [{quoted}]")
    if request.expires is not None:
        fields.append(f"expires: {request.expires:%Y-%m-%d}")
    click.echo(f"The key, for the client; it is not shown again:\n\n{key}\n")
    click.echo(f'Its line in the config:\n\nkeys:\n  "{request.name}": {{{", ".join(fields)}}}')


def _budget(texts: tuple[str, ...], per: str | None) -> str:
    from evenhand.models.budget import Limits

    limits = Limits.parse(texts)
    if limits.calls is not None:
        raise UsageError("A key's budget is in tokens or money, not in calls; see --per-minute for requests.")
    if per is None or limits == Limits():
        raise UsageError("A budget needs both --budget AMOUNT and --per day, month or total.")
    amounts = {"tokens": limits.tokens, "money": limits.money}
    return ", ".join([*(f"{name}: {value}" for name, value in amounts.items() if value is not None), f"per: {per}"])


class SpentCommand(Request):
    file: Path = option(..., "The server's config, with its state.", flag="--config")
    as_json: bool = option(False, "Print one object, and nothing else.", flag="--json")


@command(SpentCommand)
def spent(request: SpentCommand) -> None:
    """Show what every key has spent today, this month and in all (UTC); the server may be running.

    \b
    Examples:
      evenhand serve spent --config guard.yaml
      evenhand serve spent --config guard.yaml --json

    The config must name a state. Without one, only the running server knows: GET /admin/spent.
    """
    config = read_config(request.file)
    if not config.state.is_given:
        raise UsageError(
            "The config names no state, so only the running server knows what its keys have spent: GET /admin/spent. "
            "To keep it, add state: {file: FILE}."
        )
    is_new = config.state.file and not Path(config.state.file).expanduser().exists()
    found: AllSpent = {} if is_new else aio.run(_spent(config))
    if request.as_json:
        print_json(found)
        return
    now = time.time()
    names = [*config.keys, *(name for name in found if name not in config.keys)]
    rows: list[tuple[str, ...]] = [("key", "today", "this month", "in all", "budget")]
    for name in names:
        amounts = [_amount(found.get(name, {}), per, now) for per in get_args(Per)]
        rows.append((name, *amounts, _budget_text(config.keys.get(name))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


async def _spent(config: ServeConfig) -> AllSpent:
    from evenhand.server.state.state import load_state

    state = load_state(config.state)
    try:
        await state.start()
        if state.down:
            raise UsageError(f"The state cannot be reached: {state.down}.")
        return await state.spent()
    finally:
        await state.aclose()


def _amount(amounts: Mapping[Per, Spent], per: Per, now: float) -> str:
    from evenhand.server.state.types import Spent, period_of

    amount = amounts.get(per, Spent()).within(period_of(per, now))
    return f"{amount.tokens:,.0f} tokens" + (f", {amount.money:,.4f} in money" if amount.money else "")


def _budget_text(key: KeyConfig | None) -> str:
    if key is None:
        return "(not in the config)"
    if key.budget is None:
        return "none"
    parts = [f"{key.budget.tokens:,} tokens"] if key.budget.tokens else []
    parts += [f"{key.budget.money:g} in money"] if key.budget.money else []
    return ", ".join(parts) + (" in all" if key.budget.per == "total" else f" a {key.budget.per}")


DAMAGED = 1
"""Exit code of `verify` for a file that was changed or is damaged."""


@click.group(cls=Group)
def audit() -> None:
    """Read and check the audit file, in which the server records its requests.

    \b
    Examples:
      evenhand serve audit export audit.sqlite --action revised --action blocked
      evenhand serve audit verify audit.sqlite
    """


class ExportCommand(Request):
    file: Path = argument("The audit file.")
    since: datetime | None = option(None, "Only requests from this time on (UTC).")
    action: tuple[Recorded, ...] = option((), "Only requests with this result; repeat for several.")
    out: Path | None = option(None, "The file to write (default: the terminal).", short="-o")


@command(ExportCommand, audit)
def export(request: ExportCommand) -> None:
    """Write the requests in an audit FILE as JSON Lines, oldest first; the server may be running.

    \b
    Examples:
      evenhand serve audit export audit.sqlite --action revised --action blocked
      evenhand serve audit export audit.sqlite --since 2026-11-01 --out november.jsonl
    """
    import orjson

    from evenhand.server.telemetry.audit import read_audit
    from evenhand.studies.export import write_table

    start = request.since.replace(tzinfo=UTC).timestamp() if request.since else 0.0
    rows = partial(read_audit, request.file, since=start, actions=request.action)
    if request.out is None:
        for row in rows():
            click.echo(orjson.dumps(row))
    elif request.out.resolve() == request.file.resolve():
        raise UsageError(f"{request.out} is the audit file itself; write to another one.")
    else:
        click.echo(f"{request.out}: {write_table(rows, 'jsonl', request.out):,} requests")


class VerifyCommand(Request):
    files: tuple[Path, ...] = argument("The audit files.", metavar="FILE…")
    variables: Several = option(
        (),
        "An environment variable with a key of the audit file (audit.key_env); repeat for several.",
        flag="--key-env",
        metavar="VARIABLE",
    )
    contains: str = option("", "A hash from the server's log that must be in the file.", metavar="HASH")


@command(VerifyCommand, audit)
def verify(request: VerifyCommand) -> int:
    """Check the hash chain of audit FILEs with their rotated files; exit code 1 if one was changed or is damaged.

    Without a key, somebody who may write to the file can compute a new chain; a file with audit.key_env needs
    --key-env here. The server logs the last hash when it rotates or closes the file: --contains finds a file whose end
    was cut off.

    \b
    Examples:
      evenhand serve audit verify audit.sqlite
      evenhand serve audit verify audit.worker*.sqlite --key-env AUDIT_KEY
    """
    from evenhand.server.telemetry.audit import key_from, newest_file, verify_audit

    try:
        expected = bytes.fromhex(request.contains)
    except ValueError as error:
        raise UsageError(
            f"--contains {request.contains} is not a hash: it has characters other than hex digits."
        ) from error
    keys = [key_from(variable) for variable in request.variables]
    states = {file: verify_audit(file, keys, expected) for file in dict.fromkeys(map(newest_file, request.files))}
    for file, state in states.items():
        _tell_chain(file, state)
    return DAMAGED if any(state.problems for state in states.values()) else 0


def _tell_chain(file: Path, state: ChainState) -> None:
    if state.problems:
        more = f"; and {state.more_problems:,} more problems" if state.more_problems else ""
        click.echo(f"evenhand: {file} is damaged: {'; '.join(state.problems)}{more}.", err=True)
        return
    counts = ", ".join(f"{count:,} {action or 'without an action'}" for action, count in state.actions.most_common())
    where = f" in {state.files} files" if state.files > 1 else ""
    click.echo(f"{file} is intact: {state.actions.total():,} requests{where}{f' ({counts})' if counts else ''}.")
    if state.last.number:
        signed = "signed" if state.signed else "not signed (no audit.key_env)"
        click.echo(f"  The chain is {signed} and ends with row {state.last.number:,}, hash {state.last.hash.hex()}.")
    for name in state.unchained:
        click.echo(f"  {name} has no hash chain, because an older Evenhand wrote it: changes cannot be noticed.")
    if state.unproved:
        click.echo(f"  It continues {state.unproved}, which is not here; nor is the file that would account for it.")
    if state.deleted:
        click.echo(f"  Rows up to {state.deleted:,} were deleted by age, as recorded.")
    if state.crashes:
        click.echo(f"  The server crashed {state.crashes:,} times; rows that waited for the disk were lost.")
    if state.lost:
        click.echo(f"  {state.lost:,} rows were lost because the disk was too slow or failed, as recorded.")


LOST = 1
"""Exit code of a server that had to end before all requests in flight were answered."""


class RouteFields(ProfileField):
    """The one route, where there is no config."""

    model: str | None = option(
        None, "The model to serve, if there is no config.", short="-m", metavar="SPEC", common=True
    )
    method: str | None = option(
        None, f"Revises answers (default {GUARD_METHOD}).", metavar="NAME[:KEY=VALUE,…]", common=True
    )
    judge: str | None = option(
        None, "The model that judges, e.g. bias (default: the model itself).", metavar="SPEC", common=True
    )
    policy: Literal["revise", "flag", "block"] | None = option(
        None, "What happens to an answer that fails a check (default revise).", common=True
    )
    on_unrevised: Literal["block", "flag", "pass"] | None = option(
        None,
        "What happens if no revision passes: withhold the answer, or return it with the reason or without a word "
        "(default flag; in a stream, the rest is withheld).",
    )
    input: Literal["flag", "block"] | None = option(
        None, "Check requests too: mark those that fail, or refuse them before the model (default: no check)."
    )
    blocked_text: str | None = option(None, "The text that is sent instead of a blocked answer.")
    latency: float | None = option(
        None, "Return the best answer so far after this many seconds.", metavar="SECONDS", common=True
    )
    evaluators: Several = option(
        (),
        "A check of every answer besides toxicity: bias asks the --judge; repeat for several.",
        flag="--evaluator",
        metavar="NAME",
        common=True,
    )
    templates: str | None = option(
        None, "Prompt files of your own; see evenhand list methods NAME --prompts DIR.", metavar="DIR"
    )
    base_url: str | None = option(
        None, "The endpoint of openai/ models (default OPENAI_BASE_URL, then OpenAI).", common=True
    )
    judge_base_url: str | None = option(None, "The judge's own endpoint, one without a key (default: the model's).")


class ServeCommand(RouteFields):
    file: Path | None = option(
        None, "A YAML file with routes, keys and limits.", flag="--config", metavar="FILE", common=True
    )
    name: str | None = option(None, "What clients call the route (default: the model's name).", metavar="ROUTE")
    host: str = option("127.0.0.1", "Addresses other than loopback need keys.", common=True)
    port: int = option(8790, "0 picks a free port.", ge=0, le=65535, common=True)
    workers: int = option(1, "Worker processes that share the port.", ge=1, common=True)
    may_open: bool = option(False, "Let a reload remove all keys; otherwise it is rejected.", flag="--open")
    allow_call: bool = option(False, "Allow call/ models, which run Python code, in the --config.")
    only_check: bool = option(False, "Check the config, load every route, and exit.", flag="--check", common=True)


@click.group(cls=Group, invoke_without_command=True)
@declared(ServeCommand)
def serve(request: ServeCommand) -> int:
    """Answer OpenAI-style requests through a mitigation method, in front of any model.

    \b
    Examples:
      evenhand serve --model local/builtin
      evenhand serve --model openai/gpt-4o-mini --method stardtox --policy block --latency 8
      evenhand serve --model openai/my-model --base-url http://localhost:8000/v1 --evaluator bias --judge openai/judge
      evenhand serve --model local-vllm/my-model --judge 'openai/judge?base_url=https://HOST/v1&key=JUDGE_KEY'
      evenhand serve --config guard.yaml --check
      evenhand serve --config guard.yaml --host 0.0.0.0 --workers 2
      evenhand serve keys website --per-minute 600
      evenhand serve spent --config guard.yaml
      evenhand serve audit export audit.sqlite --since 2026-11-01

    Every answer is checked for toxicity by a scorer. Bias is checked only with --evaluator bias, which asks a model
    about each answer. The server says at start, at /healthz and in each record which checks run.

    Point any OpenAI client at http://HOST:PORT/v1 and use the route's name as its model. The page at / shows live what
    is revised and why. The config is reloaded when its file changes, on SIGHUP, and on POST /admin/reload. After
    SIGTERM the server answers the requests in flight, then ends.
    """
    file, workers = request.file, request.workers
    options = ServeOptions(
        _config(request),
        request.host,
        request.port,
        file,
        may_open=request.may_open,
        allow_call=request.allow_call or file is None,
    )
    if request.only_check:
        checks = check(options)
        click.echo(f"{file or 'The route'} is fine: {', '.join(options.config.routes)}.")
        _tell_routes(options, checks)
        return 0
    return 0 if _run(options, workers) else LOST


serve.add_command(keys)
serve.add_command(spent)
serve.add_command(audit)


def _run(options: ServeOptions, workers: int) -> bool:
    def ready(address: str, checks: Mapping[str, CheckList]) -> None:
        _greet(options, address, checks)

    if workers == 1:
        from evenhand.server.process import serve as serve_here

        return aio.run(serve_here(options, ready))
    from evenhand.server.process import serve_with_workers

    return serve_with_workers(options, workers, ready)


def _config(request: ServeCommand) -> ServeConfig:
    """The file's, or one route out of flags."""
    fields = {name: value for name, value in request.given(RouteFields).items() if value not in (None, ())}
    fields = {**_of_profile(request.profile), **fields}
    fields.pop("profile", None)
    if len(systems := fields.pop("system", ())) > 1:
        raise UsageError("A route has one system prompt; name one with --system.")
    fields |= {"system": systems[0]} if systems else {}
    fields |= {"history": str(fields["history"])} if "history" in fields else {}
    if request.evaluators:
        fields["evaluators"] = tuple(dict.fromkeys(("toxicity", *request.evaluators)))
    if request.input:
        fields["input"] = {"policy": request.input}
    if request.file is not None:
        if fields or request.name:
            raise UsageError("Routes are either in the --config or in flags, not in both.")
        return read_config(request.file)
    if request.model is None:
        raise UsageError("Say what to serve: --model SPEC, e.g. --model openai/gpt-4o-mini, or --config FILE.")
    return make_config({"routes": {request.name or _route_name(request.model): fields}})


def _of_profile(name: str | None) -> dict[str, Any]:
    """Return what a route takes of a profile: the prompt and the generation settings."""
    found = read_project().profile(name)
    taken = {each: found[each] for each in ("system", "history", "temperature", "stop") if each in found}
    limit: Any = found.get("max_tokens")
    if isinstance(limit, dict):
        limits = cast("dict[str, int]", limit)
        limit = limits.get("base", limits.get(ALL_ROLES))
    return {**taken, **({} if limit is None else {"max_tokens": limit})}


def _route_name(spec: str) -> str:
    """The model's own name, or the last part of it where it is a path, in characters that a route may have."""
    name = model_spec(spec)[0].rsplit("/", 1)[-1].removesuffix(".gguf")
    return re.sub(r"[^A-Za-z0-9._:@-]+", "-", name).strip("-._:@") or "model"


def _tell_routes(options: ServeOptions, checks: Mapping[str, CheckList]) -> None:
    """Say of each route which checks run, and what would check bias."""
    wanted = "--evaluator bias --judge MODEL" if options.file is None else "evaluators: [toxicity, bias], judge: MODEL"
    for name, route in options.config.routes.items():
        judge = f", judge {route.judge}" if route.judge else ""
        click.echo(f"  {name}: {route.model} through {route.method}, policy {route.policy}{judge}")
        click.echo(f"    {checks[name]}{f': {wanted}' if 'bias' in checks[name].not_run else ''}")


def _greet(options: ServeOptions, address: str, checks: Mapping[str, CheckList]) -> None:
    config = options.config
    click.echo(f"Serving at {address}/v1" + (f", live page at {address}/" if config.page else ""))
    _tell_routes(options, checks)
    if any(each.budget for each in config.keys.values()) and not config.state.is_given:
        click.echo("  What keys have spent is forgotten when the server stops. To keep it, add state: {file: FILE}.")
    key = ' -H "Authorization: Bearer $EVENHAND_KEY"' if config.keys else ""
    asked = f'{{"model": "{next(iter(config.routes))}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    click.echo(f"Try: curl {address}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{asked}'")
