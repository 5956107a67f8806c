"""Eight published curves: from at most 2 nodes to 4, beside the linear baseline. Nothing is timed.

Each round is a curve; a value is the absolute error of the predicted rate in percent. The error of the model in
``rankup/scale/predict/interval.py`` comes from these very curves, so its coverage here proves nothing. The test that
leaves one setup out says more.
"""

from __future__ import annotations

import statistics

from benchmarks.contest import Claim, Result
from rankup.scale.predict.curves import CURVES, GPUS, PER_NODE
from rankup.scale.predict.points import Size
from rankup.scale.predict.prediction import predict_next, score

OURS, LINEAR = "reduced form, mean", "linear, mean"


def run(quick: bool) -> Result:
    target = Size(GPUS[-1] // PER_NODE, PER_NODE)
    predicted = [predict_next(curve.points(GPUS[-2]), target) for curve in CURVES]
    scores = [score(p, curve.rates[-1]) for p, curve in zip(predicted, CURVES, strict=True)]
    ours = [100 * abs(one.error) for one in scores]
    linear = [100 * abs(one.linear_error) for one in scores]
    held = sum(one.within for one in scores)
    # A contender's value is the median of its rounds: mean and maximum are rounds of their own.
    rounds = {
        OURS: [statistics.mean(ours)],
        LINEAR: [statistics.mean(linear)],
        "reduced form, largest": [max(ours)],
        "linear, largest": [max(linear)],
        **{f"{curve.name}": [error] for curve, error in zip(CURVES, ours, strict=True)},
    }
    claims = [
        Claim("reduced form, mean error, %", OURS, None, 4, at_most=True),
        Claim("reduced form, largest error, %", "reduced form, largest", None, 8, at_most=True),
        Claim("linear baseline, mean error, %", LINEAR, None, None, at_most=True),
        Claim("linear baseline, largest error, %", "linear, largest", None, None, at_most=True),
    ]
    notes = [
        f"The 90% interval held {held} of {len(CURVES)}; its width comes from the same curves.",
        f"Linear errors: {', '.join(f'{error:.1f}' for error in linear)} %, in the same order.",
        "Not used: the mean of the reduced form and the linear baseline, which has 1.8 % here. Half of the curves are "
        "of one model, and there is no reason why it should be better elsewhere.",
    ]
    settings = {"curves": len(CURVES), "measured": "1, 4, 8, 16 GPUs", "predicted": "32 GPUs, 4 nodes"}
    return Result("prediction", "Predicting four nodes from two", "% error", settings, rounds, claims, notes)
