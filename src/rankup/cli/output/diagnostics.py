"""What `rankup check` prints: text with the line and a caret, JSON, GitHub's annotations, SARIF 2.1.0."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from rankup import __version__
from rankup.check.check import Diagnostic
from rankup.check.document import Place
from rankup.check.paths import Checked
from rankup.check.registry import all_rules
from rankup.check.rule import Rule, Safety
from rankup.cli.output import console
from rankup.findings.finding import Confidence, Finding, Severity
from rankup.findings.text import count, text_lines

FORMATS = {"text": "text", "json": "json", "github": "github", "sarif": "sarif"}
_MOST_NAMES = 8  # of files, in the last line
_WIDEST_LINE = 160  # of a quoted line
_OF_SEVERAL = "of several, each would train a model of its own: docs/how-to/convert-your-loop.md"
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def write(form: str, checked: Checked, *, fixed_files: int, failed: bool) -> None:
    """Print what was found, in one of ``FORMATS``, to stdout."""
    if form == "json":
        console.print_json(_as_dict(checked, fixed_files, failed))
    elif form == "sarif":
        print(json.dumps(_sarif(checked), indent=2))
    elif form == "github":
        for line in _github(checked):
            print(line)
    else:
        _write_text(checked, fixed_files)


def _write_text(checked: Checked, fixed_files: int) -> None:
    width = console.text_width(sys.stdout)
    explained: set[str] = set()  # a rule's reason is printed once
    severities = list(Severity)
    for diagnostic in sorted(checked.diagnostics, key=lambda one: severities.index(one.finding.severity)):
        brief = diagnostic.rule.code in explained
        explained.add(diagnostic.rule.code)
        head, *rest = _text(diagnostic, brief, width)
        print("\n".join([console.coloured_severity(head, sys.stdout), *rest]))
    if checked.other:
        print("\n".join(text_lines(checked.other, width)))
    print(_summary(checked, fixed_files))
    if checked.not_followed:
        print(_unread(checked))
    if checked.one_process:
        print(f"trains in one process: {_names(checked.one_process)} ({_OF_SEVERAL})")


def _names(paths: Iterable[str]) -> str:
    names = list(dict.fromkeys(PurePath(path).name for path in paths))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _text(diagnostic: Diagnostic, brief: bool, width: int | None) -> list[str]:
    finding, rule = diagnostic.finding, diagnostic.rule
    likely = "" if finding.confidence is Confidence.SURE else ", likely"
    shown = replace(finding, code=f"{rule.code} {rule.name}{likely}", why="" if brief else finding.why)
    head, where, *rest = text_lines([shown], width)
    return [head, where, *_excerpt(diagnostic), *rest]


def _excerpt(diagnostic: Diagnostic) -> list[str]:
    """The line of the file, with carets below what is meant."""
    document, span = diagnostic.match.document, diagnostic.match.span
    number = document.line_of(span.start)
    line = document.line(number)
    start = span.start - document.starts[number]
    length = max(1, min(span.end - span.start, len(line) - start))
    if len(line) > _WIDEST_LINE:  # the part around the place
        cut = max(0, start - 40)
        line, start = line[cut : cut + _WIDEST_LINE], start - cut
        length = min(length, len(line) - start)
    shown = "".join(character if character.isprintable() or character == "\t" else "·" for character in line)
    label = f"{diagnostic.place.cell_line or diagnostic.place.line:>7} | "
    blank = "".join("\t" if character == "\t" else " " for character in shown[:start])
    return [f"{label}{shown}", f"{' ' * 8}| {blank}{'^' * length}"]


def _summary(checked: Checked, fixed_files: int) -> str:
    inputs = checked.inputs
    files = len(checked.texts) + len(inputs.job_files)
    what = f"{files} file{'s' * (files != 1)}"
    counted = count(checked.findings) or (
        "no finding in what was read" if checked.not_followed else "nothing found"
    )
    fixable = [diagnostic.rule.safety for diagnostic in checked.diagnostics if checked.can_fix(diagnostic)]
    offers = [
        f"{fixable.count(safety)} fixable with {flag}"
        for safety, flag in ((Safety.SAFE, "--fix"), (Safety.UNSAFE, "--unsafe-fixes"))
        if fixable.count(safety)
    ]
    words = [f"{what}: {counted}"]
    words += [f" ({', '.join(offers)})"] if offers else []
    words += [f"; {fixed_files} file{'s' * (fixed_files != 1)} fixed"] if fixed_files else []
    return "".join(words)


def _unread(checked: Checked) -> str:
    """What was read and what was not, each with the reason."""
    unread = dict.fromkeys(f"{one.name} ({one.reason})" for _, one in checked.not_followed)
    return f"checked: {_names(checked.texts)} · not followed: {', '.join(unread)}"


def _as_dict(checked: Checked, fixed_files: int, failed: bool) -> dict[str, Any]:
    found = []
    for finding, diagnostic in _entries(checked):
        values = finding.as_dict()
        if diagnostic is not None:
            place, safety = diagnostic.place, diagnostic.rule.safety
            values |= {
                "name": diagnostic.rule.name,
                "page": diagnostic.rule.page,
                "path": place.path,
                "line": place.line,
                "column": place.column,
                "end_line": place.end_line,
                "end_column": place.end_column,
                **({"cell": place.cell, "cell_line": place.cell_line} if place.cell else {}),
                "automatic_fix": safety.value if safety and diagnostic.match.edits else None,
            }
        found.append(values)
    return {
        "passed": not failed,
        "files": len(checked.texts) + len(checked.inputs.job_files),
        "fixed_files": fixed_files,
        "checked": sorted(checked.texts),
        "not_followed": [
            {"name": one.name, "reason": one.reason, "path": place.path, "line": place.line}
            for place, one in checked.not_followed
        ],
        "one_process": sorted(checked.one_process),
        "findings": found,
    }


def _entries(checked: Checked) -> Iterator[tuple[Finding, Diagnostic | None]]:
    """Every finding, for each format alike; None for those that are not a rule's."""
    yield from ((diagnostic.finding, diagnostic) for diagnostic in checked.diagnostics)
    yield from ((finding, None) for finding in checked.other)


