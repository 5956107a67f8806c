"""Frame after frame on a terminal, until the run ends or ``q`` is pressed."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live

from rankup.cli.output.top.columns import SORTS
from rankup.cli.output.top.keyboard import Keyboard
from rankup.cli.output.top.screen import Said, View, screen_lines
from rankup.errors import RankupError
from rankup.monitor.frame import Frame


def show(
    read: Callable[[], Frame], view: View, interval: float, ask_for_stacks: Callable[[Frame], Said]
) -> Frame:
    """The last frame. ``read`` gives the next one; ``ask_for_stacks`` is what ``p`` does."""
    console = Console(highlight=False, emoji=False)
    now = read()
    with Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        view.keys = keyboard.there
        due = time.monotonic() + interval
        while not now.ended:
            width, height = console.size
            if view.asked is not None:
                view.said = view.asked.message()
            live.update(Group(*screen_lines(now, view, width, height)), refresh=True)
            for key in keyboard.keys(max(0.0, due - time.monotonic())):
                if not press(key, view, now, ask_for_stacks):
                    return now
            if time.monotonic() >= due:
                now, due = read(), time.monotonic() + interval
    return now


def press(key: str, view: View, frame: Frame, ask_for_stacks: Callable[[Frame], Said]) -> bool:
    """What ``key`` does to ``view``; False if it ends the view."""
    if view.typing is not None:
        _type(key, view)
        return True
    view.said, view.asked = "", None
    if key in ("q", "Q", "\x04"):
        return False
    if key == "s":
        names = list(SORTS)
        view.sort = names[(names.index(view.sort) + 1) % len(names)]
    elif key == "f":
        view.typing = view.filter
    elif key == "escape":
        view.filter, view.scroll = "", 0
    elif key == "p":
        try:
            view.asked = ask_for_stacks(frame)
        except RankupError as error:
            view.said = str(error)
    elif key in "jJkK":
        view.scroll += {"j": 1, "J": 10, "k": -1, "K": -10}[key]
    return True


def _type(key: str, view: View) -> None:
    assert view.typing is not None
    if key in ("\r", "\n"):
        view.filter, view.typing, view.scroll = view.typing, None, 0
    elif key == "escape":
        view.typing = None
    elif key in ("\x7f", "\b"):
        view.typing = view.typing[:-1]
    elif key.isprintable():
        view.typing += key
