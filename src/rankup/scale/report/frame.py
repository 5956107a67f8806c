"""The frame of a page: one file that asks nothing of any network; its style and script lie beside this module.

Titles and facts pass ``escape`` here; a section's body must have passed it. The policy in the page's head lets the one
script run by its hash: a script that came in with a name would not run even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rankup.findings.finding import Finding
from rankup.scale.report.figures.picture import DARK
from rankup.scale.report.text import plain

_FOLDER = Path(__file__).parent


def frame(
    title: str, facts: Sequence[tuple[str, str]], sections: Sequence[tuple[str, str, str]], footer: str
) -> str:
    """The whole page. ``sections``: name, title and body of each."""
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    links = "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{heading}</h2>{inner}</section>'
        for name, heading, inner in sections
    )
    title = escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{_style()}</style></head>\n"
        f'<body><a class="skip" href="#main">Skip to the content</a><header><h1>{title}</h1>{_facts(facts)}'
        f'<nav aria-label="On this page"><ul>{links}</ul></nav></header>\n'
        f'<main id="main" tabindex="-1">{body}</main>\n'
        f"<footer><p>{footer}</p>"
        '<p class="hidden" id="sorted" role="status"></p></footer>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _style() -> str:
    style = (_FOLDER / "page.css").read_text(encoding="utf-8")
    light = "".join(f"  --figure-{index}: {colour};\n" for index, colour in enumerate(DARK))
    dark = "".join(f"    --figure-{index}: {colour};\n" for index, colour in enumerate(DARK.values()))
    return style.replace("LIGHT", light).replace("DARK", dark)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def finding_item(finding: Finding) -> str:
    severity = finding.severity.value
    more = "".join(
        f"<p>{label}{escape(plain(text))}</p>"
        for label, text in (("", finding.why), ("Where: ", finding.place), ("What to do: ", finding.fix))
        if text
    )
    message, code = escape(plain(finding.message)), escape(plain(finding.code))
    head = f"<b>{severity.capitalize()}:</b> {message} <code>{code}</code>"
    return f'<li class="{severity}">{head}{more}</li>'
