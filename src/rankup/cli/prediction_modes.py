"""What ``rankup predict`` does: predicts from measurements, simulates a machine, or measures the links here."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankup.cli.output import console
from rankup.cli.output.rank_lines import LineView
from rankup.core.registry import target_of
from rankup.core.units import parse_duration
from rankup.errors import RankupError
from rankup.findings.error import findings_of
from rankup.findings.text import text_lines
from rankup.scale.predict.batch_cost import BatchCost, fit_batch_cost
from rankup.scale.predict.buckets import ddp_buckets
from rankup.scale.predict.children import measure_links, parameter_bytes
from rankup.scale.predict.fabrics import BETWEEN, INSIDE, fabric_link
from rankup.scale.predict.links import Links, links_as_dict, read_links, write_links
from rankup.scale.predict.points import Point, Size, from_results, parse_points, read_csv, size_of
from rankup.scale.predict.prediction import predict_next
from rankup.scale.predict.queue_wait import NO_SITE, queue_waits, wait_text
from rankup.scale.predict.recommend import choices, recommend
from rankup.scale.predict.reduced import WEAK
from rankup.scale.predict.simulate import Reliability, Work, simulate_all
from rankup.scale.predict.step_model import fit_step_model
from rankup.scale.predict.stragglers import step_deviation
from rankup.scale.predict.text import advice_text, links_text, prediction_text, simulation_text
from rankup.scale.results import StudyResults, read_results
from rankup.workloads import WORKLOADS

_FORWARD = 1 / 3  # of forward and backward together: the backward pass computes two products for each one


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
    samples_to_target: str
    batch_per_device: int
    deadline: str
    min_efficiency: float
    nproc_per_node: int
    out: Path | None
    links: Path | None
    workload: str
    parameters: str
    compute: float | None
    fabric: str
    inside: str
    ports: int
    node_mtbf: float | None
    save_seconds: float
    restart_seconds: float
    as_json: bool
    site: str
    job: Mapping[str, Any]  # flags of the job that would wait


def predict_sizes(asked: Asked) -> None:
    """Print the prediction of each size of ``--to``, and what to ask for."""
    points, scaling, study = _measured(asked)
    last = points[-1].size
    twice = Size(last.nodes * 2, last.per_node) if last.nodes > 1 else Size(1, last.per_node * 2)
    sizes = _sizes(asked) or [twice]
    predictions = [predict_next(points, size, scaling) for size in sizes]
    deadline = _deadline(asked)
    counts, refused = _samples(asked, [*(p.size for p in points), *sizes])
    among = choices(points, predictions, counts)
    advice = recommend(among, deadline, asked.min_efficiency)
    deviation = step_deviation(study, asked.strategy)
    modelled = _modelled(asked, points, sizes, deviation.sigma)
    device_type = _device_type(study)
    waits = queue_waits(sizes, asked.site, asked.job, device_type) if asked.site else []
    if asked.as_json:
        console.print_json(
            {
                "scaling": scaling,
                "predictions": [one.as_dict() for one in predictions],
                "sizes": [one.as_dict() for one in among],
                "advice": advice.as_dict(),
                "whole_model": {str(size): rate for size, rate in modelled.items()},
                "sigma": asdict(deviation),
                "queue": [one.as_dict() for one in waits],
                "refused": [error.as_dict() for error in refused],
            }
        )
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(prediction_text(among, predictions, modelled, deviation.basis, width))
    for error in refused:
        print("\n".join(text_lines(findings_of(error), width)))
    print("\n" + advice_text(advice, deadline, asked.min_efficiency, wait_text(waits) or NO_SITE))


def simulate_machine(asked: Asked) -> None:
    """Print a step on each size of ``--to``, and with ``--node-mtbf`` what failures leave of it."""
    if asked.results is not None or asked.points:
        raise RankupError(
            "two-sources",
            "a simulation uses no measurements, and some are given",
            context=str(asked.results) if asked.results is not None else f"--points {asked.points!r}",
            hint="leave out --simulate to predict from them",
        )
    buckets = _buckets(asked)
    if buckets is None or asked.compute is None:
        missing = "--compute SECONDS" if buckets is not None else "--workload NAME or --parameters SHAPES"
        raise RankupError(
            "missing-work", f"a simulation needs {missing}", hint="`rankup predict --help` has an example"
        )
    if asked.gpus_per_node is None:
        raise RankupError("unknown-nodes", "a simulation needs --gpus-per-node N")
    if asked.links:
        links = read_links(asked.links)
    else:
        links = Links(fabric_link(asked.inside, INSIDE), fabric_link(asked.fabric, BETWEEN, asked.ports))
    work = Work(
        forward=asked.compute * _FORWARD,
        backward=asked.compute * (1 - _FORWARD),
        buckets=tuple(buckets),
        batch=asked.batch_per_device,
    )
    hours = math.inf if asked.node_mtbf is None else asked.node_mtbf
    if not hours > 0:
        raise RankupError("bad-failures", f"--node-mtbf must be above zero, got {hours:g}")
    reliability = Reliability(hours * 3600, asked.save_seconds, asked.restart_seconds)
    each = asked.gpus_per_node
    sizes = _sizes(asked) or sorted({Size(1, 1), Size(1, each), *(Size(2**k, each) for k in range(1, 9))})
    rows = simulate_all(work, links, sizes, reliability)
    if asked.as_json:
        console.print_json(
            {
                "sizes": [row.as_dict() for row in rows],
                "buckets": buckets,
                "links": links_as_dict(links),
                "assumed": _assumed(asked),
            }
        )
        return
    print(simulation_text(rows, work, links, reliability, _assumed(asked)))


def measure_links_here(asked: Asked) -> None:
    """Time all-reduces with the processes of this machine or allocation, and print α and β."""
    links, records = measure_links({"nproc_per_node": asked.nproc_per_node}, LineView(to_stderr=True))
    if asked.out:
        write_links(links, asked.out)
    if asked.as_json:
        console.print_json({**links_as_dict(links), "measured": records})
        return
    print(links_text(links, records))
    if asked.out:
        print(f"links      {asked.out}")


def _device_type(study: StudyResults | None) -> str:
    """What the study ran on: ``cuda`` or ``cpu``; "" if there is none."""
    runs = [run for one in study.configurations for run in one.runs] if study is not None else []
    return runs[0].device_type if runs else ""


def _measured(asked: Asked) -> tuple[list[Point], str, StudyResults | None]:
    if (asked.results is None) == (not asked.points):
        raise RankupError(
            "no-points" if asked.results is None else "two-sources",
            "give the measurements once: a file, or --points",
            hint='rankup predict results.json, or --points "1:348.6 4:1226 8:2633 16:5115" --gpus-per-node 8',
        )
    if asked.results is None:
        return parse_points(asked.points, asked.gpus_per_node), asked.scaling or WEAK, None
    if asked.results.suffix == ".csv":
        return read_csv(asked.results, asked.gpus_per_node), asked.scaling or WEAK, None
    path = asked.results / "results.json" if asked.results.is_dir() else asked.results
    study = read_results(path)
    if asked.scaling and asked.scaling != study.scaling:
        raise RankupError(
            "other-scaling",
            f"the study measured {study.scaling} scaling, not {asked.scaling}",
            context=str(path),
        )
    return from_results(study, asked.strategy or None), study.scaling, study


def _sizes(asked: Asked) -> list[Size]:
    return sorted(
        {size_of(word, asked.gpus_per_node) for word in re.split(r"[\s,]+", asked.to.strip()) if word}
    )


def _deadline(asked: Asked) -> float | None:
    if not asked.deadline:
        return None
    if asked.samples is None and not asked.samples_to_target:
        raise RankupError(
            "unknown-work",
            "--deadline needs to know how much there is to do",
            hint="--samples N or --samples-to-target",
        )
    try:
        return parse_duration(asked.deadline)
    except ValueError as error:
        raise RankupError("bad-duration", str(error), context=f"--deadline {asked.deadline}") from error


def _samples(asked: Asked, sizes: Sequence[Size]) -> tuple[list[float | None], list[RankupError]]:
    """How many samples each size has to process; None where nobody can say, and why."""
    if not asked.samples_to_target:
        if asked.samples is not None and not (math.isfinite(asked.samples) and asked.samples > 0):
            raise RankupError("bad-samples", f"--samples must be above zero, got {asked.samples:g}")
        return [asked.samples] * len(sizes), []
    cost = _batch_cost(asked.samples_to_target)
    counts: list[float | None] = []
    refused = []
    for size in sizes:
        try:
            counts.append(cost.samples(size.devices * asked.batch_per_device))
        except RankupError as error:
            counts.append(None)
            refused.append(error)
    return counts, refused


def _batch_cost(text: str) -> BatchCost:
    try:
        pairs = [tuple(map(float, word.split(":"))) for word in re.split(r"[\s,]+", text.strip())]
        return fit_batch_cost([(batch, samples) for batch, samples in pairs])
    except ValueError as error:
        raise RankupError(
            "bad-batches",
            f"--samples-to-target {text!r} is not a list of batches and samples",
            hint='--samples-to-target "256:1.2e6 512:1.3e6"',
        ) from error


def _modelled(
    asked: Asked, points: Sequence[Point], sizes: Sequence[Size], sigma: float
) -> dict[Size, float]:
    """Rates by the whole model, if the links are given."""
    if asked.links is None:
        return {}
    buckets = _buckets(asked)
    if buckets is None:
        raise RankupError(
            "missing-work", "--links needs the gradients: --workload NAME or --parameters SHAPES"
        )
    model = fit_step_model(points, buckets, read_links(asked.links), sigma)
    each = next(point.batch / point.size.devices for point in reversed(points) if point.batch)
    return {size: each * size.devices / model.seconds(size) for size in sizes}


def _buckets(asked: Asked) -> list[int] | None:
    if asked.parameters:
        return ddp_buckets([4 * count for count in _counts(asked.parameters)])
    if asked.workload:
        name = asked.workload
        return ddp_buckets(parameter_bytes(name if ":" in name else target_of("workload", name, WORKLOADS)))
    return None


def _counts(text: str) -> list[int]:
    words = [word for word in re.split(r"[\s,]+", text.strip()) if word]
    if not words or not all(re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", word) for word in words):
        raise RankupError(
            "bad-shapes", f"{text!r} is not a list of shapes", hint="--parameters 512x784,512,10x512,10"
        )
    return [math.prod(map(int, word.split("x"))) for word in words]


def _assumed(asked: Asked) -> list[str]:
    lines = [
        "a third of --compute is the forward pass; the backward pass makes gradients at a constant rate",
        "one all-reduce at a time, in nodes and then between them; hops of a ring or a tree, whichever is fewer",
        "reading data keeps up; no device is slower than another; the optimizer takes no time",
    ]
    if asked.links is None:
        used = [
            table[name] for name, table in ((asked.inside, INSIDE), (asked.fabric, BETWEEN)) if name in table
        ]
        lines += [f"{one.title}: {one.efficiency:.0%} of its line rate ({one.source})" for one in used]
    if asked.node_mtbf is not None:
        lines.append("failures come at random; snapshots by Young and Daly's interval")
    return lines
