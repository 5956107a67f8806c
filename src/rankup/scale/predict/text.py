"""Predictions, simulations and links as plain text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rankup.core.columns import aligned
from rankup.core.units import duration, rate
from rankup.findings.finding import in_order
from rankup.findings.text import text_lines
from rankup.scale.predict.interval import LEVEL, MODEL_ERROR
from rankup.scale.predict.links import FREE, Link, Links
from rankup.scale.predict.points import Size
from rankup.scale.predict.prediction import Prediction
from rankup.scale.predict.recommend import Advice, Choice
from rankup.scale.predict.reduced import STRONG
from rankup.scale.predict.simulate import Reliability, Simulated, Work

_NOTHING = "–"


def prediction_text(
    choices: Sequence[Choice],
    predictions: Sequence[Prediction],
    modelled: Mapping[Size, float],
    deviation: str = "",
    width: int | None = None,
) -> str:
    """The table, what it rests on, and the findings. ``modelled``: rates by the whole model, where there is one.

    ``deviation``: what its σ rests on.
    """
    by_size = {one.size: one for one in predictions}
    head = ["size", "devices", "samples/s", f"{LEVEL:.0%} interval", "linear", "efficiency"]
    head += (["whole model"] if modelled else []) + (["time"] if choices[0].hours else [])
    rows = [head]
    for one in choices:
        predicted = by_size.get(one.size) if not one.measured else None
        row = [str(one.size), f"{one.size.devices}", rate(one.rate)]
        row += (
            [f"{rate(one.low)}–{rate(one.high)}", rate(predicted.linear)]
            if predicted
            else ["measured", _NOTHING]
        )
        row.append(f"{one.efficiency:.0%}")
        if modelled:
            row.append(rate(modelled[one.size]) if one.size in modelled else _NOTHING)
        if choices[0].hours:
            row.append(_NOTHING if one.hours is None else duration(one.hours * 3600))
        rows.append(row)
    lines = aligned(rows, right=range(1, len(head)))
    lines += ["", *(f"  {note}" for note in _basis(predictions[0], choices[0]))]
    if modelled:
        lines.append(f"  whole model: σ of one device's step is {deviation}")
    findings = in_order(finding for one in predictions for finding in one.findings)
    if findings:
        lines += ["", *text_lines(findings, width)]
    return "\n".join(lines)


def _basis(prediction: Prediction, first: Choice) -> list[str]:
    used = ", ".join(str(size) for size in prediction.measured)
    form = "T(N) = c/N + a + e·2(n−1)/n" if prediction.scaling == STRONG else "T(n) = T(1) + e·2(n−1)/n"
    lines = [
        f"fitted to {used}: {form}, with e at least 0",
        "linear: the largest measured rate × devices, without any loss",
        f"interval: {MODEL_ERROR:.1%} for each doubling, known from 8 published curves, and the noise of the points",
        f"efficiency: against a device of {first.size}",
        "assumed: the same nodes, network, batch and data, and that reading data keeps up",
    ]
    if prediction.scaling == STRONG:
        lines[2] = "interval: twice that of weak scaling; no published curves were there to check it"
        lines[4] = "assumed: the same nodes, network and data, and the same global batch on every size"
    return lines


def advice_text(advice: Advice, deadline: float | None, min_efficiency: float, wait: str) -> str:
    """One line for each question; ``wait``: what the scheduler says of the queue."""

    def named(choice: Choice | None) -> str:
        if choice is None:
            return "none of these sizes"
        cost = choice.device_hours
        spent = (
            ""
            if cost is None or choice.hours is None
            else (f", {duration(choice.hours * 3600)}, {cost:,.1f} device-hours")
        )
        return f"{choice.size} ({choice.efficiency:.0%} efficient{spent})"

    lines = []
    if deadline is not None:
        sure = " (by the prediction; its slow end is later)" if advice.likely else ""
        lines.append(f"smallest within {duration(deadline)}: {named(advice.smallest_in_time)}{sure}")
    if advice.cheapest is not None:
        lines.append(f"cheapest{' in time' if deadline is not None else ''}: {named(advice.cheapest)}")
    lines.append(f"most efficient: {named(advice.most_efficient)}")
    lines.append(f"fastest of at least {min_efficiency:.0%} efficiency: {named(advice.fastest)}")
    lines.append(f"wait in the queue: {wait}")
    return "\n".join(lines)


def simulation_text(
    rows: Sequence[Simulated], work: Work, links: Links, reliability: Reliability, assumed: Sequence[str]
) -> str:
    head = ["size", "devices", "step", "communication", "exposed", "samples/s", "efficiency"]
    failing = math.isfinite(reliability.node_mtbf)
    head += ["save every", "goodput"] if failing else []
    table = [head]
    for one in rows:
        row = [
            str(one.size),
            f"{one.size.devices}",
            _ms(one.seconds),
            _ms(one.communication),
            _ms(one.exposed),
        ]
        row += [rate(one.rate), f"{one.efficiency:.1%}"]
        if failing:
            row += [duration(one.interval), f"{one.goodput:.1%}"]
        table.append(row)
    lines = aligned(table, right=range(1, len(head)))
    count = len(work.buckets)
    buckets = f"{count} bucket{'s' * (count != 1)} of gradients, {sum(work.buckets) / 1024**2:,.1f} MiB"
    lines += ["", f"  {buckets}; links: {_links(links)}", *(f"  assumed: {one}" for one in assumed)]
    return "\n".join(lines)


def links_text(links: Links, records: Sequence[Mapping[str, float]]) -> str:
    rows = [["link", "bytes", "measured", "fitted"]]
    for record in records:
        name, size, devices = str(record["link"]), record["bytes"], int(record["devices"])
        link: Link = getattr(links, name)
        rows.append(
            [name, f"{size:,}", _ms(record["seconds"]), _ms(link.allreduce(size, devices, links.algorithm))]
        )
    return "\n".join([*aligned(rows, right=(1, 2, 3)), "", f"  {_links(links)}"])


def _links(links: Links) -> str:
    return ", ".join(
        f"{name} {'free' if link == FREE else f'α {link.alpha * 1e6:.3g} µs, β {link.beta / 1e9:.3g} GB/s'}"
        for name, link in (("inside a node", links.inside), ("between nodes", links.between))
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"
