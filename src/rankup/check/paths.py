"""Files and folders → what the rules find in them, with the repaired texts of those that can be repaired."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath

from rankup.check.check import (
    Diagnostic,
    FindFile,
    diagnostics,
    in_reading_order,
    missing_parts,
    read_subjects,
)
from rankup.check.document import Document, Place
from rankup.check.facts.job.job import NotFollowed
from rankup.check.facts.job.source import language_of
from rankup.check.facts.start import Start
from rankup.check.fixes import fixed
from rankup.check.inputs import LEFT_OUT, LOG_NAME, Inputs, kind_of, parses, read_document, read_inputs
from rankup.check.pages.joining import page_documents
from rankup.check.rule import Safety
from rankup.check.selection import Selection
from rankup.check.suppression import without_allowed
from rankup.core.collector import uncollected
from rankup.core.shell import run
from rankup.findings.finding import Finding, Severity
from rankup.sites.site import Site

FIX_REFUSED = "fix-refused"
MOST_PASSES = 10  # of fixes that make room for each other
_FOLDERS_ABOVE = (
    2  # a job script often lies in a folder of its own: scripts/job.sh starts train.py beside scripts/
)
#: Of files that a job script names: programs, scripts, and configurations of launchers.
_NAMED = (".py", ".sh", ".bash", ".slurm", ".sbatch", ".pbs", "", ".yaml", ".yml", ".json")
_MOST_ENTRIES = 300  # of a folder in whose folders a program is looked for


@dataclass
class Checked:
    """What was found. ``other`` are findings that are not a rule's: comments that allow nothing.

    ``not_followed`` is what the jobs start and nobody read: no rule has judged it. ``one_process`` are the programs
    that train, and that no process joins when several are started.
    """

    inputs: Inputs
    diagnostics: list[Diagnostic]
    other: list[Finding]
    not_followed: list[tuple[Place, NotFollowed]]
    one_process: list[str]
    texts: dict[str, str]  # path → text of every file that was judged, as it is (or was repaired)
    refused: list[Diagnostic] = field(default_factory=list)  # whose fixes leave what nobody reads

    def can_fix(self, diagnostic: Diagnostic) -> bool:
        """Whether it has a fix, in files that the user named: a program that a job script starts is left alone, a job
        inside of another script, and a log."""
        judged = (*self.inputs.jobs, *self.inputs.programs)
        named = {document.path for document in judged if not LOG_NAME.search(document.name)}
        match = diagnostic.match
        return bool(match.edits and not match.document.lines and diagnostic not in self.refused) and all(
            (edit.document or match.document).path in named for edit in match.edits
        )

    @property
    def findings(self) -> list[Finding]:
        return [*(diagnostic.finding for diagnostic in self.diagnostics), *self.other]


def check_paths(paths: Sequence[Path], selection: Selection, site: Site | None) -> Checked:
    """Raises ``RankupError`` for paths that cannot be read."""
    return _check(paths, selection, site, _Files())


def check_program(path: Path, start: Start, selection: Selection, site: Site | None) -> list[Finding]:
    """What the rules of programs find in one that is started as ``start`` says; without notes.

    Empty for what is not a Python file.
    """
    files = _Files()
    document = files.read(path) if path.suffix == ".py" and path.is_file() else None
    if document is None:
        return []
    subjects = read_subjects([], [document], _on_disk(files), site)
    subjects.programs[0].starts.append(start)
    chosen = [diagnostic for diagnostic in diagnostics(subjects) if selection.holds(diagnostic.rule)]
    kept, _ = without_allowed(chosen, jobs=(), programs=[program.document for program in subjects.programs])
    return [diagnostic.finding for diagnostic in kept if diagnostic.finding.severity is not Severity.NOTE]


def trains_alone(path: Path) -> bool:
    """Whether a program trains in one process, and certainly has no other to train with."""
    files = _Files()
    document = files.read(path)
    subjects = read_subjects([], [document] if document else [], _on_disk(files), None)
    return any(program.one_process for program in subjects.programs)


def repair_paths(
    paths: Sequence[Path], selection: Selection, site: Site | None, safeties: frozenset[Safety]
) -> tuple[Checked, dict[str, tuple[Document, Document]]]:
    """Apply the fixes of ``safeties`` until none is left: what is still found, and path → (before, after).

    Nothing is written. ``other`` of what is found names the fixes that were refused.
    """
    files = _Files()
    checked = _check(paths, selection, site, files)
    before = dict(files.documents)
    for _ in range(MOST_PASSES):
        chosen = [d for d in checked.diagnostics if d.rule.safety in safeties and checked.can_fix(d)]
        changed = fixed(checked.texts, chosen, _is_read)
        if changed == checked.texts:
            checked.refused = chosen
            checked.other += [_refused(one, checked.texts.get(one.place.path, "")) for one in chosen]
            break
        files.change(changed)
        checked = _check(paths, selection, site, files)
    after = files.documents
    return checked, {
        str(path): (before[path], after[path]) for path in before if before[path].text != after[path].text
    }


def _is_program(path: str, text: str) -> bool:
    return kind_of(Document(path, text, name=path), named=True)[0] == "program"


def _is_read(path: str, text: str) -> bool:
    """Whether Python compiles a program, or ``bash -n`` accepts a script; other shells are not asked."""
    if _is_program(path, text):
        return parses(text)
    code = run(["bash", "-n"], stdin=text.replace("\r\n", "\n")).code if language_of(text) == "bash" else 0
    return code in (0, 127)  # 127: no bash here


def _refused(diagnostic: Diagnostic, text: str) -> Finding:
    place, code = diagnostic.place, diagnostic.rule.code
    reader = "Python" if _is_program(place.path, text) else "bash -n"
    when, fix = (" with it", "") if _is_read(place.path, text) else ("", "Correct its syntax first.")
    message = f"the fix of {code} was not applied: {reader} refuses the file{when}"
    return Finding(FIX_REFUSED, Severity.NOTE, message, str(place), fix=fix)


def difference(before: Document, after: Document) -> str:
    """A unified diff, as ``patch`` takes it."""
    lines = difflib.unified_diff(
        before.text.splitlines(keepends=True),
        after.text.splitlines(keepends=True),
        f"a/{before.path}",
        f"b/{after.path}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


@dataclass
class _Files:
    """Every file is read once, and repaired texts take the place of what was read."""

    documents: dict[Path, Document] = field(default_factory=dict)

    def read(self, path: Path) -> Document | None:
        if path not in self.documents:
            document = read_document(path)
            if document is None:
                return None
            self.documents[path] = document
        return self.documents[path]

    def change(self, texts: dict[str, str]) -> None:
        for path, document in self.documents.items():
            if document.path in texts and texts[document.path] != document.text:
                self.documents[path] = replace(document, text=texts[document.path])


@uncollected()
def _check(paths: Sequence[Path], selection: Selection, site: Site | None, files: _Files) -> Checked:
    inputs = read_inputs(paths, selection.exclude, files.read)
    on_disk = _on_disk(files)
    subjects = read_subjects(inputs.jobs, inputs.programs, on_disk, site, _beside, _list_folder)
    found = diagnostics(subjects)
    for page in inputs.pages:
        scripts, shown = page_documents(page)
        of_page = read_subjects(scripts, shown, _in_page(shown, on_disk), site)
        found += diagnostics(of_page)
        subjects.jobs += of_page.jobs
        subjects.programs += of_page.programs
    chosen = [diagnostic for diagnostic in in_reading_order(found) if selection.holds(diagnostic.rule)]
    kept, other = without_allowed(
        chosen,
        jobs=[job.document for job in subjects.jobs],
        programs=[program.document for program in subjects.programs],
    )
    unread = {(job.document.place(one.span), one): None for job in subjects.jobs for one in job.not_followed}
    unread |= {(p.document.place(one.span), one): None for p in subjects.programs for one in missing_parts(p)}
    modules = {module.document.path for program in subjects.programs for module in program.modules}
    left_out = {path for path, (kind, _) in inputs.kinds.items() if kind == LEFT_OUT} - modules
    texts = {
        document.path: document.text for document in files.documents.values() if document.path not in left_out
    }
    alone = [program.document.path for program in subjects.programs if program.one_process]
    return Checked(inputs, kept, other, sorted(unread, key=lambda pair: pair[0].path), alone, texts)


def _on_disk(files: _Files) -> FindFile:
    def find(document: Document, name: str) -> Document | None:
        for path in _places(document, name):
            if path.suffix in _NAMED and path.is_file():
                return files.read(path)
        return None

    return find


def _places(document: Document, name: str) -> Iterator[Path]:
    """Where a file may be that a document names: its own path, or the end of a path that begins elsewhere."""
    parts = PurePosixPath(name.lstrip("/")).parts
    if name.startswith("/"):
        yield Path(name)
    folders = _folders(document)
    yield from (Path(_plain(place / name.lstrip("/"))) for place in folders)
    if name.startswith("/"):
        for first in range(1, len(parts)):
            yield from (Path(_plain(place.joinpath(*parts[first:]))) for place in folders)
    elif len(parts) > 1:  # the repository's own name before a path
        for place in folders:
            if _name_of(place) == parts[0]:
                yield Path(_plain(place.joinpath(*parts[1:])))


@lru_cache(maxsize=1024)
def _name_of(folder: Path) -> str:
    return folder.resolve().name


def _folders(document: Document) -> list[Path]:
    """Where the programs of a job script may be."""
    folder = Path(document.path).parent
    return [folder, *(folder / "/".join([".."] * up) for up in range(1, _FOLDERS_ABOVE + 1)), Path()]


def _beside(document: Document, name: str) -> tuple[str, ...]:
    """The Python files where ``name`` is looked for; none if it is a folder deeper: the job may be submitted there."""
    found: list[str] = []
    try:
        for place in _folders(document):
            folder = (place / name).parent
            files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
            found += [str(PurePosixPath(name).with_name(file)) for file in files if file.endswith(".py")]
        if not found or any(_is_deeper(place, Path(name).name) for place in _folders(document)):
            return ()
    except OSError:  # a folder that may not be read
        return ()
    return tuple(dict.fromkeys(found))


def _list_folder(document: Document, name: str) -> tuple[str, ...] | None:
    """The names of what is in a folder that a document names; None if it is not there."""
    for place in _folders(document):
        try:
            return tuple(sorted(path.name for path in (place / name).iterdir()))
        except OSError:
            continue
    return None


def _is_deeper(place: Path, name: str) -> bool:
    """Whether a folder of ``place`` has the file ``name``, or there are too many folders to look."""
    below = list(islice(place.iterdir(), _MOST_ENTRIES))
    return len(below) == _MOST_ENTRIES or any((path / name).exists() for path in below)


def _plain(path: Path) -> str:
    """Without ``./`` and ``x/..``, so that one file has one name."""
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part == ".." and parts and parts[-1] not in ("..", "/"):
            parts.pop()
        else:
            parts.append(part)
    return str(PurePosixPath(*parts))


def _in_page(programs: Sequence[Document], on_disk: FindFile) -> FindFile:
    """A page's program by its name; if the page gives it none and there is only one, that one."""

    def find(document: Document, name: str) -> Document | None:
        base = PurePosixPath(name).name
        if not base.endswith(".py"):
            return on_disk(document, name)
        named = [program for program in programs if PurePosixPath(program.name).name == base]
        if named:
            return named[-1]
        if len(programs) == 1 and not programs[0].name and document not in programs:
            return programs[0]
        return on_disk(document, name)

    return find
