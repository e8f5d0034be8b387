"""Opens the store of a plan, new or resumed, in a directory that no other process uses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

from evenhand.core.errors import PlanError
from evenhand.core.types import Sample
from evenhand.runs.lock import LOCK_NAME, locked
from evenhand.runs.parts import Settings
from evenhand.runs.store import FILE_NAME, Store, no_plan


@contextlib.contextmanager
def opened(
    directory: Path,
    settings: Settings,
    facts: Mapping[str, Any],
    samples: Callable[[], Iterable[tuple[int, Sample]]],
    make: Callable[..., Store] = Store,
) -> Generator[Store]:
    """The store of a plan; a new one that got nowhere is removed again.

    Args:
        facts: What identifies the plan and is stored with it: `identity`, `plan`, `options` and more.
        samples: Returns the plan's samples with their numbers; called for a new store only.
        make: The class of the store.
    """
    folder_existed = check_directory(directory, settings)
    # Lock first, so that no other process opens or removes a store that is being created.
    with locked(directory):
        check_directory(directory, settings)
        new = not (directory / FILE_NAME).exists()
        worthless = new
        try:
            with contextlib.closing(make(directory, create=True, skip_damaged=settings.skip_damaged)) as store:
                worthless = False
                try:
                    if not new and store.get("identity") is None:
                        raise PlanError(no_plan(directory))
                    _check_identity(store, facts["identity"], directory)
                    _check_options(store, facts["options"], directory)
                    _check_shard(store, settings, directory)
                    if new:
                        _fill(store, facts, samples, settings)
                    store.begin()
                    store.put(settings=settings.stored())
                    if settings.retry_failed:
                        store.forget("failed")
                    yield store
                except BaseException:
                    store.settle()
                    worthless = new and not store.has_answers()
                    raise
        finally:
            if worthless:
                _remove(directory, keep_folder=folder_existed)


def check_directory(directory: Path, settings: Settings) -> bool:
    """Refuse a directory that holds something else, or a run that is not to be resumed; says if it exists."""
    try:
        found = {path.name for path in directory.iterdir()} - {LOCK_NAME}
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PlanError(f"{directory} cannot hold a run: {error.strerror}; choose another --out.") from error
    if FILE_NAME in found and not settings.resume:
        raise PlanError(f"{directory} holds a run already; pass --resume to go on with it, or another --out.")
    if found and FILE_NAME not in found:
        raise PlanError(f"{directory} is not empty and holds no run; choose another --out.")
    return True


def _fill(
    store: Store,
    facts: Mapping[str, Any],
    samples: Callable[[], Iterable[tuple[int, Sample]]],
    settings: Settings,
) -> None:
    count = store.add_numbered(samples())
    if count == 0 and settings.shard is not None:
        raise PlanError(f"Shard {settings.shard} has no sample, since clusters are not split; use fewer shards.")
    if count == 0:
        raise PlanError(f"The benchmark {facts['plan']['benchmark']} selected no sample; loosen its options.")
    if settings.shard is not None:
        facts = {**facts, "shard": str(settings.shard)}
    store.put(**facts)


def _check_identity(store: Store, wanted: str, directory: Path) -> None:
    found = store.get("identity")
    if found is not None and found != wanted:
        raise PlanError(
            f"{directory} holds a run of another plan (or of other data, weights or templates); choose another "
            "--out, or run the plan it was made with (`evenhand run show` prints it)."
        )


def _check_options(store: Store, options: Mapping[str, Mapping[str, Any]], directory: Path) -> None:
    """Refuse to go on under other defaults than the run began with; runs of older versions do not say theirs."""
    known: Mapping[str, Mapping[str, Any]] = store.get("options") or {}
    for arm, stored in known.items():
        for name, value in stored.items():
            if options[arm].get(name) != value:
                raise PlanError(
                    f"{directory} holds a run with {name}={value}, which a newer version has changed to "
                    f"{options[arm].get(name)}; choose another --out."
                )


def _check_shard(store: Store, settings: Settings, directory: Path) -> None:
    """Refuse to go on with another part of the plan than the run began with."""
    found, wanted = store.get("shard"), None if settings.shard is None else str(settings.shard)
    if store.get("identity") is not None and found != wanted:
        held = f"shard {found}" if found else "the whole plan"
        raise PlanError(
            f"{directory} holds {held}; {f'pass --shard {found}' if found else 'remove --shard'}, or choose "
            "another --out."
        )


def _remove(directory: Path, *, keep_folder: bool) -> None:
    """Remove a store that is still empty."""
    for file in directory.glob(f"{FILE_NAME}*"):
        file.unlink(missing_ok=True)
    (directory / LOCK_NAME).unlink(missing_ok=True)
    if not keep_folder:
        with contextlib.suppress(OSError):
            directory.rmdir()
