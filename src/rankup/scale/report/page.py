"""``report.html``: one file that asks nothing of any network; its style and script lie beside this module.

Whatever comes from users passes ``escape``. The policy in the page's head lets the one script run by its hash: a
script that came in with a name would not run even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rankup.findings.finding import Finding
from rankup.scale.report.content import Content
from rankup.scale.report.figures.draw import Drawn
from rankup.scale.report.figures.picture import DARK
from rankup.scale.report.tables import Column, Table
from rankup.scale.report.text import plain

_FOLDER = Path(__file__).parent


def page(content: Content, sentences: Sequence[str], drawn: Sequence[Drawn], tables: Sequence[Table]) -> str:
    """The whole page."""
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = [("summary", "Summary", _overview(content, sentences))]
    if drawn:
        sections.append(("figures", "Figures", f'<div class="figures">{"".join(map(_figure, drawn))}</div>'))
    if tables:
        sections.append(("tables", "Tables", "".join(map(_table, tables))))
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{inner}</section>'
        for name, title, inner in sections
    )
    title = escape(content.title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{_style()}</style></head>\n"
        f'<body><a class="skip" href="#main">Skip to the content</a><header><h1>{title}</h1>{_facts(content)}'
        f'<nav aria-label="On this page"><ul>{links}</ul></nav></header>\n'
        f'<main id="main" tabindex="-1">{body}</main>\n'
        "<footer><p>Made by <code>rankup report</code>. The figures and tables of this page lie beside it, in the "
        "folders figures and tables, as SVG, PDF, PNG, CSV, Markdown and LaTeX.</p>"
        '<p class="hidden" id="sorted" role="status"></p></footer>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _style() -> str:
    style = (_FOLDER / "page.css").read_text(encoding="utf-8")
    light = "".join(f"  --figure-{index}: {colour};\n" for index, colour in enumerate(DARK))
    dark = "".join(f"    --figure-{index}: {colour};\n" for index, colour in enumerate(DARK.values()))
    return style.replace("LIGHT", light).replace("DARK", dark)


def _facts(content: Content) -> str:
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in content.facts
    )
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def _overview(content: Content, sentences: Sequence[str]) -> str:
    answer = "".join(f"<p>{_units_kept(escape(plain(sentence)))}</p>" for sentence in sentences)
    found = "".join(map(_finding, content.findings))
    if not found:
        return f'<div class="overview"><div class="answer">{answer}</div></div>'
    return (
        f'<div class="overview both"><div class="answer">{answer}</div>'
        f'<ul class="findings" aria-label="Findings">{found}</ul></div>'
    )


def _finding(finding: Finding) -> str:
    severity = finding.severity.value
    more = "".join(
        f"<p>{label}{escape(plain(text))}</p>"
        for label, text in (("", finding.why), ("Where: ", finding.place), ("What to do: ", finding.fix))
        if text
    )
    message, code = escape(plain(finding.message)), escape(plain(finding.code))
    head = f"<b>{severity.capitalize()}:</b> {message} <code>{code}</code>"
    return f'<li class="{severity}">{head}{more}</li>'


def _figure(drawn: Drawn) -> str:
    picture = drawn.picture
    return (
        f'<figure id="figure-{picture.name}"><figcaption><h3>{escape(picture.title)}</h3></figcaption>{drawn.inline}'
        f"<p>{escape(picture.caption)}</p></figure>"
    )


def _table(table: Table) -> str:
    name = f"table-{table.name}"
    heads = "".join(
        f'<th scope="col" aria-sort="none"{_kind(column)}><button type="button">{escape(column.title)}</button></th>'
        for column in table.columns
    )
    body = []
    for row in table.rows:
        cells = []
        for index, (column, (shown, value)) in enumerate(zip(table.columns, row, strict=True)):
            tag, scope = ("th", ' scope="row"') if index == 0 else ("td", "")
            known = value if isinstance(value, str) else repr(value) if math.isfinite(value) else ""
            cells.append(
                f'<{tag}{scope}{_kind(column)} data-value="{escape(known, quote=True)}">{escape(shown)}</{tag}>'
            )
        body.append(f"<tr>{''.join(cells)}</tr>\n")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}"><table id="{name}-body">'
        f'<caption id="{name}">{escape(table.title)}<span>{escape(table.caption)}</span></caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _units_kept(text: str) -> str:
    """No line ends between a number and its unit."""
    return re.sub(r"(?<=\d) (?=(?:s|min|h|ms|core-hours|GPU-hours)\b|%)", "\u00a0", text)


def _kind(column: Column) -> str:
    return ' class="text"' if column.text else ""
