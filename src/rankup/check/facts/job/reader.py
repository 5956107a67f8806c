"""The text of a job script → ``Job``."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

from rankup.check.document import Document, Span
from rankup.check.facts.job.commands import Binding, Literal, Value
from rankup.check.facts.job.directives import Directive, DirectiveLine, directive_lines, directives_of
from rankup.check.facts.job.job import Job, NotFollowed
from rankup.check.facts.job.request import Request
from rankup.check.facts.job.runner import FindScript, Runner, no_script
from rankup.check.facts.job.source import Source, language_of, with_unknown_words
from rankup.check.facts.job.submitted import job_of
from rankup.check.facts.job.tools import unread
from rankup.check.facts.job.typos import blanks_after_backslash, misspelt_directives
from rankup.sites.site import Site

_LONGEST = 400_000  # characters: a longer text is not a job script
_LONGEST_LINE = 20_000
_COMMAND = re.compile(r"^[ \t]*(?!\$ |(?:\$_\w+[ \t]*)+$)[^\s#]", re.M)  # a placeholder alone is none
_LATE_SHEBANG = re.compile(r"(?<=\n)#![ \t]*/\S+(?=[^\n]*\n+#(?:SBATCH|PBS|BSUB))")
_ONLY_QUOTE = re.compile(r"[ \t]*([\"'`“”‘’´]+)[ \t]*(?=\n|\Z)")
_NAMES = re.compile(r"\b([A-Za-z_]\w*)\+?=")
_CSH = re.compile(
    r"^[ \t]*(?:export[ \t]+\w+=|if[ \t]+\[.*\][ \t]*;?[ \t]*then|fi[ \t]*$|done[ \t]*$|\w+=\S+[ \t]*$"
    r"|(?:setenv|set|echo)[ \t][^#\n]*(?:\$\(\w|\$\{#\w+\[@\]\})[^\n]*)",
    re.M,
)
#: What bash's grammar cannot read.
_CSH_BLOCK = re.compile(r"^[ \t]*(?:foreach|while|switch|if)[ \t]*\(|^[ \t]*(?:end|endif|endsw)[ \t]*$", re.M)
_SHELL_OPTION = re.compile(r"^#PBS[ \t]+-S[ \t]+\S*/(t?csh)\b", re.M)
_HETEROGENEOUS = re.compile(r"^#SBATCH[ \t]+(hetjob|packjob)\b", re.M)


def read_job(document: Document, site: Site | None = None, find_script: FindScript = no_script) -> Job:
    """What ``document``, a job script, says, with the scripts that it runs and ``find_script`` finds.

    It never fails: what cannot be read is not in the facts.
    """
    text = with_unknown_words(document.text.replace("\r", " "))
    job = Job(document, site, language=language_of(text), crlf="\r\n" in document.text)
    # A page may show `cat job.sh` or a prompt before the script itself.
    late = [match.start() for match in _LATE_SHEBANG.finditer(text, 0, 2000)]
    # That of a here-document begins another script.
    shebangs = [at for at in late if "<<" not in text[text.rfind("\n", 0, at - 1) + 1 : at]]
    if _SHELL_OPTION.search(text):
        job.language = "csh"
    first = _COMMAND.search(text, shebangs[-1] if shebangs else 0)
    job.first_command = first.start() if first else len(text)
    job.names = set(_NAMES.findall(text))
    job.lines = directive_lines(text, job.first_command)
    job.request = _request(job.lines, text)
    quote = _ONLY_QUOTE.match(text, job.first_command)
    job.quote_first = Span(*quote.span(1)) if quote and any(line.late for line in job.lines) else None
    job.misspelt = misspelt_directives(text, job.first_command)
    if job.language == "csh":
        job.csh_words = [Span(*match.span()) for match in _CSH.finditer(text)]
    csh = job.language == "csh" and not _CSH_BLOCK.search(text)
    if (job.language != "bash" and not csh) or "\0" in text or len(text) > _LONGEST or _long_line(text):
        job.broken = True
        job.lines = [line for line in job.lines if not line.late]
        if job.language != "bash":
            why = f"it is a script for {job.language}: only its directives were read"
            job.not_followed.append(NotFollowed(PurePath(document.path).name, Span(0, 0), why))
        return job
    runner = Runner(job.request, len(text), find_script)
    runner.state.scope.update(_usage(document, text, find_script))
    try:
        root = runner.source(Source.of_document(text))
    except RecursionError:
        runner.broken, root = True, None
    if root is not None:
        # A line of a here-document that becomes another job script is not a directive of this one.
        job.lines = [line for line in job.lines if not line.late or _is_comment(root, line.span.start)]
        if not job.lines:
            job.request.scheduler = ""
        job.blanks_after_backslash = blanks_after_backslash(text, root)
    job.document = document.with_helpers(tuple(runner.helpers.values()))
    job.submits = [job_of(job.document, one) for one in runner.submitted]
    job.names = set(_NAMES.findall(job.document.text))
    job.not_followed += runner.not_followed
    job.commands, job.launches = runner.commands, runner.launches
    job.assigned, job.expansions = runner.assigned, runner.expansions
    job.starts_unknown, job.broken = runner.starts_unknown, runner.broken
    job.sources_files, job.tested, job.functions = runner.sources_files, runner.tested, set(runner.functions)
    job.not_followed += unread(job, runner.unread)
    return job


def _usage(document: Document, text: str, find_script: FindScript) -> dict[str, Binding]:
    """The programs that a script gets as arguments by its own usage: ``sbatch run.sh train.py``, if they are there."""
    name = re.escape(PurePath(document.path).name)
    usage = re.search(rf"\b(?:sbatch|qsub|bsub|bash|sh)[ \t][^\n\"'`|;]*?{name}((?:[ \t]+[\w./-]+)+)", text)
    found: dict[str, Binding] = {}
    for index, word in enumerate(re.finditer(r"\S+", usage[1]) if usage is not None else (), 1):
        if usage is not None and word[0].endswith(".py") and find_script(word[0]) is not None:
            span = Span(usage.start(1) + word.start(), usage.start(1) + word.end())
            found[str(index)] = Binding(Value((Literal(word[0], span),)), span)
    return found


def _is_comment(root: Any, offset: int) -> bool:
    node = root.descendant_for_byte_range(offset, offset + 1)
    return node is not None and node.type == "comment"


def _long_line(text: str) -> bool:
    return any(len(line) > _LONGEST_LINE for line in text.split("\n"))


def _request(lines: list[DirectiveLine], text: str) -> Request:
    found: list[Directive] = []
    for line in lines:
        if not line.late:
            found += directives_of(line)
    schedulers = {directive.scheduler for directive in found} or {line.scheduler for line in lines}
    scheduler = next((name for name in ("slurm", "pbs", "lsf") if name in schedulers), "")
    mine = [directive for directive in found if directive.scheduler == scheduler]
    request = Request(scheduler, mine, bool(_HETEROGENEOUS.search(text)))
    if scheduler == "pbs" and "select" not in request.resources and "nodes" in request.resources:
        request.scheduler = "torque"
    return request
