"""``report.html``: summary, figures and tables in the frame of all pages (``frame.py``).

Whatever comes from users passes ``escape``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

from rankup.scale.report.content import Content
from rankup.scale.report.figures.draw import Drawn
from rankup.scale.report.frame import finding_item, frame
from rankup.scale.report.tables import Column, Table
from rankup.scale.report.text import plain


def page(content: Content, sentences: Sequence[str], drawn: Sequence[Drawn], tables: Sequence[Table]) -> str:
    """The whole page."""
    sections = [("summary", "Summary", _overview(content, sentences))]
    if drawn:
        sections.append(("figures", "Figures", f'<div class="figures">{"".join(map(_figure, drawn))}</div>'))
    if tables:
        sections.append(("tables", "Tables", "".join(map(_table, tables))))
    footer = (
        "Made by <code>rankup report</code>. The figures and tables of this page lie beside it, in the folders figures "
        "and tables, as SVG, PDF, PNG, CSV, Markdown and LaTeX."
    )
    return frame(content.title, content.facts, sections, footer)


def _overview(content: Content, sentences: Sequence[str]) -> str:
    answer = "".join(f"<p>{_units_kept(escape(plain(sentence)))}</p>" for sentence in sentences)
    found = "".join(map(finding_item, content.findings))
    if not found:
        return f'<div class="overview"><div class="answer">{answer}</div></div>'
    return (
        f'<div class="overview both"><div class="answer">{answer}</div>'
        f'<ul class="findings" aria-label="Findings">{found}</ul></div>'
    )


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
