"""Each alert fires on its planted cause, on nothing else, and on nothing at all in a healthy hour."""

from __future__ import annotations

import pytest

from synthetic_hour import BEGIN, GIB, STEP, Moment, alerts_of

PLANTED = 900  # seconds after the begin: in the second epoch


def slow_rank(moment: Moment) -> None:
    """Rank 3 computes twice as long; the others wait for it."""
    if moment.second >= PLANTED and moment.steps:
        moment.steps /= 2
        moment.own[3] *= 2


def slow_node(moment: Moment) -> None:
    """All ranks of n2."""
    if moment.second >= PLANTED and moment.steps:
        moment.steps /= 2
        for rank in (4, 5, 6, 7):
            moment.own[rank] *= 2


def slow_loader(moment: Moment) -> None:
    """Rank 5 waits for data in half of each step, and the others wait for it."""
    if moment.second >= PLANTED and moment.steps:
        moment.steps /= 2
        moment.data[5] = STEP
        moment.own[5] += STEP
        moment.use[5] = 2.0


def slow_loaders(moment: Moment) -> None:
    """All ranks wait for data, so long that their GPUs have next to nothing to do."""
    if moment.second >= PLANTED and moment.steps:
        moment.steps /= 20
        for rank in moment.data:
            moment.data[rank] = 19 * STEP
            moment.own[rank] += 19 * STEP
            moment.use[rank] = 3.0


def stopped_rank(moment: Moment) -> None:
    """Rank 1 gets a SIGSTOP; the others wait for it, and NCCL keeps their GPUs busy."""
    if moment.second >= PLANTED:
        moment.steps = 0.0
        moment.silent = {1}
        moment.use = dict.fromkeys(moment.use, 100.0) | {1: 0.0}
        moment.phase = dict.fromkeys(moment.phase, "arrived")


def hanging_loader(moment: Moment) -> None:
    if moment.second >= PLANTED:
        moment.steps = 0.0
        moment.use = dict.fromkeys(moment.use, 0.0)
        moment.phase = dict.fromkeys(moment.phase, "arrived") | {6: "data"}


def hanging_optimizer(moment: Moment) -> None:
    """Rank 2 hangs behind the reduction of a step; the others have finished it, and wait in the next reduction."""
    if moment.second >= PLANTED:
        moment.steps = 0.0
        moment.behind = {2}
        moment.use = dict.fromkeys(moment.use, 100.0) | {2: 0.0}
        moment.phase = dict.fromkeys(moment.phase, "arrived")


def hanging_network(moment: Moment) -> None:
    if moment.second >= PLANTED:
        moment.steps = 0.0
        moment.use = dict.fromkeys(moment.use, 100.0)
        moment.phase = dict.fromkeys(moment.phase, "arrived")


def killed_job(moment: Moment) -> None:
    if moment.second >= PLANTED:
        moment.steps = 0.0
        moment.silent = set(range(8))
        moment.use = dict.fromkeys(moment.use, 0.0)


def idle_gpu(moment: Moment) -> None:
    """Rank 2 computes on its CPU, in time."""
    if moment.second >= PLANTED:
        moment.use[2] = 0.0


def unused_gpus(moment: Moment) -> None:
    moment.unused_gpus = 2


def full_gpu(moment: Moment) -> None:
    if moment.second >= PLANTED:
        moment.gpu_memory[4] = 79.2 * GIB


def leak(moment: Moment) -> None:
    """10 GiB a minute on n1."""
    if moment.second >= PLANTED:
        moment.job_memory["n1"] = min(255.0, 150 + (moment.second - PLANTED) / 6) * GIB


def filling_disk(moment: Moment) -> None:
    if moment.second >= PLANTED:
        moment.disk_free -= (moment.second - PLANTED) * 0.3 * GIB


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("gpus", "every"),
    [(True, 10), (False, 10), *(pytest.param(gpus, 1, marks=pytest.mark.campaign) for gpus in (True, False))],
)
def test_a_healthy_hour_has_no_alert(every: int, gpus: bool):
    assert alerts_of(every=every, gpus=gpus) == {}