def _place(finding: Finding) -> Place:
    """Of a finding that is not a rule's; its place is ``FILE``, ``FILE:LINE:COLUMN`` or ``FILE: WHAT``.

    Code scanning refuses a report with a result that has no place.
    """
    path, _, rest = finding.place.partition(":")
    number = rest.partition(":")[0]
    line = int(number) if number.isdecimal() else 1
    return Place(path, line, 1, line, 1)


def _github(checked: Checked) -> Iterator[str]:
    """Workflow commands: GitHub shows them beside the lines of a pull request."""
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
    for finding, diagnostic in _entries(checked):
        place = diagnostic.place if diagnostic else _place(finding)
        values = {
            "file": place.path,
            "line": place.line,
            "col": place.column,
            "endLine": place.end_line,
            "endColumn": place.end_column,
            "title": f"{finding.code} {diagnostic.rule.name}" if diagnostic else finding.code,
        }
        properties = ",".join(f"{key}={_property(str(value))}" for key, value in values.items())
        yield f"::{words[finding.severity]} {properties}::{_data(_message(finding))}"
    for place, title, text in _notices(checked):
        yield f"::notice file={_property(place.path)},line={place.line},title={title}::{_data(text)}"


def _notices(checked: Checked) -> Iterator[tuple[Place, str, str]]:
    """What is no finding, and what a reader of findings has to know: its place, its title, and its text."""
    for place, one in checked.not_followed:
        yield place, "not followed", f"{one.name} was not checked: {one.reason}"
    for path in sorted(checked.one_process):
        name = PurePath(path).name
        yield Place(path, 1, 1, 1, 1), "one process", f"{name} trains in one process ({_OF_SEVERAL})"


def _message(finding: Finding) -> str:
    return f"{finding.message}. {finding.fix}".rstrip() if finding.fix else finding.message


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _sarif(checked: Checked) -> dict[str, Any]:
    """SARIF 2.1.0 (OASIS): one run, with the rules that fired."""
    rules = [rule for rule in all_rules() if any(d.rule is rule for d in checked.diagnostics)]
    index = {rule.code: number for number, rule in enumerate(rules)}
    results = []
    for finding, diagnostic in _entries(checked):
        place = diagnostic.place if diagnostic else _place(finding)
        result = {
            "ruleId": finding.code,
            "level": finding.severity.value,
            "message": {"text": _message(finding)},
            "locations": [{"physicalLocation": _location(place)}],
            "properties": {"confidence": finding.confidence.value},
        }
        results.append(result | ({"ruleIndex": index[finding.code]} if diagnostic else {}))
    driver = {
        "name": "rankup",
        "version": __version__,
        "informationUri": "https://github.com/rankup/rankup",
        "rules": [_sarif_rule(rule) for rule in rules],
    }
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "toolExecutionNotifications": [
                            {
                                "level": "note",
                                "message": {"text": text},
                                "locations": [{"physicalLocation": _location(place)}],
                            }
                            for place, _, text in _notices(checked)
                        ],
                    }
                ],
                "results": results,
            }
        ],
    }


def _location(place: Place) -> dict[str, Any]:
    return {
        "artifactLocation": {"uri": quote(PurePath(place.path).as_posix())},
        "region": {
            "startLine": place.line,
            "startColumn": place.column,
            "endLine": place.end_line,
            "endColumn": place.end_column,
        },
    }


def _sarif_rule(rule: Rule[Any]) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "helpUri": rule.page,
        "defaultConfiguration": {"level": rule.severity.value},
    }
