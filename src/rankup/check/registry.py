"""All rules: each module of ``rules/job`` and ``rules/program`` holds one, called ``RULE``."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from rankup.check.facts.job.job import Job
from rankup.check.facts.program.program import Program
from rankup.check.rule import Rule
from rankup.check.rules import job, program
from rankup.core.nearest import did_you_mean


@cache
def job_rules() -> tuple[Rule[Job], ...]:
    return _rules_of(job)


@cache
def program_rules() -> tuple[Rule[Program], ...]:
    return _rules_of(program)


def all_rules() -> tuple[Rule[Any], ...]:
    """Every rule, by code."""
    return tuple(sorted((*job_rules(), *program_rules()), key=lambda rule: rule.code))


def rule_names() -> list[str]:
    """The words that name a rule: each code and each name."""
    return [word for rule in all_rules() for word in (rule.code, rule.name)]


def nearest_rule(word: str) -> str:
    """``"; did you mean 'RK101'?"`` for a word that names no rule; "" if none is near."""
    known = rule_names()
    return did_you_mean(word.upper(), known) or did_you_mean(word, known)


def _rules_of(package: Any) -> tuple[Rule[Any], ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(import_module(f"{package.__name__}.{name}").RULE for name in names)