# Seconds between records, which come more seldom after an hour.
@pytest.mark.repeated
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.campaign), 10])
@pytest.mark.parametrize(
    ("plant", "code", "ranks", "words"),
    [
        (slow_rank, "straggler", (3,), "rank 3 on n1 is slow"),
        (slow_node, "straggler", (4, 5, 6, 7), "node n2 (ranks 4-7) is slow"),
        (slow_loader, "loader-bound", (5,), "rank 5 on n2 waits for data in 5"),
        (slow_loaders, "loader-bound", tuple(range(8)), "all ranks wait for data in 9"),
        (stopped_rank, "no-step", (1,), "rank 1 on n1 tells nothing any more, and the other ranks wait"),
        (hanging_loader, "no-step", (6,), "rank 6 on n2 waits for data, and the other ranks wait"),
        (
            *(hanging_optimizer, "no-step", (2,)),
            "rank 2 on n1 does not finish its step after the reduction, and the other ranks wait",
        ),
        (hanging_network, "no-step", (), "all ranks have computed their gradients, and wait in the reduction"),
        (killed_job, "no-step", (), "no rank has written anything for"),
        (idle_gpu, "gpu-idle", (2,), "the GPU of rank 2 on n1 computes nothing"),
        (unused_gpus, "gpu-idle", (), "compute nothing, and no rank uses them"),
        (full_gpu, "memory-near-limit", (4,), "GPU 0 of n2 (rank 4) has 79.2 of 80.0 GiB in use"),
        (leak, "memory-near-limit", (0, 1, 2, 3), "memory of n1: the job has (its limit there) 255.0 of 256.0"),
        (filling_disk, "disk-full-soon", (), "the disk of the run directory is full in"),
    ],
)  # fmt: skip
def test_an_alert_fires_on_its_cause_and_on_nothing_else(plant, code, ranks, words, every):
    found = alerts_of(plant, every=every, seconds=PLANTED + 1200)
    assert [*found] == [code]
    for alert in found[code]:
        assert alert.ranks == ranks and words in alert.finding.message, alert.finding.message
        assert alert.finding.fix and alert.unit == "GPU"


def test_an_alert_begins_with_its_cause_and_tells_the_hours_lost():
    [alert] = alerts_of(slow_rank, seconds=PLANTED + 300)["straggler"]
    assert BEGIN + PLANTED < alert.since < BEGIN + PLANTED + 60
    # Seven ranks wait for half of each step.
    assert alert.hours_lost == pytest.approx(
        7 * 0.42 * (BEGIN + PLANTED + 300 - alert.since) / 3600, rel=0.15
    )
    assert "GPU-hours lost" in alert.cost


@pytest.mark.slow
def test_a_standstill_costs_from_its_begin():
    [alert] = alerts_of(hanging_loader, seconds=PLANTED + 600)["no-step"]
    assert alert.since == pytest.approx(BEGIN + PLANTED, abs=3)
    assert alert.hours_lost == pytest.approx(8 * 600 / 3600, rel=0.03)


@pytest.mark.slow
def test_what_passes_in_seconds_is_no_alert():
    def blip(moment: Moment) -> None:
        if PLANTED <= moment.second < PLANTED + 15:
            slow_rank(moment)
            slow_loader(moment)
            full_gpu(moment)

    assert alerts_of(blip, seconds=PLANTED + 600) == {}


def test_an_alert_ends_after_its_cause():
    def for_some_minutes(moment: Moment) -> None:
        if moment.second < PLANTED + 300:
            slow_rank(moment)

    [alert] = alerts_of(for_some_minutes, seconds=PLANTED + 600)["straggler"]
    assert not alert.active and alert.until is not None
    assert BEGIN + PLANTED + 290 < alert.until < BEGIN + PLANTED + 340


def test_a_rank_that_waits_for_a_straggler_is_none():
    """The step of every rank is as long; only one of them is slow."""
    [alert] = alerts_of(slow_rank, world=2 + 2, seconds=PLANTED + 300)["straggler"]
    assert alert.ranks == (3,)


@pytest.mark.slow
def test_the_first_step_may_take_minutes():
    def compiling(moment: Moment) -> None:
        if moment.second < 800:
            moment.steps = 0.0
            moment.phase = dict.fromkeys(moment.phase, "step")
            moment.use = dict.fromkeys(moment.use, 0.0)

    assert alerts_of(compiling, seconds=1200) == {}


@pytest.mark.slow
def test_an_evaluation_may_take_minutes():
    def evaluating(moment: Moment) -> None:
        if PLANTED <= moment.second < PLANTED + 600:
            moment.steps = 0.0
            moment.phase = dict.fromkeys(moment.phase, "after-epoch")
            moment.use = dict.fromkeys(moment.use, 60.0)

    assert alerts_of(evaluating, seconds=PLANTED + 900) == {}


def test_other_strategies_have_no_stragglers():
    """A stage of a pipeline has work of its own."""
    from rankup.monitor.alerts.slow_ranks import stragglers
    from synthetic_hour import Records, moments

    records = Records(8)
    for moment in moments(slow_rank, 8, PLANTED + 200):
        time = records.add(moment)
    assert list(stragglers(records.run, time))
    records.run.facts = {"strategy": "pp"}
    assert not list(stragglers(records.run, time))
