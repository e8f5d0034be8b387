"""Which samples a report shows: those of a small number are the first of a larger one."""

from pathlib import Path

import evenhand
from evenhand.studies.samples import shown_samples


def test_a_few_samples_are_the_first_of_many_however_many_there_are(tmp_path: Path):
    evenhand.audit("fake/A", benchmark="bbq_builtin", limit=110, out=tmp_path / "run")

    everything = [sample.id for sample in shown_samples([tmp_path / "run"], 1000)]

    assert len(everything) == 110
    assert [sample.id for sample in shown_samples([tmp_path / "run"], 5)] == everything[:5]
    assert list(shown_samples([tmp_path / "run"], 0)) == []
