"""Prints an HTML file as PDF with a browser of the Chromium family, without a window."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from evenhand.core.errors import UsageError
from evenhand.core.files import scratch

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge", "microsoft-edge")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
_SECONDS = 180


def find_browser(named: str | None = None) -> str | None:
    """Return the browser called `named`, or one that is installed."""
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
