"""The text of a Python program → ``Program``."""

from __future__ import annotations

from collections.abc import Callable

from rankup.check.document import Document
from rankup.check.facts.program import Program
from rankup.sites.site import Site

FindFile = Callable[
    [str], Document | None
]  # a path relative to the program's folder → its text, if it is there


def no_file(path: str) -> Document | None:
    return None


def read_program(document: Document, site: Site | None = None, find_file: FindFile = no_file) -> Program:
    """What ``document``, a Python program, does; local modules that it imports are looked up by ``find_file``.

    It never fails: a program with a syntax error has ``syntax_error`` set and no other facts.
    """
    return Program(document, site)
