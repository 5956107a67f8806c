"""The files of a figure: SVG, PDF, PNG, and the SVG of the page. The same numbers give the same bytes."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from rankup.core import forked
from rankup.scale.report.figures.picture import DARK, GRID, INK, MUTED, Picture

SIZE = (4.4, 3.1)  # inches: a column of a paper; on a phone its 10 points are about 11 pixels
_STYLE: Any = {
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.7,
    "lines.markersize": 6,
    "pdf.fonttype": 42,  # TrueType, which journals take
    "svg.fonttype": "none",  # text stays text
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a name is a "$"
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}
# Without these the bytes would tell when and by which version they were made.
_BACKENDS: Mapping[str, tuple[Any, dict[str, None]]] = {
    "svg": (FigureCanvasSVG, {"Date": None, "Creator": None}),
    "pdf": (FigureCanvasPdf, {"CreationDate": None, "Creator": None, "Producer": None}),
    "png": (FigureCanvasAgg, {"Software": None}),
}


@dataclass(frozen=True)
class Drawn:
    """``files``: ending → bytes, for a paper. ``inline``: the SVG for the page, with variables for colours."""

    picture: Picture
    files: Mapping[str, bytes]
    inline: str


def draw_all(pictures: Sequence[Picture]) -> list[Drawn]:
    """Draw each of ``pictures`` in all formats, whatever the user's matplotlibrc says."""
    return [
        Drawn(picture, files, _inline(files["svg"].decode(), picture))
        for picture, files in zip(pictures, forked.each(_files, pictures), strict=True)
    ]


@contextlib.contextmanager
def style(salt: str) -> Iterator[None]:
    """Ours, whatever the user's matplotlibrc says; ``salt`` makes the names in a file the same each time."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        matplotlib.rcParams["svg.hashsalt"] = salt
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # browsers have other fonts
        warnings.filterwarnings("ignore", message=".*Matplotlib currently does not support")
        yield


def _files(picture: Picture) -> dict[str, bytes]:
    with style(picture.name):
        figure = Figure(figsize=SIZE)
        picture.draw(figure)
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # what was laid out stays: not once more for each format
        return {ending: _bytes(figure, ending) for ending in _BACKENDS}


def _bytes(figure: Figure, ending: str) -> bytes:
    canvas, silent = _BACKENDS[ending]
    canvas(figure)
    buffer = io.BytesIO()
    figure.savefig(
        buffer,
        format=ending,
        metadata=silent,
        dpi=300 if ending == "png" else 72,
        transparent=ending != "png",
    )
    return buffer.getvalue()


def _inline(svg: str, picture: Picture) -> str:
    """The SVG as a part of a page: no header, no style of its own, ids that no other figure has, colours by name."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    used = set(re.findall(r"(?:href=\"#|url\(#)([^\")]+)", body))
    body = re.sub(
        r'\s+id="([^"]*)"', lambda match: f' id="{picture.name}-{match[1]}"' if match[1] in used else "", body
    )
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{picture.name}-", body)
    for index, colour in enumerate(DARK):
        body = body.replace(colour, f"var(--figure-{index})")
    # Fonts of the page: the widths differ little, and labels have room.
    body = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", body)
    head = re.match(r"<svg [^>]*?viewBox=\"([^\"]*)\"[^>]*>", body, flags=re.DOTALL)
    assert head is not None, "matplotlib writes a viewBox"
    opening = f'<svg viewBox="{head[1]}" role="img" aria-label="{escape(picture.alt, quote=True)}" focusable="false">'
    return opening + re.sub(r"\n\s*", "\n", body[head.end() :]).strip()
