"""Documents → what the rules find in them. Each job script is joined with the programs that it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rankup.check.document import Document, Place, Span
from rankup.check.facts.job.job import Job, Launch, NotFollowed
from rankup.check.facts.job.launches import why_not_found
from rankup.check.facts.job.reader import read_job
from rankup.check.facts.job.source import as_written
from rankup.check.facts.program.imports import absolute
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.reader import read_program
from rankup.check.registry import job_rules, program_rules
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.sites.site import Site

# A document, and a path that it names (relative to its folder, or the end of an absolute one) → the text of that
# program or script, if it is there.
FindFile = Callable[[Document, str], Document | None]
# The same → the Python files that are in its place, if it is not there.
ListBeside = Callable[[Document, str], tuple[str, ...]]
# A document, and a folder that it names → what is in it; None if it is not there.
ListFolder = Callable[[Document, str], tuple[str, ...] | None]


@dataclass(frozen=True)
class Diagnostic:
    """A match with its rule: what is printed."""

    rule: Rule[Any]
    match: Match

    @property
    def place(self) -> Place:
        return self.match.document.place(self.match.span)

    @property
    def finding(self) -> Finding:
        """The same, for the engine that all findings share."""
        match = self.match
        return Finding(
            self.rule.code,
            match.severity or Severity.WARNING,
            match.message.rstrip("."),
            place=str(self.place),
            why=match.why or "",
            fix=match.fix or "",
            confidence=match.confidence or Confidence.LIKELY,
        )


@dataclass
class Subjects:
    """What the rules look at."""

    jobs: list[Job]
    programs: list[Program]


def read_subjects(
    jobs: Iterable[Document],
    programs: Iterable[Document],
    find_file: FindFile,
    site: Site | None = None,
    list_beside: ListBeside = lambda document, name: (),
    list_folder: ListFolder = lambda document, name: None,
) -> Subjects:
    """The facts of ``jobs`` and ``programs``, and of every program that a job starts and ``find_file`` finds."""
    read: dict[tuple[str, tuple[int, ...]], Program] = {}

    def program_of(document: Document) -> Program:
        key = document.path, document.lines[:1]
        if key not in read:
            read[key] = read_program(
                document, site, partial(find_file, document), partial(list_folder, document)
            )
        return read[key]

    waiting: list[tuple[Document, Job | None]] = [(document, None) for document in jobs]
    all_jobs = []
    for document, submitter in waiting:
        job = read_job(document, site, partial(find_file, document))
        job.submitter = submitter
        all_jobs.append(job)
        waiting += [(inner, job) for inner in job.submits]
    read_jobs = _without_helpers(all_jobs)
    for document in programs:
        program_of(document)
    for job in read_jobs:
        job.list_folder = partial(list_folder, job.document)
        for launch in job.launches:
            found = (find_file(job.document, path) for path in launch.paths)
            started = next((program for program in found if program is not None), None)
            if started is not None:
                launch.program = program_of(started)
                launch.program.starts.append(launch.start)
                continue
            if launch.paths and not launch.module and not launch.script.startswith("/"):
                launch.beside = list_beside(job.document, launch.script)
            job.not_followed += _missing(job, launch)
        job.not_followed = [_as_written(job, one) for one in job.not_followed]
    return Subjects(read_jobs, list(read.values()))


def _without_helpers(jobs: list[Job]) -> list[Job]:
    """``jobs`` without the scripts that others of them run: those are read where they run."""
    run = {one.path for job in jobs for one in job.document.helpers if one.path != job.document.path}
    return [job for job in jobs if job.scheduler or job.document.path not in run]


def _missing(job: Job, launch: Launch) -> Iterator[NotFollowed]:
    """What a launch starts, if that should have been read."""
    if launch.command.in_output:
        return
    if launch.module and launch.paths:
        yield NotFollowed(launch.module, launch.span, f"not found at {launch.paths[0]}")
    elif launch.target is not None:
        name, why = why_not_found(launch.target, launch.script)
        yield NotFollowed(name, launch.span, why)


def _as_written(job: Job, one: NotFollowed) -> NotFollowed:
    """The same, with a word to fill in as the script has it."""
    name, word = as_written(one.name, job.document.text)
    why = "it is a placeholder" if name == word else f"because of the placeholder {word}"
    return replace(one, name=name, reason=why) if word else one


def missing_parts(program: Program) -> Iterator[NotFollowed]:
    """The modules that a program imports as parts of its own folder (``from .trainer``), and that are not there."""
    modules = program.project
    for name, level, _ in modules.main.imported if program.document.complete else ():
        if level and name and absolute(modules.main, name, level) in modules.missing:
            path = f"{name.replace('.', '/')}.py"
            yield NotFollowed(path.rpartition("/")[2], Span(0, 0), f"not found at {path}")


def diagnostics(subjects: Subjects) -> list[Diagnostic]:
    """What all rules find, by document and place."""
    found = [
        Diagnostic(rule, match)
        for job in subjects.jobs
        for rule in job_rules()
        for match in rule.matches(job)
    ]
    found += [
        Diagnostic(rule, match)
        for program in subjects.programs
        for rule in program_rules()
        for match in rule.matches(program)
    ]
    return in_reading_order(found)


def in_reading_order(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """By file, line and column, and each once."""
    once = {(d.rule.code, d.place, d.match.message): d for d in found}
    return sorted(once.values(), key=lambda d: (d.place.path, d.place.line, d.place.column, d.rule.code))
