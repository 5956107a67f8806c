"""Comments that allow a finding: ``# rankup: allow RK115 (why)``, in job scripts and programs."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rankup.check.check import Diagnostic
from rankup.check.document import Document, Span
from rankup.check.registry import nearest_rule, rule_names
from rankup.findings.finding import Finding, Severity

_COMMENT = re.compile(
    r"#[ \t]*rankup:[ \t]*(?P<word>allow(-file)?)\b[ \t]*(?P<codes>[\w,-]+([ \t]*,[ \t]*[\w-]+)*)?"
)


@dataclass(frozen=True)
class Allowance:
    """What one comment allows: ``codes`` (or names) in the lines from ``first`` to ``last`` (of the text, from 0)."""

    document: Document
    span: Span
    codes: tuple[str, ...]
    first: int
    last: int

    def covers(self, diagnostic: Diagnostic) -> bool:
        document, span = diagnostic.match.document, diagnostic.match.span
        if document is not self.document or not {diagnostic.rule.code, diagnostic.rule.name} & {*self.codes}:
            return False
        last = document.line_of(max(span.start, span.end - 1))
        return document.line_of(span.start) <= self.last and self.first <= last


def allowances(document: Document, *, python: bool) -> Iterator[Allowance]:
    """A comment after code is for that line; one on its own line is for the next line that is not a comment.

    ``allow-file`` is for the whole file.
    """
    for start, comment in _python_comments(document) if python else _shell_comments(document):
        match = _COMMENT.match(comment)
        if match is None:
            continue
        codes = tuple(
            code.upper() if code.upper().startswith("RK") else code
            for code in re.split(r"[ \t,]+", match["codes"] or "")
            if code
        )
        line = document.line_of(start)
        if match["word"] == "allow-file":
            first, last = 0, len(document.starts)
        elif document.line(line)[: start - document.starts[line]].strip():
            first = last = line
        else:
            first = last = _next_code(document, line)
        yield Allowance(document, Span(start, start + match.end()), codes, first, last)


def _shell_comments(document: Document) -> Iterator[tuple[int, str]]:
    for match in re.finditer(r"(?:^|(?<=[ \t;]))#.*", document.text, re.M):
        yield match.start(), match.group()


def _python_comments(document: Document) -> Iterator[tuple[int, str]]:
    if "rankup:" not in document.text:  # which spares the tokens of nearly all programs
        return
    try:
        for token in tokenize.generate_tokens(io.StringIO(document.text).readline):
            if token.type == tokenize.COMMENT:
                yield document.offset(token.start[0] - 1, token.start[1]), token.string
    except (tokenize.TokenError, SyntaxError):  # the rest of a program that is cut off
        return


def _next_code(document: Document, line: int) -> int:
    for number in range(line + 1, len(document.starts)):
        text = document.line(number).strip()
        if text and (not text.startswith("#") or re.match(r"#(SBATCH|PBS|BSUB)\b", text)):
            return number
    return line


def without_allowed(
    found: Sequence[Diagnostic], *, jobs: Iterable[Document], programs: Iterable[Document]
) -> tuple[list[Diagnostic], list[Finding]]:
    """``found`` without what a comment allows, and what is wrong with the comments: unknown codes, nothing to allow."""
    allowed = [allowance for document in jobs for allowance in allowances(document, python=False)]
    allowed += [allowance for document in programs for allowance in allowances(document, python=True)]
    kept, used = [], set()
    for diagnostic in found:
        covering = [allowance for allowance in allowed if allowance.covers(diagnostic)]
        used.update(covering)
        kept += [] if covering else [diagnostic]
    return kept, [finding for one in allowed if one not in used for finding in _useless(one)]


def _useless(allowance: Allowance) -> Iterator[Finding]:
    known = rule_names()
    place = str(allowance.document.place(allowance.span))
    unknown = [code for code in allowance.codes if code not in known]
    for code in unknown:
        yield Finding(
            "unknown-rule",
            Severity.WARNING,
            f"the comment allows {code!r}, which is not a rule{nearest_rule(code)}",
            place=place,
            fix="rankup rules lists all rules",
        )
    if not allowance.codes:
        yield Finding(
            "unknown-rule",
            Severity.WARNING,
            "the comment allows no rule",
            place=place,
            fix="name the rule and the reason: # rankup: allow RK115 (the node is ours alone)",
        )
    elif not unknown:
        yield Finding(
            "unused-allow",
            Severity.NOTE,
            f"the comment allows {', '.join(allowance.codes)}, which does not fire here",
            place=place,
            fix="remove the comment",
        )
