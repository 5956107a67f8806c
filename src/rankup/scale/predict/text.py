"""Predictions and advice as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from rankup.core.columns import aligned
from rankup.core.units import duration, rate
from rankup.findings.finding import in_order
from rankup.findings.text import text_lines
from rankup.scale.predict.failures import Reliability
from rankup.scale.predict.interval import LEVEL, MODEL_ERROR
from rankup.scale.predict.prediction import Prediction
from rankup.scale.predict.recommend import Advice, Choice
from rankup.scale.predict.reduced import STRONG

_NOTHING = "–"


def prediction_text(
    choices: Sequence[Choice],
    predictions: Sequence[Prediction],
    reliability: Reliability | None = None,
    width: int | None = None,
) -> str:
    """The table, what it rests on, and the findings. ``reliability``: how often to save on each size, too."""
    by_size = {one.size: one for one in predictions}
    head = ["size", "devices", "samples/s", f"{LEVEL:.0%} interval", "linear", "efficiency"]
    head += (["time"] if choices[0].hours else []) + (["save every", "goodput"] if reliability else [])
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
        if choices[0].hours:
            row.append(_NOTHING if one.hours is None else duration(one.hours * 3600))
        if reliability:
            nodes = one.size.nodes
            row += [duration(reliability.interval(nodes)), f"{reliability.goodput(nodes):.1%}"]
        rows.append(row)
    lines = aligned(rows, right=range(1, len(head)))
    lines += ["", *(f"  {note}" for note in _basis(predictions[0], choices[0]))]
    if reliability:
        lines.append("  save every: Young and Daly's interval; assumed: failures come at random")
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
    if prediction.size.nodes == 1:
        lines[2] = (
            "interval: as over nodes, and how far the largest size misses the others (seen once, so it is wide)"
        )
    elif prediction.scaling == STRONG:
        lines[2] = "interval: twice that of weak scaling; no published curves were there to check it"
    if prediction.scaling == STRONG:
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
