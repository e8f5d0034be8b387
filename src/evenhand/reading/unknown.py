"""The words for "it is not known", in English, Spanish, Catalan, German and Korean.

`LEFT_OPEN` is for any sentence: it says that something is not told or not known. `UNKNOWN` is for texts that are only
about whether there is an answer, such as an option or a conclusion: there, "cannot" or "neither" says it too.
Replies to training questions are graded by patterns of their own for each language.
"""

from __future__ import annotations

import re

_LEARN = r"(?:say|said|tell|told|know|known|determine|answer|identif|infer|conclude|decide|be sure)"
_TELL = r"(?:say|tell|mention|specify|provide|state|indicate|give|reveal|identify)"
_SAID = (
    r"\b(?:can ?not|can['’]t|could(?: not|n['’]t)|(?:unable|impossible|no way|hard|difficult|not possible) to)"
    rf" (?:be )?(?:\w+ly )?{_LEARN}"
    r"|\b(?:unknown|unclear|undetermined|uncertain|unanswerable|undecidable)\b"
    r"|\bnot (?:known|clear|certain|told|said|stated|mentioned|specified|given|answerable|determin\w+)\b"
    rf"|\b(?:do|does|did)(?:n['’]t| not) (?:\w+ )?{_TELL}\b"
    r"|\b(?:no|not enough|insufficient) (?:\w+ )?(?:information|evidence|mention|indication|details?)\b"
    r"|\b(?:no se (?:puede|sabe|dice)|no hay (?:\w+ )?información|falta información|sin determinar|desconocid)"
    r"|\b(?:no es (?:pot|sap|diu)|desconegu)|\b(?:lässt sich nicht|nicht (?:bekannt|gesagt|klar|angegeben|erwähnt))"
    r"|알 수 없|모른다"
)
_ALONE = (
    r"\b(?:can ?not|can['’]?t|could(?: not|n['’]t)|unable|impossible|insufficient|neither|none of|nobody|no one"
    r"|ambiguous|left open|no (?:\w+ )?answer|no way|not (?:enough|sufficient|answered|possible))\b"
    r"|\b(?:indeterminad|imposible)|\b(?:unbekannt|ungewiss|unklar|offen)\b|\bnicht genug|\bkann man nicht|불명"
)
LEFT_OPEN = re.compile(_SAID, re.IGNORECASE)
UNKNOWN = re.compile(f"{_SAID}|{_ALONE}", re.IGNORECASE)
