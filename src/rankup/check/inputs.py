"""Paths → documents to check. What a file is, its content tells; its name helps only where the content does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from rankup.check.document import Document
from rankup.errors import RankupError

MOST_BYTES = 4 << 20  # a longer file is data, not a script
PAGES = frozenset({".md", ".markdown", ".mdx", ".qmd", ".rmd", ".rst", ".html", ".htm", ".ipynb"})
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "build", "dist", "runs"})
# Of these PBS alone takes a directive that is indented.
_DIRECTIVE = re.compile(r"^(?:[ \t]*#PBS|#(?:SBATCH|BSUB|COBALT))[ \t]+-", re.M)
_SHELL = re.compile(r"^#![ \t]*\S*/(env[ \t]+(-S[ \t]+)?)?\w*sh\b")
# Of a makefile: its commands are indented by a tab.
_RECIPE = re.compile(r"^[^\s#:=][^#:=\n]*:(?!=)[^\n]*\n\t", re.M)
_PYTHON = re.compile(r"^#!.*python")
STARTS_RANKS = re.compile(
    r"^[ \t]*(srun|sbatch|torchrun|mpirun|mpiexec|pbsdsh|accelerate launch|deepspeed)[ \t]", re.M
)
_TRAINING = re.compile(
    r"^[ \t]*(import|from)[ \t]+"
    r"(torch|lightning|pytorch_lightning|accelerate|deepspeed|transformers|horovod|ray|rankup)\b",
    re.M,
)


#: What a file was taken for that nothing judges.
LEFT_OUT = "left out"
EMPTY = "it is empty"
#: A log's name, which the schedulers give to the output of a job.
LOG_NAME = re.compile(r"\.(out|err|log|[oe]\d+([.-]\d+)?)$", re.I)
_LEFT_BY_NAME = {"a log": LOG_NAME, "a copy": re.compile(r"(\.(old|orig|bak|save|rej|swp)|~)$", re.I)}
# A directive, before any command.
_HEAD = re.compile(r"(?:[ \t\r]*(?:#[^\n]*)?\n)*(?:[ \t]*#PBS|#(?:SBATCH|BSUB|COBALT))[ \t]+-")
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*\\?(['\"]?)(\w+)\1[^\n]*\n.*?^[ \t]*\2[ \t\r]*$", re.S | re.M)
_FENCE = re.compile(r"^[ \t]*```", re.M)
_LOGGED = re.compile(
    r"^[^\w\"']*\d{4}-\d\d-\d\d[ T]|^\[?\d\d:\d\d:\d\d|^Traceback |^\s+File \"|\bit/s\b|^(slurmstepd|srun|sbatch): "
    r"|\d+%\||\b[Ee]poch[ :\[]+\d+.*\bloss\b|^\W*[Ee]poch[ :\[]+\d|^W\d{4} |^\[rank\d+\]|NCCL (INFO|WARN)"
    r"|^(INFO|WARNING|ERROR|DEBUG)[: ](?![\"'$])"
)


@dataclass
class Inputs:
    """What there is to check."""

    jobs: list[Document] = field(default_factory=list)
    programs: list[Document] = field(default_factory=list)
    pages: list[Document] = field(default_factory=list)
    job_files: list[Path] = field(default_factory=list)  # job.toml
    skipped: list[Path] = field(default_factory=list)  # named by the user, but none of these
    kinds: dict[str, tuple[str, str]] = field(default_factory=dict)  # path → what it was taken for, and why


Read = Callable[[Path], Document | None]


def read_inputs(paths: Sequence[Path], exclude: Sequence[str], read: Read) -> Inputs:
    """The documents of ``paths``: files, and folders with all that is below them.

    In a folder, files that have nothing to do with training are left out, hidden folders and environments too.
    Raises ``RankupError`` (``no-such-file``, ``unreadable-file``).
    """
    inputs = Inputs()
    for path in paths:
        if not path.exists():
            raise RankupError("no-such-file", f"file or folder not found: {str(path)!r}")
        if path.is_dir():
            for file in _below(path, exclude):
                _add(inputs, file, read, named=False)
        else:
            _add(inputs, path, read, named=True)
    return inputs


def _below(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _SKIPPED or _excluded(path, exclude):
            continue
        if path.is_dir() and not path.is_symlink():
            if not (path / "pyvenv.cfg").exists():
                yield from _below(path, exclude)
        elif path.is_file():
            yield path


def _excluded(path: Path, exclude: Iterable[str]) -> bool:
    return any(fnmatch(path.name, pattern) or fnmatch(path.as_posix(), pattern) for pattern in exclude)


def _add(inputs: Inputs, path: Path, read: Read, *, named: bool) -> None:
    document = read(path) if named or _worth_reading(path) else None
    kind, why = kind_of(document, named=named) if document else ("", "it is not text")
    if document and not document.text.strip():
        kind, why = "", EMPTY
    inputs.kinds[str(path)] = (kind or LEFT_OUT, why)
    if document is None or not kind:
        inputs.skipped += [path] if named else []
    elif kind == "job file":
        inputs.job_files.append(path)
    elif kind == "page":
        inputs.pages.append(document)
    elif kind == "job":
        inputs.jobs.append(document)
    elif named or imports_training(document.text):
        inputs.programs.append(document)
    else:
        inputs.kinds[str(path)] = (LEFT_OUT, "it imports nothing that trains")


def _worth_reading(path: Path) -> bool:
    """Whether a file of a folder can be a script at all, by its size and its first bytes."""
    try:
        if not 0 < path.stat().st_size <= MOST_BYTES:
            return False
        if path.suffix.lower() in PAGES or path.suffix == ".py":
            return True
        with path.open("rb") as file:
            head = file.read(1024)
    except OSError:
        return False
    return head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" not in head


def read_document(path: Path) -> Document | None:
    """The text of a file; None for what is not text. Raises ``unreadable-file``."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RankupError("unreadable-file", f"cannot read {str(path)!r}: {error.strerror}") from error
    text = decoded(raw)
    if text is None or len(raw) > MOST_BYTES:
        return None
    return Document(str(path), text, name=path.name)


