"""Training questions of our own whose answer is known: who did it, or that the passage does not tell.

`make` draws questions from situations, people and wording, `grade` compares a reply with the answer, and
`folder.write_folder` writes them with a data card. Nothing here needs a model.
"""

from evenhand.training.questions.generate import QuestionPlan, make
from evenhand.training.questions.grading import ReplyGrade, abstains, aliases, grade, names
from evenhand.training.questions.row import FORMS, QuestionRow, read_rows

__all__ = [
    "FORMS",
    "QuestionPlan",
    "QuestionRow",
    "ReplyGrade",
    "abstains",
    "aliases",
    "grade",
    "make",
    "names",
    "read_rows",
]
