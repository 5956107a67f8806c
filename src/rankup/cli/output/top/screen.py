"""One frame as lines of a given width and height. The first thing to go is what tells least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Protocol

from rich.text import Text

from rankup.cli.output.top.columns import columns_that_fit, filtered, headings, in_order, line
from rankup.cli.output.top.plain import alert_text, headline, node_text, shortest_headline
from rankup.cli.output.top.sparkline import sparkline
from rankup.core.progress import progress_share
from rankup.core.units import rate
from rankup.errors import RankupError
from rankup.monitor.alerts.alert import Alert
from rankup.monitor.frame import Frame
from rankup.monitor.rows import RankRow

_STATE = {"running": "green", "failed": "red", "done": "green", "pending": "yellow", "cancelled": "yellow"}
KEYS = "q quit  s sort  f filter  p py-spy  j k scroll"


class Said(Protocol):
    """What goes on beside the view, and what it says now."""

    def message(self) -> str: ...


@dataclass
class View:
    """What the user has chosen. ``typing``: the filter that is being typed, None if none is; ``said``: a message,
    ``asked``: what tells the next one."""

    sort: str = "rank"
    filter: str = ""
    scroll: int = 0
    typing: str | None = None
    said: str = ""
    asked: Said | None = None
    keys: bool = True


def screen_lines(frame: Frame, view: View, width: int, height: int) -> list[Text]:
    """At most ``height`` lines. ``view.scroll`` is corrected to what there is."""
    head = _head(frame, width, height)
    active = [alert for alert in frame.alerts if alert.active]
    alerts = _alerts(active, frame.time, width, height)
    nodes = [_cut(node_text(node), width, "dim") for node in frame.nodes]
    # Nodes may take a third of what is left, and none of a small terminal.
    nodes = nodes[: max(0, (height - len(head) - len(alerts) - 8) // 3)] if height > 12 else []
    rows = _chosen(frame, view)
    top = [*head, *alerts, *nodes]
    room = max(0, height - len(top) - 2)  # the table's heading, the last line
    if len(rows) > room and view.sort == "rank":  # those of an alert are never out of sight
        rows.sort(key=lambda row: row.rank not in frame.alerted)
    view.scroll = max(0, min(view.scroll, len(rows) - room))
    shown = rows[view.scroll : view.scroll + room]
    columns = columns_that_fit(frame.ranks, width)
    lines = [*top, Text(headings(columns), "bold")]
    for row in shown:
        text = Text()
        for (column, _), cell in zip(columns, line(row, columns), strict=True):
            style = "yellow" if row.rank in frame.alerted and column.name in ("rank", "doing") else ""
            text.append(cell, style)
            text.append(" ")
        lines.append(text)
    lines = lines[: height - 1] if len(lines) >= height else lines + [Text()] * (height - 1 - len(lines))
    return [*lines, _foot(view, len(shown), len(rows), len(frame.ranks), width)]


def _head(frame: Frame, width: int, height: int) -> list[Text]:
    words = shortest_headline(frame) if width < 60 else headline(frame, short=width < 100)
    text = _cut(words, width, "bold")
    start = words.find(frame.state, len(frame.name))
    text.stylize(_STATE.get(frame.state, "bold"), start, start + len(frame.state))
    if height < 16 and width < 200:
        return [text]
    share = progress_share(frame.step) if frame.step is not None else None
    bar = _bar(share, min(40, width // 3))
    total = frame.samples_per_s
    rates = "" if total is None else f"{rate(total)} samples/s "
    room = width - len(bar) - len(rates) - 2
    curve = sparkline(frame.rate, min(60, room)) if room > 8 and frame.rate else ""
    return [text, _cut("  ".join(filter(None, (bar, rates + curve))), width, "cyan")]


def _bar(share: float | None, width: int) -> str:
    if share is None:
        return ""
    done = round(share * width)
    return f"{'█' * done}{'░' * (width - done)} {100 * share:.0f} %"


def _alerts(active: Sequence[Alert], now: float, width: int, height: int) -> list[Text]:
    """In a low terminal a line for each of the first alerts; in a higher one all of its text."""
    room = max(1, (height - 6) // 3)
    lines: list[Text] = []
    for number, alert in enumerate(active):
        text = wrap("! " + alert_text(alert, now), width, subsequent_indent="  ") or [""]
        hint = wrap(alert.finding.fix, width, initial_indent="  ", subsequent_indent="  ")
        left = room - len(lines)
        if height < 16 or len(text) > left:
            whole = "! " + alert_text(alert, now)
            brief = f"! {alert.finding.code}: {alert.finding.message}"
            text, hint = [whole if len(whole) <= width else _shortened(brief, width)], []
        if left < 1 or (left == 1 and number < len(active) - 1):
            more = f" (+{len(active) - number - (left == 1)} more)"
            if left == 1:
                lines.append(_cut(_shortened(text[0], width - len(more)) + more, width, "yellow"))
            elif lines:
                lines[-1] = _cut(_shortened(str(lines[-1]), width - len(more)) + more, width, "yellow")
            break
        lines += [Text(line, "yellow") for line in text]
        lines += [Text(line, "dim") for line in hint] if len(text) + len(hint) <= left else []
    return lines


def _chosen(frame: Frame, view: View) -> list[RankRow]:
    try:
        rows = filtered(frame.ranks, view.filter, frame.alerted)
    except RankupError:  # while it is being typed
        rows = list(frame.ranks)
    return in_order(rows, view.sort)


def _foot(view: View, shown: int, chosen: int, all_ranks: int, width: int) -> Text:
    if view.typing is not None:
        return _cut(f"filter (0-3,7 or host or !): {view.typing}▏", width, "reverse")
    words = []
    if shown < chosen:
        words.append(f"{view.scroll + 1}-{view.scroll + shown} of {chosen}")
    if view.filter:
        words.append(f"filter {view.filter} ({chosen} of {all_ranks})")
    if view.sort != "rank":
        words.append(f"by {view.sort}")
    words += [view.said] if view.said else [KEYS] if view.keys else []
    return _cut("  ".join(words), width, "dim")


def _cut(text: str, width: int, style: str) -> Text:
    return Text(_shortened(text, width), style, no_wrap=True)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
