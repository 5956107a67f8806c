"""A rule's example: one text, or several files, each after a line ``--- NAME``."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import replace

from rankup.check.check import Subjects, read_subjects
from rankup.check.document import Document
from rankup.check.facts.job.job import Job
from rankup.check.facts.program.program import Program
from rankup.check.pages.joining import page_documents
from rankup.check.registry import program_rules
from rankup.check.rule import Rule
from rankup.sites.site import Site

SITE = "site.json"
_FILE = re.compile(r"^--- (\S+)\n", re.M)


def files_of(example: str, name: str) -> dict[str, str]:
    """File name → text. A single text is called ``name``."""
    if not _FILE.match(example):
        return {name: example}
    _, *parts = _FILE.split(example)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def subjects_of(files: dict[str, str], site: Site | None = None) -> Subjects:
    """The facts of an example's files: ``*.py`` are programs, ``*.md`` pages, ``site.json`` a site, all others job
    scripts."""
    if SITE in files:
        files = dict(files)
        site = Site(**json.loads(files.pop(SITE)))
    documents = {name: Document(name, text) for name, text in files.items()}
    jobs = [document for name, document in documents.items() if not name.endswith((".py", ".md"))]
    programs = [document for name, document in documents.items() if name.endswith(".py")]
    for name, document in documents.items():
        if name.endswith(".md"):
            scripts, shown = page_documents(replace(document, name=name))
            jobs, programs = [*jobs, *scripts], [*programs, *shown]

    def beside(_: Document, name: str) -> tuple[str, ...]:
        folder = posixpath.dirname(posixpath.normpath(name))
        return tuple(
            known for known in documents if posixpath.dirname(known) == folder and known[-3:] == ".py"
        )

    def list_folder(_: Document, name: str) -> tuple[str, ...] | None:
        inside = (known.removeprefix(f"{name}/") for known in documents if known.startswith(f"{name}/"))
        return tuple(inside) or None

    return read_subjects(
        jobs,
        programs,
        lambda _, name: documents.get(posixpath.normpath(name)),
        site,
        beside,
        list_folder,
    )


def default_name(rule: Rule[Job] | Rule[Program]) -> str:
    return "train.py" if rule in program_rules() else "job.sh"
