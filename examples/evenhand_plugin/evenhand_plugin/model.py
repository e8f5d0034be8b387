"""A model: shouts, unless it is asked to be calm."""

from collections.abc import Sequence

from evenhand import PROVIDERS, Completion, Generation, Message, Model, ModelOptions, Params, Usage


@PROVIDERS.register("parrot")
class Parrot(Model):
    """The spec `parrot/NAME`: greets as NAME would, in capitals; for trying things out."""

    free = True

    def __init__(self, name: str, options: ModelOptions) -> None:
        self.spec = f"parrot/{name}"

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        calm = "calm" in messages[-1].content.lower()
        text = "that it was good to see them." if calm else "HELLO, HOW NICE TO SEE YOU!"
        return Generation((Completion(text),) * params.n, self.spec, Usage(calls=1), 0.0)

    def fingerprint(self) -> dict[str, str]:
        return {"spec": self.spec}
