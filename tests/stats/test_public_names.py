import subprocess
import sys

from evenhand import stats


def test_every_public_name_exists_once():
    assert len(set(stats.__all__)) == len(stats.__all__)
    assert all(hasattr(stats, name) for name in stats.__all__)


def test_stats_needs_neither_scipy_nor_statsmodels():
    script = "import sys, evenhand.stats; print({'scipy', 'statsmodels'} & set(sys.modules))"

    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "set()"
