"""The text of a Python program → ``Program``."""

from __future__ import annotations

import re
import sys

from rankup.check.document import Document, Span
from rankup.check.facts.program.code import SyntaxMistake
from rankup.check.facts.program.imports import FindFile, ListFolder, read_project
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.walk import parse, read_module
from rankup.sites.site import Site

_LARGEST = 3_000_000  # characters: what is larger is data, not a program
#: Syntax of Python versions that may be newer than this one.
_NEWER = re.compile(r"^\s*(type\s+\w+.*=|(async\s+)?def\s+\w+\[|class\s+\w+\[)|\bt[\"']")
_MAGIC = re.compile(r"^\s*[%!?]|\?\s*$", re.M)


def no_file(path: str) -> Document | None:
    return None


def no_folder(path: str) -> tuple[str, ...] | None:
    return None


def read_program(
    document: Document,
    site: Site | None = None,
    find_file: FindFile = no_file,
    list_folder: ListFolder = no_folder,
) -> Program:
    """What ``document``, a Python program, does; local modules that it imports are looked up by ``find_file``, and
    those that it chooses when it runs by ``list_folder``.

    It never fails: a program with a syntax error has ``syntax_error`` set and no other facts.
    """
    program = Program(document, site)
    if len(document.text) > _LARGEST:
        return program
    try:
        tree = parse(document)
    except SyntaxError as error:
        program.syntax_error = _mistake(document, error)
        return program
    except (ValueError, RecursionError, MemoryError):  # NUL bytes, lone surrogates, generated nests
        return program
    program.project = read_project(read_module(document, tree), find_file, list_folder)
    return program


def _mistake(document: Document, error: SyntaxError) -> SyntaxMistake | None:
    """Where Python stops; None where it may be the reader's fault: newer syntax, a notebook's magic, a fragment."""
    line = min(max(error.lineno or 1, 1), len(document.starts)) - 1
    text = document.line(line)
    message = error.msg or "invalid syntax"
    if (
        not document.complete
        or _MAGIC.search(document.text)
        or "null byte" in message
        or "\r" in document.text
    ):
        return None
    if sys.version_info < (3, 14) and _NEWER.search(text):
        return None
    if sys.version_info < (3, 12) and "f-string" in message:
        return None
    if "too many" in message or "too deep" in message:
        return None
    start = document.starts[line]
    stripped = text.strip()
    if not stripped:  # the end of the text: the last line that says something
        before = [number for number in range(line) if document.line(number).strip()]
        if not before:
            return None
        line = before[-1]
        text = document.line(line)
        start, stripped = document.starts[line], text.strip()
    indent = len(text) - len(text.lstrip())
    return SyntaxMistake(Span(start + indent, start + indent + len(stripped)), message)
