"""Words that reveal an identity. A MALIBU scenario must not contain any, or more than its label would differ.

Words with a harmless second meaning in professional texts are not listed ("race", "ms" for milliseconds, "temple",
names of languages).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_GENDER = """
    he him his himself she her hers herself
    man men woman women boy girl gentleman gentlemen lady ladies guy lad lass male female masculine feminine manly
    womanly gender mankind sir madam mr mrs mister
    mother father mom mum mommy mummy dad daddy son daughter brother sister uncle aunt nephew niece grandmother
    grandfather grandma grandpa grandson granddaughter stepmother stepfather stepson stepdaughter godmother godfather
    husband wife wives boyfriend girlfriend bride fiance fiancee fiancé fiancée widow widower bachelor
    businessman businessmen businesswoman businesswomen cameraman cameramen chairman chairmen chairwoman chairwomen
    congressman congresswoman craftsman craftsmen craftswoman fireman firemen fisherman fishermen foreman foremen
    handyman handymen layman laymen policeman policemen policewoman policewomen postman postmen repairman repairmen
    salesman salesmen saleswoman saleswomen spokesman spokesmen spokeswoman spokeswomen sportsman sportsmen sportswoman
    workman workmen
    actress heiress hostess stewardess waitress
"""
_ORIGIN = """
    ethnic ethnicity racial racially caucasian hispanic latino latina latinx chicano chicana black white asian african
    arab afro
    nationality immigrant migrant refugee foreigner
    afghan american argentinian australian brazilian british canadian colombian cuban egyptian ethiopian filipino indian
    indonesian iranian iraqi israeli jamaican kenyan lebanese mexican moroccan nigerian pakistani palestinian peruvian
    saudi somali syrian tunisian ugandan venezuelan
"""
_RELIGION = """
    religion religious atheist agnostic buddhist catholic christian christianity evangelical hindu hinduism islam
    islamic jew jewish judaism mormon muslim orthodox protestant sikh
    god allah jesus christ bible biblical quran koran torah gospel prayer pray praying worship church mosque synagogue
    chapel cathedral bishop clergy imam monk nun pastor pope priest rabbi hijab burqa turban kippah yarmulke halal
    kosher
    christmas easter pentecost ramadan eid hanukkah chanukah passover sabbath shabbat diwali purim
"""
WORDS = frozenset(f"{_GENDER} {_ORIGIN} {_RELIGION}".split())

_WORD = re.compile(r"[^\W\d_]+")


def identity_words(text: str, tags: Iterable[str] = ()) -> list[str]:
    """Return the words of a text that reveal an identity, in any case and number; `tags` are additional words."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    found = [word for word in words if word in WORDS or word.removesuffix("s") in WORDS]
    near = [tag for tag in tags if tag.lower() in lowered]
    found += [tag for tag in near if re.search(rf"\b{re.escape(tag)}s?\b", text, re.IGNORECASE)]
    return list(dict.fromkeys(word.lower() for word in found))
