"""Throughput, time, speed-up and efficiency against devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rankup.core.units import duration
from rankup.scale.report.figures.picture import (
    INK,
    MARKERS,
    MOST_SERIES,
    MUTED,
    ON_COLOUR,
    LineLabel,
    Picture,
    plain_axes,
    style_of,
    tell_lines,
)
from rankup.scale.report.rows import ReportRow, Spread, device_word
from rankup.scale.report.text import listed, percent, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Value = Callable[[ReportRow], Spread | None]
_ASIDE = 0.06  # of two series at the same devices: in powers of two, or as a share of the axis
_WIDE = (
    8  # from this ratio of devices on, both axes are logarithmic, and the ideal is a straight line there too
)


def throughput(rows: Sequence[ReportRow]) -> Picture | None:
    """Samples per second against devices, with the line of the ideal: the first row, times the devices."""
    if len({row.devices for row in rows}) < 2:
        return None
    first = rows[0]
    told = [f"{short(row.rate.median)} samples/s with {row.name}" for row in rows]
    return Picture(
        "throughput",
        "Throughput",
        f"Throughput against {device_word(rows)}: {_few(told)}.",
        f"Points are medians, bars {rows[0].spread}. The grey line is the ideal: the rate of {first.name} "
        "times the devices.",
        _against_devices(
            rows,
            lambda row: row.rate,
            "samples/s",
            lambda devices: first.rate.median * devices / first.devices,
        ),
    )


def training_time(rows: Sequence[ReportRow]) -> Picture | None:
    """Seconds of training against devices, with the ideal."""
    if len({row.devices for row in rows}) < 2:
        return None
    first = rows[0]
    told = [f"{duration(row.seconds.median)} with {row.name}" for row in rows]
    return Picture(
        "time",
        "Training time",
        f"Training time against {device_word(rows)}: {_few(told)}.",
        f"Points are medians, bars {rows[0].spread}. The grey line is the ideal: the time of {first.name} "
        "divided by the devices.",
        _against_devices(
            rows, lambda row: row.seconds, "training time (s)",
            lambda devices: first.seconds.median * first.devices / devices,
        ),
    )  # fmt: skip


def speedup(rows: Sequence[ReportRow]) -> Picture | None:
    """Speed-up against how many times the devices, both by powers of two; none where nobody may compare."""
    compared = [row for row in rows if row.speedup]
    if len({row.devices for row in compared}) < 2:
        return None
    told = [f"{short(row.speedup.median)}{_mark(row)} with {row.name}" for row in compared if row.speedup]
    least = min(row.devices for row in compared)
    return Picture(
        "speed-up",
        "Speed-up",
        f"Speed-up against {device_word(compared)}: {_few(told)}.",
        "Both axes are logarithmic; the grey line is the ideal: as many times as fast as there are devices. "
        f"Bars are {rows[0].spread}." + _unfair(compared),
        _against_devices(
            compared, lambda row: row.speedup, "speed-up", lambda devices: devices / least, powers=True
        ),
    )


def _mark(row: ReportRow) -> str:
    return " (unfair)" if row.unfair else ""


def _unfair(rows: Sequence[ReportRow]) -> str:
    return " Open points are unfair: the study refuses these comparisons." if any(map(_mark, rows)) else ""


def efficiency(rows: Sequence[ReportRow]) -> Picture | None:
    """Efficiency against devices; none where nobody may compare."""
    compared = [row for row in rows if row.efficiency]
    if len({row.devices for row in compared}) < 2:
        return None
    told = [
        f"{percent(row.efficiency.median)}{_mark(row)} with {row.name}" for row in compared if row.efficiency
    ]
    return Picture(
        "efficiency",
        "Efficiency",
        f"Efficiency against {device_word(compared)}: {_few(told)}.",
        f"Speed-up divided by how many times the devices; 100 % is the ideal. Bars are {rows[0].spread}."
        + _unfair(compared),
        _against_devices(
            compared, lambda row: _times(row.efficiency, 100), "efficiency (%)", lambda _: 100.0, log=False
        ),
    )


def _times(spread: Spread | None, factor: float) -> Spread | None:
    return spread and Spread(factor * spread.median, factor * spread.low, factor * spread.high)


def _few(told: Sequence[str], most: int = 6) -> str:
    """The first and the last ones of many."""
    return listed(told) if len(told) <= most else listed([*told[: most - 1], "…", told[-1]])


def _against_devices(
    rows: Sequence[ReportRow],
    value: Value,
    y: str,
    ideal: Callable[[float], float],
    *,
    log: bool = True,
    powers: bool = False,
) -> Callable[[Figure], None]:
    """``powers``: both axes by powers of two, however few the devices are. Points of several series at the same
    devices stand side by side, so that no error bar covers another."""
    devices = sorted({row.devices for row in rows})
    wide = powers or devices[-1] / devices[0] >= _WIDE
    series_of_all = list(dict.fromkeys(row.series for row in rows))

    def beside(count: int, index: int) -> float:
        """Where the points of a series stand: a little aside of ``count`` if others stand there too."""
        there = [
            one for one in series_of_all if any(row.series == one and row.devices == count for row in rows)
        ]
        step = (there.index(series_of_all[index]) - (len(there) - 1) / 2) * _ASIDE
        return float(count * 2**step) if wide else count + step * (devices[-1] - devices[0])

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        plain_axes(axes, device_word(rows), y)
        line = [devices[0] + (devices[-1] - devices[0]) * part / 64 for part in range(65)]
        axes.plot(line, [ideal(one) for one in line], color=MUTED, linewidth=1, zorder=1)
        labels = []
        for index, series in enumerate(series_of_all):
            mine = [row for row in rows if row.series == series and value(row)]
            points = [(beside(row.devices, index), spread) for row in mine if (spread := value(row))]
            if not points:
                continue
            x, y_values = [one for one, _ in points], [spread.median for _, spread in points]
            bars = [
                [spread.median - spread.low for _, spread in points],
                [spread.high - spread.median for _, spread in points],
            ]
            axes.errorbar(
                x,
                y_values,
                yerr=bars,
                marker=MARKERS[index % MOST_SERIES],
                capsize=3,
                zorder=3,
                **style_of(index),
            )
            for row, (at, spread) in zip(mine, points, strict=True):
                if row.unfair:  # an open point on the filled one
                    axes.plot(
                        at,
                        spread.median,
                        MARKERS[index % MOST_SERIES],
                        color=ON_COLOUR,
                        markersize=3,
                        zorder=4,
                    )
            labels.append(LineLabel(series or "measured", x[-1], y_values[-1], index))
        _scales(axes, devices, wide=wide, log=log and wide)
        if powers:
            _powers(axes)
        _name_ideal(axes, line, ideal, devices[0] * 2**0.5 if powers else line[len(line) // 4])
        tell_lines(axes, labels, marked=True)

    return draw


def _scales(axes: Axes, devices: Sequence[int], *, wide: bool, log: bool) -> None:
    if wide:
        axes.set_xscale("log", base=2)
        axes.set_xlim(devices[0] / 1.15, devices[-1] * 1.15)
    else:
        room = 0.08 * (devices[-1] - devices[0])
        axes.set_xlim(devices[0] - room, devices[-1] + room)
    shown = [
        one for index, one in enumerate(devices) if len(devices) <= 8 or index % (len(devices) // 6) == 0
    ]
    axes.set_xticks(shown, [f"{one:,}" for one in shown], minor=False)
    axes.set_xticks([], minor=True)
    if log:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
        if axes.get_ylim()[1] >= 1000:
            axes.yaxis.set_major_formatter("{x:,.0f}")


def _powers(axes: Axes) -> None:
    """The vertical axis by powers of two, and as long a step on it as on the horizontal one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _name_ideal(axes: Axes, line: Sequence[float], ideal: Callable[[float], float], at: float) -> None:
    """The word on the line, on the side where there is room."""
    falls = ideal(line[-1]) < ideal(line[0])
    axes.annotate(
        "ideal", (at, ideal(at)), xytext=(-4, -4) if falls else (-4, 5), textcoords="offset points",
        ha="right", va="top" if falls else "bottom", color=INK, fontstyle="italic", zorder=4,
    )  # fmt: skip
