"""Applies the edits of findings to the texts of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from rankup.check.check import Diagnostic
from rankup.check.document import Document
from rankup.check.rule import Edit

#: A path and its new text → whether that may be written.
Accept = Callable[[str, str], bool]


def fixed(
    files: dict[str, str], found: Iterable[Diagnostic], accept: Accept = lambda path, text: True
) -> dict[str, str]:
    """``files`` (path → text) with the edits of ``found``.

    The edits of one finding are applied together or not at all; a finding whose edits meet those of an earlier one is
    left for the next time, and one that ``accept`` refuses is left as it is.
    """
    taken: dict[str, list[Edit]] = {path: [] for path in files}
    for diagnostic in found:
        edits = [edit_in_part(edit, diagnostic.match.document) for edit in diagnostic.match.edits]
        if all(
            document.path in files and not document.lines and not _meets(taken[document.path], edit)
            for document, edit in edits
        ):
            before = {path: list(chosen) for path, chosen in taken.items()}
            for document, edit in edits:
                if edit not in taken[document.path]:
                    taken[document.path].append(edit)
            for path in {document.path for document, _ in edits}:
                if not accept(path, _applied(files[path], taken[path])):
                    taken = before
    return {path: _applied(text, taken[path]) for path, text in files.items()}


def edit_in_part(edit: Edit, document: Document) -> tuple[Document, Edit]:
    """The file that an edit changes, which may be a script that ``document`` runs, and the edit there."""
    holder, span = (edit.document or document).part(edit.span)
    return holder, replace(edit, span=span)


def _meets(taken: Iterable[Edit], edit: Edit) -> bool:
    """Whether an edit overlaps one of ``taken``, or inserts something else at the same place."""
    for other in taken:
        if other == edit:
            continue
        if edit.span.start < other.span.end and other.span.start < edit.span.end:
            return True
        if edit.span.start == other.span.start and (
            edit.span.start == edit.span.end or other.span.start == other.span.end
        ):
            return True
    return False


def _applied(text: str, edits: Iterable[Edit]) -> str:
    for edit in sorted(edits, key=lambda edit: edit.span, reverse=True):
        line = text.rfind("\n", 0, edit.span.start)
        crlf = text[line - 1 : line] == "\r" if line > 0 else "\r\n" in text
        new = edit.text.replace("\n", "\r\n") if crlf else edit.text
        text = text[: edit.span.start] + new + text[edit.span.end :]
    return text
