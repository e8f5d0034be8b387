"""The sections on judges and panels of judges: findings of the audit, discussion, scores and coverage."""

from __future__ import annotations

from evenhand.show.sections.base import Section, add_section
from evenhand.show.sections.panels.discussion import discussion
from evenhand.show.sections.panels.judges import judges
from evenhand.show.sections.panels.scores import coverage, scores
from evenhand.show.sections.panels.tables import audit_sentences, audit_tables

add_section(Section("judges", "Judges", judges, tables=audit_tables, sentences=audit_sentences))
add_section(Section("discussion", "Discussion", discussion))
add_section(Section("scores", "Scores", scores))
add_section(Section("coverage", "Coverage", coverage))
