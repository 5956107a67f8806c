"""GPUs that compute nothing although the training runs, and GPUs of the job that no rank uses."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.monitor.alerts.alert import LIMITS, Symptom, ranges, rank_names
from rankup.monitor.alerts.standstill import is_still
from rankup.monitor.rows import gpu_place, rates
from rankup.monitor.series import NodePoint, NodeSeries, RankSeries, RunSeries

_LIMITS = LIMITS["gpu-idle"]


def idle_gpus(run: RunSeries, now: float) -> Iterator[Symptom]:
    """Before the first step nothing is said: imports and compilers take minutes. A standstill is told elsewhere."""
    ranks = run.current_ranks(now)
    lasts = [last for one in ranks if (last := one.series.last(now)) is not None]
    if ranks and (all(last.steps == 0 or last.phase == "ended" for last in lasts) or is_still(run, now)):
        return
    users: dict[tuple[str, int], RankSeries] = {}
    for one in ranks:
        if (place := gpu_place(run, one, ranks, now)) is not None:
            users[one.host, place] = one
    idle_ranks: list[RankSeries] = []
    for node in run.nodes.values():
        unused = []
        for place in _idle(node, now):
            user = users.get((node.host, place))
            if user is not None and not _waits_for_data(user, now):
                idle_ranks.append(user)
            elif (user is None and any(host == node.host for host, _ in users)) or not ranks:
                unused.append(place)
        if unused:
            yield _unused(node, unused, told=bool(ranks), now=now)
    if idle_ranks:
        many = len(idle_ranks) > 1
        yield Symptom(
            "gpu-idle",
            "ranks",
            f"the GPU{'s' * many} of {rank_names(idle_ranks)} compute{'s' * (not many)} nothing",
            "the steps are too small, run on the CPU, or the script does other work: see the column doing",
            ranks=tuple(sorted(one.rank for one in idle_ranks)),
            lost=len(idle_ranks),
            hold=_LIMITS["hold"],
        )


def _unused(node: NodeSeries, places: list[int], *, told: bool, now: float) -> Symptom:
    last = node.series.last(now)
    assert last is not None
    numbers = sorted(last.gpus[place].nvml_index or 0 for place in places)
    many = len(places) > 1
    no_rank = f", and no rank uses {'them' if many else 'it'}" if told else ""
    return Symptom(
        "gpu-idle",
        f"node {node.host}",
        f"GPU{'s' * many} {ranges(numbers)} of {node.host} compute{'s' * (not many)} nothing{no_rank}",
        "start a process for each GPU (--nproc-per-node), or request fewer GPUs"
        if told
        else "does the program use the GPU? `rankup logs` shows what it prints",
        lost=len(places),
        hold=_LIMITS["hold"],
    )


def _idle(node: NodeSeries, now: float) -> list[int]:
    points = node.series.window(now - _LIMITS["window"], now)
    if len(points) < 3 or points[-1].time - points[0].time < _LIMITS["window"] / 2:
        return []
    count = min(len(point.gpus) for point in points)
    return [
        place
        for place in range(count)
        if (mean := _mean(points, place)) is not None and mean < _LIMITS["percent"]
    ]


def _mean(points: list[NodePoint], place: int) -> float | None:
    told = [use for point in points if (use := point.gpus[place].utilization) is not None]
    return sum(told) / len(told) if len(told) * 2 > len(points) else None


def _waits_for_data(one: RankSeries, now: float) -> bool:
    return (rates(one.series, now, _LIMITS["window"]).data_share or 0.0) > LIMITS["loader-bound"]["of_a_step"]
