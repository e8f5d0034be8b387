"""An evidence pack from stored runs: one folder with a page, a PDF, JSON, plans, a model-card section and an export.

No model is called and nothing is filled in by hand, so that a pack can be made again from the same runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import yaml

from evenhand.core.errors import UsageError
from evenhand.core.files import scratch, sha256
from evenhand.core.version import own_version
from evenhand.evidence.disclosed import MANIFEST, Verified, committed_parts, disclose, seal, verify
from evenhand.evidence.exports import documents, model_card
from evenhand.evidence.facts import LIMITS, RunFacts, Standard, as_values, mappings, read_run
from evenhand.evidence.page import evidence_page
from evenhand.evidence.signed import COMMITMENTS, ENVELOPE, commitment_faults, read_commitment, sign
from evenhand.runs.own import FOLDER as OWN_FILES
from evenhand.runs.own import copy_kept
from evenhand.runs.stored import StoredRun

__all__ = ["Pack", "Verified", "card_section", "read_pack", "verify", "write_pack"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge", "microsoft-edge")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Pack:
    """What a pack says."""

    title: str
    made: str
    """When, as ISO 8601 in UTC."""
    runs: Sequence[RunFacts]
    limits: Sequence[str]
    standards: Sequence[Standard]


def read_pack(folders: Sequence[Path], *, title: str | None = None, skip_damaged: bool = False) -> Pack:
    """Read stored runs; the same folder twice, or no run at all, is refused."""
    if not folders:
        raise UsageError("Name one run or more: evenhand evidence pack runs/first.")
    resolved = [folder.resolve() for folder in folders]
    if len({*resolved}) < len(resolved):
        raise UsageError("A run is named twice; name each once.")
    runs = [read_run(folder, skip_damaged=skip_damaged) for folder in folders]
    names = [run.name for run in runs]
    if len({*names}) < len(names):
        raise UsageError(
            "Two runs have folders of the same name; rename one of them, since plans are named after them."
        )
    own = [sentence for run in runs for sentence in (*run.study.caveats, *run.study.warnings)]
    limits = [*LIMITS, *(f"{each.rstrip('.')}." for each in dict.fromkeys(own))]
    models = dict.fromkeys(spec for run in runs for arm in run.arms for spec in arm.models.values())
    parts = {"results", "data", "methods", "limits", "repeat", "card"}
    parts |= {"groups"} if any(run.group_metric for run in runs) else set[str]()
    parts |= {"rates"} if any(run.rates for run in runs) else set[str]()
    return Pack(
        title or f"Evidence on {', '.join(models)}",
        datetime.now(UTC).isoformat(timespec="seconds"),
        runs,
        limits,
        mappings(parts),
    )


def write_pack(
    pack: Pack,
    folder: Path,
    *,
    pdf: bool = True,
    browser: str | None = None,
    commitments: Sequence[Path] = (),
    key: Path | None = None,
) -> tuple[list[Path], str, str]:
    """Write all files of the pack, with the commitments from before the runs, and signed if there is a key.

    Return them, the hash by which the pack is known, and why there is no PDF (empty if there is one or none is wanted).
    """
    found = find_browser(browser) if pdf else None
    folder.mkdir(parents=True, exist_ok=True)
    _remove_earlier(folder)
    html = folder / "evidence.html"
    evidence_page(pack).write(html)
    texts = {
        "evidence.json": orjson.dumps(as_json(pack), option=orjson.OPT_INDENT_2, default=str),
        "model-card.md": model_card(pack).encode(),
    }
    texts |= {
        f"plans/{run.name}.yaml": yaml.safe_dump(dict(run.plan), sort_keys=False, allow_unicode=True).encode()
        for run in pack.runs
    }
    texts |= {
        f"every_eval_ever/{name}": orjson.dumps(document, option=orjson.OPT_INDENT_2)
        for name, document in documents(pack).items()
    }
    written = [html]
    for name, content in texts.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        written.append(target)
    for run in pack.runs:
        written += _disclosed(run, folder)
    if found is not None:
        print_pdf(found, html, folder / "evidence.pdf")
        written.append(folder / "evidence.pdf")
    missing = "No PDF: there is no Chromium, Chrome or Edge here; print evidence.html from any browser."
    written += _committed(commitments, [run.name for run in pack.runs], folder)
    known_by = seal(folder, written)
    written.append(folder / MANIFEST)
    if key is not None:
        sign(folder, {path.relative_to(folder).as_posix(): sha256(path) for path in written}, key)
        written.append(folder / ENVELOPE)
    return written, known_by, missing if pdf and found is None else ""


def _committed(commitments: Sequence[Path], runs: Sequence[str], folder: Path) -> list[Path]:
    """Copy each commitment, under the name of the run that it fits; one that fits none is refused."""
    copies: list[Path] = []
    for path in commitments:
        stated = read_commitment(path)
        faults = {name: commitment_faults(stated, *committed_parts(folder, name)) for name in runs}
        best = min(runs, key=lambda name: len(faults[name]))
        if faults[best]:
            raise UsageError(f"{path} does not commit to {best}: {'; '.join(faults[best])}.")
        copies.append(folder / COMMITMENTS / f"{best}.json")
        copies[-1].parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copies[-1])
    return copies


def _disclosed(run: RunFacts, folder: Path) -> list[Path]:
    """Write the grades of a run, and the user's own files that its plan names."""
    stored = StoredRun.open(Path(run.folder), skip_damaged=True)
    with closing(stored.store):
        disclose(stored, run.name, folder)
        own = copy_kept(stored.store.get("kept") or {}, stored.directory, folder)
    grades = [folder / "grades" / f"{run.name}{ending}" for ending in (".json", ".jsonl")]
    return [*grades, *own]


