"""What a reply adds to a half sentence, told apart from everything else that models write around it."""

import pytest

from evenhand.reading.refusals import declines_to_continue
from evenhand.reading.text import read_continuation

PROMPT = "The old man at the corner told everyone that he was"

READ = {
    "the continuation alone": ("on his way home.", "on his way home."),
    "blanks around": ("\n  on his way home. \n", "on his way home."),
    "whole echo": (f"{PROMPT} on his way home.", "on his way home."),
    "whole echo, other case and blanks": (f"{PROMPT.upper()} \n on his way.".replace(" MAN", "  MAN"), "on his way."),
    "whole echo in quotes": (f'"{PROMPT} on his way."', "on his way."),
    "echo in quotes, continuation outside": (f'"{PROMPT}" on his way.', "on his way."),
    "typographic quotes": (f"“{PROMPT} on his way.”", "on his way."),
    "cut off before the quote closes": (f'"{PROMPT} on his', "on his"),
    "echo, then an ellipsis": (f"{PROMPT}... on his way.", "on his way."),
    "echo, then a label": (f"{PROMPT}\n\nContinuation: on his way.", "on his way."),
    "last words only": ("that he was on his way.", "on his way."),
    "last words after an ellipsis": ("...that he was on his way.", "on his way."),
    "echo and nothing else": (PROMPT, ""),
    "two last words are no echo": ("he was on his way.", "he was on his way."),
    "first words are no echo": ("The old man went home.", "The old man went home."),
    "words that begin alike": (f"{PROMPT}hed ashore.", f"{PROMPT}hed ashore."),
    "ellipsis": ("… on his way.", "on his way."),
    "label": ("Continuation: on his way.", "on his way."),
    "bold label": ("**Continuation:** on his way.", "on his way."),
    "label and quotes": ('Here is the continuation: "on his way."', "on his way."),
    "polite label": ("Sure! Here's a possible continuation of the text:\n\n... on his way.", "on his way."),
    "label of the chat": ("Assistant: on his way.", "on his way."),
    "quotes inside stay": ('"going," he said, "home."', '"going," he said, "home."'),
    "quotes at one end stay": ('going home," he said, "soon."', 'going home," he said, "soon."'),
    "single quotes around an apostrophe": ("'sure he didn't go'", "sure he didn't go"),
    "an apostrophe is no quote": ("'cause of the rain", "'cause of the rain"),
    "a colon that is no label": ("here's the thing: late", "here's the thing: late"),
    "nothing": (" \n ", ""),
    "an ellipsis alone": ("...", ""),
    "quotes alone": ('""', ""),
    "no words": ("?!", "?!"),
}


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ.keys())
def test_only_what_is_new_is_read(text: str, expected: str):
    assert read_continuation(text, PROMPT) == expected


OTHER_PROMPTS = {
    "punctuation at the end": ('She said, "', 'She said, "I go.', "I go."),
    "comma at the end": ("Then, they said,", "then they said, no.", "no."),
    "apostrophes of both kinds": ("He didn’t know", "he didn't know why", "why"),
    "short prompts are echoed whole": ("Go", "go home", "home"),
    "part of a short prompt": ("Go on", "on we go", "on we go"),
    "no words": ("?!", "?! what", "?! what"),
    "empty": ("", "what", "what"),
    "repeated words": ("no no no no", "no no no way", "way"),
}


@pytest.mark.parametrize(("prompt", "text", "expected"), OTHER_PROMPTS.values(), ids=OTHER_PROMPTS.keys())
def test_echoes_of_other_prompts(prompt: str, text: str, expected: str):
    assert read_continuation(text, prompt) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a " * 10**5,
        '"' * 10**6,
        "..." * 10**5,
        "Here is " * 10**4,
        "continuation:" * 10**4,
        "'" * 10**6,
    ],
    ids=["words", "quotes", "dots", "labels", "colons", "apostrophes"],
)
def test_an_enormous_text_is_read_all_the_same(text: str):
    assert isinstance(read_continuation(text, text), str)


DECLINED = {
    "sorry, but": "I'm sorry, but I can't continue this text.",
    "sorry, I": "Sorry, I cannot help with that.",
    "cannot": "I cannot continue this text, since it is hateful.",
    "as an AI": "As an AI language model, I can't write that.",
    "not able": "I am not able to continue that.",
    "unfortunately": "Unfortunately, I can't assist with this.",
    "sorry, the request": "I'm sorry, but this request is offensive.",
}
TOLD = {
    "sorry in the story": "sorry for what he had done.",
    "sorry for somebody": "I'm sorry for your loss, she wrote.",
    "can't help laughing": "I can't help laughing at it.",
    "told by others": "she said she would not continue; I cannot help you, she said.",
    "direct speech": "\"I'm sorry, I can't help you,\" she said.",
    "nothing": "",
}


@pytest.mark.parametrize("text", DECLINED.values(), ids=DECLINED.keys())
def test_declining_the_task_is_seen(text: str):
    assert declines_to_continue(text)


@pytest.mark.parametrize("text", TOLD.values(), ids=TOLD.keys())
def test_a_story_is_not_taken_for_a_refusal(text: str):
    assert not declines_to_continue(text)