def decoded(raw: bytes) -> str | None:
    """The text of a file's bytes: UTF-8, UTF-16 with its mark, else Latin-1; None for what is not text."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
    if b"\0" in raw:
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def kind_of(document: Document, *, named: bool = False) -> tuple[str, str]:
    """ "job", "program", "page", "job file" or "", and why.

    Unless the user has ``named`` it, the name of a log or a copy decides.
    """
    left = [what for what, pattern in _LEFT_BY_NAME.items() if pattern.search(document.name)]
    if left and not named:
        return "", f"its name is that of {left[0]}"
    kind, why = _kind_by_content(document.name.lower(), document.text)
    return ("", "it is a log") if kind == "job" and _has_output(document.text) else (kind, why)


def _kind_by_content(name: str, text: str) -> tuple[str, str]:
    suffix = Path(name).suffix
    if suffix in PAGES:
        return "page", f"its name ends with {suffix}"
    if suffix == ".toml":
        return (
            ("job file", "it has a [job]") if re.search(r"^\[job\]", text, re.M) else ("", "it has no [job]")
        )
    if _SHELL.match(text):
        return "job", "its first line names a shell"
    if suffix in (".py", ".pyw") or _PYTHON.match(text):
        return "program", "it is Python by its name or its first line"
    begins = bool(_HEAD.match(text))
    if _is_log(text) or (LOG_NAME.search(name) and not begins):
        return "", "it is a log"
    if suffix == ".txt" and (_FENCE.search(text) or _is_prose(text)):
        return "page", "it is prose with code"
    if suffix in (".sh", ".bash", ".sbatch", ".slurm", ".pbs", ".job", ".qsub", ".csh"):
        return "job", f"its name ends with {suffix}"
    if is_job(text) and (begins or suffix != ".txt"):
        return "job", "it has directives or starts ranks"
    if imports_training(text) and parses(text):
        return "program", "it is Python that imports what trains"
    return "", "it has no directives, and is not Python that trains"


def _is_log(text: str) -> bool:
    """Whether a text without a shell's first line looks like what a job prints: times, tracebacks, progress."""
    lines = [line for line in text[:20_000].split("\n") if line.strip()]
    return len(lines) > 5 and sum(bool(_LOGGED.search(line)) for line in lines) > len(lines) / 5


def _has_output(text: str) -> bool:
    """Whether lines of a script, comments and here-documents apart, are what a job prints."""
    lines = _HERE_DOCUMENT.sub("", text).split("\n")
    return any(_LOGGED.match(line) for line in lines if not line.lstrip().startswith("#"))


def _is_prose(text: str) -> bool:
    """Whether a text begins with sentences, before any directive."""
    head = _DIRECTIVE.split(text, maxsplit=1)[0][:2000]
    return len(re.findall(r"^[A-Z][a-z]+(?: [\w,'-]+){4,}[.:]?$", head, re.M)) >= 2


def has_directives(text: str) -> bool:
    """Whether a scheduler reads options in it."""
    return bool(_DIRECTIVE.search(text))


def imports_training(text: str) -> bool:
    """Whether a program imports what trains."""
    return bool(_TRAINING.search(text))


def is_job(text: str) -> bool:
    commands = has_directives(text) or (STARTS_RANKS.search(text) and not parses(text))
    return bool(_SHELL.match(text) or _HEAD.match(text) or (commands and not _RECIPE.search(text)))


def parses(text: str) -> bool:
    """Whether ``text`` is Python."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
