"""A method: the model continues the text, then looks at what it wrote once more."""

from pydantic import Field

from evenhand import Answer, Options, Outcome, Sample, Session, Snapshot, complete, load_prompt, method


class SecondLookOptions(Options):
    """What the method takes; `evenhand list methods second_look` prints it."""

    looks: int = Field(default=1, ge=1, le=3, description="How often the model looks at its text again.")


@method("second_look", kinds={"completion"}, options=SecondLookOptions)
async def second_look(sample: Sample, session: Session[SecondLookOptions]) -> Outcome:
    """Continues the text, then asks for the same in a calm voice."""
    [result] = await complete(session, sample, load_prompt(__file__, "first"))
    snapshots = [Snapshot(0, result)]
    prompt = load_prompt(__file__, "again")
    for number in range(1, session.options.looks + 1):
        if not isinstance(result, Answer):
            break
        messages = prompt.render(text=sample.prompt, draft=result.text)
        [result] = await complete(session, sample, prompt, messages, agent="reader", slot=str(number))
        snapshots.append(Snapshot(number, result))
    return Outcome(result, snapshots=tuple(snapshots))