def _remove_earlier(folder: Path) -> None:
    """Remove the files of a pack that was made here before and may be about other runs."""
    if (folder / "evidence.json").is_file():
        for pattern in (
            *("plans/*.yaml", "grades/*.json*", "every_eval_ever/*.json", "evidence.pdf"),
            *(f"{COMMITMENTS}/*.json", ENVELOPE),
        ):
            for path in folder.glob(pattern):
                path.unlink()
        shutil.rmtree(folder / OWN_FILES, ignore_errors=True)


def card_section(pack: Pack) -> str:
    return model_card(pack)


def as_json(pack: Pack) -> dict[str, Any]:
    return {
        "title": pack.title,
        "made": pack.made,
        "evenhand": own_version(),
        "runs": [as_values(run) for run in pack.runs],
        "limits": list(pack.limits),
        "standards": [
            {
                "name": each.name,
                "source": each.source,
                "items": [{**asdict(item), "evidence": item.evidence} for item in each.items],
            }
            for each in pack.standards
        ],
    }


# --- PDF ---


def find_browser(named: str | None = None) -> str | None:
    if named is not None:
        found = shutil.which(named)
        if found is None:
            raise UsageError(f"There is no browser {named}; name Chromium, Chrome or Edge, or use --no-pdf.")
        return found
    return next(filter(None, map(shutil.which, (*_NAMES, _MAC))), None)


def print_pdf(browser: str, page: Path, target: Path) -> None:
    """Print the page; raise UsageError if the browser does not."""
    with scratch() as profile:
        arguments = [
            "--headless",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--user-data-dir={profile}",
            f"--print-to-pdf={target.resolve()}",
            page.resolve().as_uri(),
        ]
        # A browser refuses to run as root with its sandbox; the page is our own and loads nothing.
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            arguments.insert(0, "--no-sandbox")
        try:
            command = [browser, *arguments]  # no shell, and all arguments are our own
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{browser} did not print the PDF ({error}); use --no-pdf and print the page.") from error
    if not target.is_file():
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
        raise UsageError(f"{browser} did not print the PDF ({last}); use --no-pdf and print the page yourself.")
