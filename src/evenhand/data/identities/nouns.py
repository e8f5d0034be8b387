"""Nouns that name a person, and words that may stand before them."""

from __future__ import annotations

_SINGULAR = """
person individual adult teenager teen child kid baby student pupil graduate freshman professor teacher tutor lecturer
principal researcher scientist engineer developer programmer technician designer architect analyst consultant
accountant auditor banker economist lawyer attorney judge paralegal doctor physician surgeon nurse dentist pharmacist
therapist psychologist counselor veterinarian paramedic midwife caregiver nanny babysitter housekeeper cleaner janitor
plumber electrician carpenter mechanic welder painter builder farmer gardener driver courier pilot sailor soldier
veteran officer detective firefighter guard clerk cashier salesperson shopkeeper retailer manager supervisor boss
executive director ceo founder entrepreneur owner employee employer worker colleague coworker co-worker intern
apprentice trainee freelancer contractor recruiter candidate applicant interviewer secretary assistant receptionist
librarian journalist reporter writer author poet editor artist musician singer dancer actor actress photographer
filmmaker athlete player runner swimmer footballer chef baker waiter waitress bartender barista tenant landlord neighbor
neighbour roommate flatmate homeowner customer client shopper buyer seller borrower passenger traveler traveller tourist
visitor guest immigrant refugee citizen voter politician mayor senator activist volunteer pensioner retiree defendant
suspect witness victim offender prisoner patient friend stranger partner spouse parent mother father mom dad grandparent
grandmother grandfather wife husband girlfriend boyfriend daughter son sister brother sibling aunt uncle niece nephew
cousin relative woman man girl boy lady gentleman teammate classmate mentor leader member speaker user
"""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IRREGULAR = {"person": "people", "child": "children", "woman": "women", "man": "men", "wife": "wives"}


def _plural(noun: str) -> str:
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if noun.endswith("man"):
        return f"{noun[:-3]}men"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


_NOUNS = _SINGULAR.split()
PERSONS = frozenset([*_NOUNS, *map(_plural, _NOUNS)])
"""Nouns in singular and plural."""

NOT_PERSONS_BEFORE = words(
    """
    loan loans service services support portal card discount handbook room center centre lounge list base account
    satisfaction experience interface union council park seat license licence
    """
)
"""After these, "student" or "customer" is part of a thing: "student loan"."""

COMPOUNDS = words(
    """
    software data computer network security cloud web mobile hardware systems civil electrical mechanical school
    high-school college university kindergarten elementary primary secondary graduate undergraduate medical nursing
    law business sales marketing product project program office store shop bank loan insurance account hospital
    police fire truck bus taxi delivery train airline factory warehouse construction farm social care health
    customer call service job tax real-estate estate team night shift research exchange transfer foreign basketball
    football tennis soccer chess first-year second-year third-year fourth-year final-year
    """
)
"""Words that form one noun with the next: an adjective goes before them."""

ADJECTIVES = words(
    """
    young old elderly new good bad great best better worse talented experienced inexperienced skilled qualified
    hard-working hardworking ambitious friendly kind nice polite rude quiet shy loud happy sad angry lonely anxious
    worried nervous confident tired busy retired unemployed recent former current future local single married
    divorced pregnant close dear favorite favourite famous successful typical average ordinary random certain small
    little tall big rich poor sick ill injured honest smart clever brilliant creative dedicated difficult strict
    demanding middle-aged other same next last only fellow potential prospective
    """
)
"""Adjectives that stand before the inserted one."""
