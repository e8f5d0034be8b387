"""The checks before a release: versions that agree, and packages that hold what they should."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def release_check() -> Any:
    spec = importlib.util.spec_from_file_location("release_check", ROOT / "tools" / "release_check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_places_name_the_same_version(release_check: Any):
    assert release_check.agreed_version(release_check.versions(ROOT))


def test_another_tag_is_refused(release_check: Any):
    with pytest.raises(SystemExit, match=r"The versions differ: .*the tag says 9\.9\.9"):
        release_check.agreed_version(release_check.versions(ROOT, "v9.9.9"))


def test_the_newest_release_of_the_changelog_counts(release_check: Any, tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.1.0"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.1.0\n")
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [1.0.0] - 2026-01-01\n")

    assert release_check.versions(tmp_path) == {
        "pyproject.toml": "1.1.0",
        "CITATION.cff": "1.1.0",
        "CHANGELOG.md": "1.0.0",
    }


def test_a_wheel_holds_the_package_with_its_data(release_check: Any):
    package = release_check.package_files(ROOT / "src")

    assert {"evenhand/py.typed", "evenhand/scorers/artefacts/builtin.npz"} <= package
    assert {Path(name).suffix for name in package} >= {".py", ".md", ".yaml", ".npz", ".css", ".js"}
    release_check.check_wheel({*package, "evenhand-1.0.0.dist-info/METADATA"}, package)


@pytest.mark.parametrize(
    ("held", "fault"),
    [
        ({"evenhand/a.py"}, r"lacks evenhand/b\.md"),
        ({"evenhand/a.py", "evenhand/b.md", "tests/test_a.py"}, r"not part of the package: tests/test_a\.py"),
    ],
)
def test_a_wheel_with_too_little_or_too_much_is_refused(release_check: Any, held: set[str], fault: str):
    with pytest.raises(SystemExit, match=fault):
        release_check.check_wheel(held, {"evenhand/a.py", "evenhand/b.md"})


def test_an_sdist_with_stray_files_is_refused(release_check: Any):
    release_check.check_sdist(["evenhand-1.0.0/PKG-INFO", "evenhand-1.0.0/README.md"], ["README.md"])
    with pytest.raises(SystemExit, match=r"notes\.txt"):
        release_check.check_sdist(["evenhand-1.0.0/notes.txt"], ["README.md"])
