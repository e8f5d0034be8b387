"""lm-evaluation-harness' own BBQ task beside the official scores, on the official files; needs `pip install lm_eval`.

A model that always answers by the stereotype, as BBQ's metadata mark it, has a bias of 100 in ambiguous contexts. The
harness derives the mark from the names of groups instead. This counts where the two differ, runs the harness' task on
that model, and writes its samples as `lm_eval --log_samples` does, so that `evenhand runs import` can score them.

    python bench/bench_lm_eval_bbq.py --data BBQ --out lm-eval
    evenhand runs import lm-eval/*/samples_bbq_local_*.jsonl --data BBQ
"""

import argparse
import gzip
import json
from collections import Counter
from pathlib import Path

import datasets
import lm_eval
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from evenhand.benchmarks.base import load_benchmark

BBQ = Path(lm_eval.__file__).parent / "tasks" / "bbq"


def rows(folder: Path, every: int) -> list[dict]:
    """The official rows, as the harness' copy of the data has them; every n-th."""
    found = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found += [json.loads(line) for line in file]
    kept = found[::every]
    for row in kept:  # features must be alike in all rows
        about = row["additional_metadata"]
        row["additional_metadata"] = {"stereotyped_groups": about["stereotyped_groups"]}
        row["question_index"] = str(row["question_index"])
    return kept


class Stereotyped(LM):
    """Chooses what BBQ's metadata mark as the answer by the stereotype; "Unknown" where they mark none."""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self.answers = answers

    def loglikelihood(self, requests):
        return [(-0.1 if each.args[1].strip() == self.answers[each.args[0]] else -2.0, False) for each in requests]

    def generate_until(self, requests):
        return [f" {self.answers[each.args[0]]}" for each in requests]

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    docs = rows(given.data, given.every)
    benchmark = load_benchmark("bbq", data=str(given.data))
    official = {item.id: item for category in benchmark.categories for item in benchmark.items(category)}
    items = [official[f"{doc['category']}-{doc['example_id']}"] for doc in docs]
    answers = {
        f"{item.context}\n\nQ: {item.question}\nA:": item.answers[item.target_loc]
        if item.target_loc is not None
        else "Unknown"
        for item in items
    }
    given.out.mkdir(parents=True, exist_ok=True)
    saved = given.out / "rows"
    datasets.DatasetDict({"test": datasets.Dataset.from_list(docs)}).save_to_disk(str(saved))
    (given.out / "local.py").write_text(
        f"import datasets\ndef load(**_):\n    return datasets.load_from_disk({str(saved.resolve())!r})\n"
    )
    task = f"include: {BBQ / 'bbq_multiple_choice.yaml'}\ntask: bbq_local\ncustom_dataset: !function local.load\n"
    (given.out / "bbq_local.yaml").write_text(task)

    tracker = EvaluationTracker(output_path=str(given.out))
    tracker.general_config_tracker.model_name_sanitized = "always__stereotyped"
    manager = TaskManager(include_path=str(given.out))
    found = simple_evaluate(Stereotyped(answers), tasks=["bbq_local"], task_manager=manager, bootstrap_iters=0)
    samples = found["samples"]["bbq_local"]
    wrong: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for sample in samples:
        doc = sample["doc"]
        item = official[f"{doc['category']}-{doc['example_id']}"]
        mark = [] if item.target_loc is None else [item.answers[item.target_loc]]
        total[item.category] += 1
        wrong[item.category] += sorted(doc["biased_answers"]) != mark
    print(f"lm_eval {lm_eval.__version__}: {len(samples):,} rows")
    print("rows whose answer by the stereotype is not the one that BBQ's metadata mark:")
    for category in sorted(total):
        print(f"  {category:20} {wrong[category]:6,} of {total[category]:6,}")
    print(f"  {'all':20} {wrong.total():6,} of {total.total():6,}")
    for name in ("amb_bias_score", "disamb_bias_score", "accuracy_amb", "accuracy_disamb"):
        print(f"{name}: {100 * found['results']['bbq_local'][f'{name},none']:.1f}")
    tracker.save_results_aggregated(results={**found, "samples": None}, samples=None)
    tracker.save_results_samples("bbq_local", samples)


main()
