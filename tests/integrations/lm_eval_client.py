"""Runs the task files by the harness itself, with a model that answers by rule; for an environment of its own."""

import json
import sys
from hashlib import blake2b
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager


class ByRule(LM):
    """Chooses a letter by the text of the question."""

    def _choice(self, context):
        return "ABC"[blake2b(context.encode(), digest_size=4).digest()[0] % 7 % 3]

    def loglikelihood(self, requests):
        pairs = [each.args for each in requests]
        return [(-0.1 if letter.strip() == self._choice(context) else -2.0, False) for context, letter in pairs]

    def generate_until(self, requests):
        return [f" {self._choice(each.args[0])}. That is my answer." for each in requests]

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError


def choice_in(sample):
    response = sample["resps"][0][0] if sample["resps"] else ""
    if isinstance(response, str):
        return "ABC".index(response.strip()[0])
    likelihoods = [each[0][0] for each in sample["resps"]]
    return likelihoods.index(max(likelihoods))


def main(tasks, target):
    names = ["evenhand_bbq_builtin", "evenhand_bbq_builtin_generate"]
    found = simple_evaluate(ByRule(), tasks=names, limit=220, task_manager=TaskManager(include_path=tasks))
    shown = []
    for name in names:
        results = {key.partition(",")[0]: value for key, value in found["results"][name].items() if "stderr" not in key}
        samples = [{"doc": each["doc"], "choice": choice_in(each)} for each in found["samples"][name]]
        shown.append({"results": results, "samples": samples})
    Path(target).write_text(json.dumps(shown))


main(*sys.argv[1:])
