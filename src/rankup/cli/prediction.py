"""What ``rankup predict`` does: reads the measurements, predicts each size of ``--to``, recommends one."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankup.cli.output import console
from rankup.core.units import parse_duration
from rankup.errors import RankupError
from rankup.scale.predict.failures import Reliability
from rankup.scale.predict.points import Point, Size, from_results, parse_points, read_csv, size_of
from rankup.scale.predict.prediction import predict_next
from rankup.scale.predict.queue_wait import NO_SITE, queue_waits, wait_text
from rankup.scale.predict.recommend import choices, recommend
from rankup.scale.predict.reduced import WEAK
from rankup.scale.predict.text import advice_text, prediction_text
from rankup.scale.results import read_results


@dataclass(frozen=True)
class Asked:
    """The options of the command, by their names."""

    results: Path | None
    points: str
    gpus_per_node: int | None
    scaling: str
    strategy: str
    to: str
    samples: float | None
    deadline: str
    min_efficiency: float
    node_mtbf: float | None
    save_seconds: float
    restart_seconds: float
    as_json: bool
    site: str
    job: Mapping[str, Any]  # flags of the job that would wait


def predict_sizes(asked: Asked) -> None:
    """Print the prediction of each size of ``--to``, and what to ask for."""
    points, scaling, device_type = _measured(asked)
    last = points[-1].size
    twice = Size(last.nodes * 2, last.per_node) if last.nodes > 1 else Size(1, last.per_node * 2)
    words = re.split(r"[\s,]+", asked.to.strip())
    sizes = sorted({size_of(word, asked.gpus_per_node) for word in words if word}) or [twice]
    predictions = [predict_next(points, size, scaling) for size in sizes]
    deadline, reliability = _deadline(asked), _reliability(asked)
    if asked.samples is not None and not (math.isfinite(asked.samples) and asked.samples > 0):
        raise RankupError("bad-samples", f"--samples must be above zero, got {asked.samples:g}")
    among = choices(points, predictions, asked.samples)
    advice = recommend(among, deadline, asked.min_efficiency)
    waits = queue_waits(sizes, asked.site, asked.job, device_type) if asked.site else []
    if asked.as_json:
        console.print_json(
            {
                "scaling": scaling,
                "predictions": [one.as_dict() for one in predictions],
                "sizes": [
                    {**one.as_dict(), "save_every": reliability and reliability.interval(one.size.nodes)}
                    for one in among
                ],
                "advice": advice.as_dict(),
                "queue": [one.as_dict() for one in waits],
            }
        )
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(prediction_text(among, predictions, reliability, width))
    print("\n" + advice_text(advice, deadline, asked.min_efficiency, wait_text(waits) or NO_SITE))


def _measured(asked: Asked) -> tuple[list[Point], str, str]:
    """The points, their kind of scaling, and of a study what it ran on: ``cuda`` or ``cpu``."""
    if (asked.results is None) == (not asked.points):
        raise RankupError(
            "no-points" if asked.results is None else "two-sources",
            "give the measurements once: a file, or --points",
            hint='rankup predict results.json, or --points "1:348.6 4:1226 8:2633 16:5115" --gpus-per-node 8',
        )
    if asked.results is None:
        return parse_points(asked.points, asked.gpus_per_node), asked.scaling or WEAK, ""
    if asked.results.suffix == ".csv":
        return read_csv(asked.results, asked.gpus_per_node), asked.scaling or WEAK, ""
    path = asked.results / "results.json" if asked.results.is_dir() else asked.results
    study = read_results(path)
    if asked.scaling and asked.scaling != study.scaling:
        raise RankupError(
            "other-scaling",
            f"the study measured {study.scaling} scaling, not {asked.scaling}",
            context=str(path),
        )
    devices = {run.device_type for one in study.configurations for run in one.runs}
    return from_results(study, asked.strategy or None), study.scaling, min(devices, default="")


def _deadline(asked: Asked) -> float | None:
    if not asked.deadline:
        return None
    if asked.samples is None:
        hint = "--samples N"
        raise RankupError("unknown-work", "--deadline needs to know how much there is to do", hint=hint)
    try:
        return parse_duration(asked.deadline)
    except ValueError as error:
        raise RankupError("bad-duration", str(error), context=f"--deadline {asked.deadline}") from error


def _reliability(asked: Asked) -> Reliability | None:
    if asked.node_mtbf is None:
        return None
    if not (math.isfinite(asked.node_mtbf) and asked.node_mtbf > 0):
        raise RankupError("bad-failures", f"--node-mtbf must be above zero, got {asked.node_mtbf:g}")
    return Reliability(asked.node_mtbf * 3600, asked.save_seconds, asked.restart_seconds)
