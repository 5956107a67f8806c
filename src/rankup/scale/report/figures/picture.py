"""A figure as data: its name, its words, and a function that draws it; colours and labels.

A colour is given once, as it is on white. The page replaces it by a variable that has another value in the dark
(``DARK``). Series differ in colour, marker and dashes, so that no colour has to be told from another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rankup.scale.report.text import clipped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, ON_COLOUR = "#1d2730", "#586470", "#d9dfe5", "#fefefe"
SERIES = ("#0068a8", "#c44e00", "#007a5a", "#a03f82", "#806000", "#51606e")
#: What stands for each colour in the dark; the order is that of the style sheet's variables.
DARK = {
    INK: "#e8edf2",
    MUTED: "#a4b0bc",
    GRID: "#36414c",
    ON_COLOUR: "#101418",
    SERIES[0]: "#5ab8f5",
    SERIES[1]: "#ff9350",
    SERIES[2]: "#35cfa3",
    SERIES[3]: "#e79fd0",
    SERIES[4]: "#e3b93f",
    SERIES[5]: "#b3bfca",
}
MARKERS = "os^DvP"
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (3, 1)),
    (0, (8, 3)),
)
MOST_SERIES = len(SERIES)
_DIRECT = 4  # more lines are told by a legend
MOST_CHARACTERS = 40  # of a name in a figure
_LONGEST = 16  # characters of a label beside its line: longer ones would take the figure's width


@dataclass(frozen=True)
class Picture:
    """``alt`` says what it shows in a sentence with numbers, ``caption`` how to read it. ``draw`` fills a figure."""

    name: str
    title: str
    alt: str
    caption: str
    draw: Callable[[Figure], None]


@dataclass(frozen=True)
class LineLabel:
    """What a line is called, and where it ends."""

    text: str
    x: float
    y: float
    index: int

    @property
    def colour(self) -> str:
        return SERIES[self.index % MOST_SERIES]


def plain_axes(axes: Axes, x: str, y: str) -> None:
    """Two spines, a quiet grid along y, labels with their units."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def style_of(index: int) -> dict[str, Any]:
    return {"color": SERIES[index % MOST_SERIES], "linestyle": DASHES[index % MOST_SERIES]}


def tell_lines(axes: Axes, labels: Sequence[LineLabel], *, marked: bool = False) -> None:
    """Write each label at the end of its line if there are few and short ones, else a legend above the axes."""
    if len(labels) < 2:
        return
    if len(labels) <= _DIRECT and all(len(one.text) <= _LONGEST for one in labels):
        _beside(axes, labels)
        return
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], **style_of(one.index), marker=MARKERS[one.index % MOST_SERIES] if marked else "")
        for one in labels
    ]
    # A label that begins with "_" would be left out.
    texts = ["\u2060" * one.text.startswith("_") + clipped(one.text, MOST_CHARACTERS) for one in labels]
    longest = max(len(text) for text in texts)
    columns = 1 if longest > 16 else 2 if longest > 10 else 3
    figure: Any = axes.figure
    rows = -(-len(texts) // columns)
    figure.set_size_inches(
        figure.get_figwidth(), figure.get_figheight() + 0.2 * rows
    )  # the plot keeps its height
    axes.legend(
        handles, texts, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns, frameon=False,
        borderaxespad=0.2, handlelength=2.2, columnspacing=1.2,
    )  # fmt: skip


def _beside(axes: Axes, labels: Sequence[LineLabel]) -> None:
    """Labels at the right edge, moved apart where lines end close to each other."""
    low, high = axes.get_ylim()
    to_share = axes.transScale + axes.transLimits  # data → share of the axes, also on a logarithmic scale
    ends = (
        sorted(
            ((float(to_share.transform((one.x, one.y))[1]), one) for one in labels), key=lambda pair: pair[0]
        )
        if high > low
        else []
    )
    gap = 0.085
    places: list[float] = []
    for share, _ in ends:
        places.append(max(share, places[-1] + gap) if places else share)
    over = places[-1] - 1.0 if places else 0.0
    if over > 0:  # push down from the top
        places[-1] -= over
        for index in range(len(places) - 2, -1, -1):
            places[index] = min(places[index], places[index + 1] - gap)
    for place, (_, one) in zip(places, ends, strict=True):
        axes.annotate(
            one.text,
            (1.02, place),
            xycoords="axes fraction",
            color=one.colour,
            va="center",
            annotation_clip=False,
        )
