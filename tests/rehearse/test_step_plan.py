"""Where srun puts its tasks. The examples are what a real SLURM 22.05 did."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.core.hostlist import expand_counts
from rankup.rehearse.allocation import Allocation, counts_text, spread
from rankup.rehearse.srun_options import inherited, parse
from rankup.rehearse.step_plan import StepPlan, plan_step

TWO = Allocation(hosts=("node1", "node2"), cpus=(4, 4), gpus=(2, 2))


def plan(
    line: str, env: str = "SLURM_NNODES=2", job: Allocation = TWO, busy: tuple[str, ...] = ()
) -> StepPlan:
    variables = dict(word.split("=", 1) for word in env.split())
    return plan_step(job, parse(line.split()), inherited(variables, (22, 5)), busy=busy)


def places(done: StepPlan) -> str:
    """``node1: 0 1, node2: 2``"""
    assert done.step is not None, done.error
    hosts: dict[str, list[str]] = {}
    for task in done.step.tasks:
        hosts.setdefault(task.host, []).append(str(task.rank))
    return ", ".join(f"{host}: {' '.join(ranks)}" for host, ranks in hosts.items())


@pytest.mark.parametrize(
    ("line", "env", "expected"),
    [
        ("x", "SLURM_NNODES=2", "node1: 0, node2: 1"),
        ("-n4 x", "SLURM_NNODES=2", "node1: 0 1, node2: 2 3"),
        ("-n3 x", "SLURM_NNODES=2", "node1: 0 1, node2: 2"),
        ("-n4 -m cyclic x", "SLURM_NNODES=2", "node1: 0 2, node2: 1 3"),
        ("--ntasks-per-node=2 x", "SLURM_NNODES=2", "node1: 0 1, node2: 2 3"),
        ("-N1 -n2 x", "SLURM_NNODES=2", "node1: 0 1"),
        ("-n1 -w node2 x", "SLURM_NNODES=2", "node2: 0"),
        ("-N1 -n1 -r1 x", "SLURM_NNODES=2", "node2: 0"),
        ("-n2 -w node2,node1 x", "SLURM_NNODES=2", "node1: 0, node2: 1"),
        # The job's own number of tasks is inherited; --ntasks-per-node alone does not change it.
        ("--ntasks-per-node=1 x", "SLURM_NNODES=2 SLURM_NTASKS=4", "node1: 0 1, node2: 2 3"),
        ("-n2 --ntasks-per-node=1 x", "SLURM_NNODES=2 SLURM_NTASKS=4", "node1: 0, node2: 1"),
        ("-n2 x", "SLURM_NNODES=2 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2", "node1: 0, node2: 1"),
        ("-N3 x", "SLURM_NNODES=2 SLURM_NTASKS=2", "node1: 0, node2: 1"),
    ],
)
def test_tasks_are_where_slurm_puts_them(line: str, env: str, expected: str):
    assert places(plan(line, env)) == expected


@pytest.mark.parametrize(
    ("line", "env", "words"),
    [
        ("--ntasks-per-node=1 x", "SLURM_NNODES=2 SLURM_NTASKS=4", "can't honor --ntasks-per-node set to 1"),
        ("-n3 x", "SLURM_NNODES=2 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2", "can't honor"),
        ("-n1 x", "SLURM_NNODES=2", "can't run 1 processes on 2 nodes, setting nnodes to 1"),
        ("-n2 x", "SLURM_NNODES=2 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2", ""),
    ],
)
def test_warnings_are_those_of_slurm(line: str, env: str, words: str):
    warnings = plan(line, env).warnings
    assert (words in warnings[0]) if words else warnings == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-n9 x", "More processors requested than permitted"),
        ("-N3 -n3 x", "Only allocated 2 nodes asked for 3"),
        ("-w node7 x", "node7 is not a node of this job"),
        ("-n4 --gpus-per-task=2 x", "generic resource"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(line: str, words: str):
    done = plan(line)
    assert done.step is None or done.error
    assert words in done.error


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("-n4 x", [(0, 1)] * 4),
        ("-n4 --gpus-per-task=1 x", [(0,), (1,), (0,), (1,)]),
        ("-n4 --gpu-bind=single:1 x", [(0,), (1,), (0,), (1,)]),
        ("-n4 --gpu-bind=none x", [None] * 4),
        ("-n4 --gpu-bind=map_gpu:1,0 x", [(1,), (0,), (1,), (0,)]),
        ("-N1 -n1 --gpus=1 x", [(0,)]),
        ("-n2 --gres=none x", [()] * 2),
    ],
)
def test_gpus_of_tasks(line: str, gpus: list[tuple[int, ...] | None]):
    done = plan(line)
    assert done.step is not None
    assert [task.gpus for task in done.step.tasks] == gpus


def test_a_step_takes_idle_nodes_first_and_waits_for_busy_ones():
    assert places(plan("-N1 -n1 x", busy=("node1",))) == "node2: 0"
    assert plan("-n2 x", busy=("node1",)).waits
    assert not plan("--overlap -n2 x", busy=("node1",)).waits


def test_the_jobs_cpus_per_task_is_lost_from_22_05_to_23_02():
    env = {"SLURM_CPUS_PER_TASK": "8"}
    lost = {
        version: "cpus-per-task" not in inherited(env, version)
        for version in ((21, 8), (22, 5), (23, 2), (23, 11))
    }
    assert lost == {(21, 8): False, (22, 5): True, (23, 2): True, (23, 11): False}
    assert inherited({**env, "SRUN_CPUS_PER_TASK": "8"}, (22, 5))["cpus-per-task"] == "8"


@pytest.mark.parametrize(
    ("line", "options", "command"),
    [
        (
            "-lN2 -n4 python x.py -n 3",
            {"label": "", "nodes": "2", "ntasks": "4"},
            ["python", "x.py", "-n", "3"],
        ),
        ("--nodes 2 --ntasks=4 a", {"nodes": "2", "ntasks": "4"}, ["a"]),
        ("--kill-on-bad-exit=1 -K a", {"kill-on-bad-exit": ""}, ["a"]),
        (
            "-u --mpi=pmix --cpu-bind=none -- a -b",
            {"unbuffered": "", "mpi": "pmix", "cpu-bind": "none"},
            ["a", "-b"],
        ),
        ("--tasks-per-node=2 --exclusive a", {"ntasks-per-node": "2", "exclusive": ""}, ["a"]),
        ("--ntasks-per-n 3 a", {"ntasks-per-node": "3"}, ["a"]),
    ],
)
def test_options_in_all_their_forms(line: str, options: dict[str, str], command: list[str]):
    parsed = parse(line.split())
    assert (parsed.options, parsed.command, parsed.problem) == (options, command, "")


def test_an_option_that_is_not_known_is_left_out_and_said():
    parsed = parse(["--of-a-site=gn", "-n2", "python"])
    assert (parsed.unknown, parsed.command, parsed.number("ntasks")) == (["--of-a-site=gn"], ["python"], 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--cpus-per-task=72. a", 'srun: error: Invalid numeric value "72." for --cpus-per-task.'),
        ("-n=4 a", 'srun: error: Invalid numeric value "=4" for --ntasks.'),
        ("-N two a", 'srun: error: "two" is not a valid node count'),
        ("--ntasks", "srun: option '--ntasks' requires an argument"),
    ],
)
def test_what_srun_says_of_a_line_that_it_refuses(line: str, said: str):
    assert parse(line.split()).problem == said


sizes = st.integers(1, 9)


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=6),
    st.integers(1, 60),
    st.sampled_from(["block", "cyclic"]),
)
def test_every_task_runs_once_and_ranks_count_through(cpus: list[int], tasks: int, how: str):
    job = Allocation(hosts=tuple(f"n{i}" for i in range(len(cpus))), cpus=tuple(cpus), gpus=(0,) * len(cpus))
    nodes = min(len(cpus), tasks)
    done = plan_step(job, parse([f"-N{nodes}", f"-n{tasks}", "-m", how, "x"]), {})
    if tasks > sum(cpus[:nodes]):
        assert done.step is None and done.error
        return
    assert done.step is not None
    assert [task.rank for task in done.step.tasks] == list(range(tasks))
    counts = Counter(task.node for task in done.step.tasks)
    assert all(counts[node] <= cpus[node] for node in counts) and len(counts) == nodes
    for node, count in counts.items():
        local = [task.local_rank for task in done.step.tasks if task.node == node]
        assert local == list(range(count))
    if how == "block":
        assert [task.node for task in done.step.tasks] == sorted(task.node for task in done.step.tasks)


@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=1, max_size=7))
def test_nodes_differ_by_at_most_one_task_unless_one_is_full(tasks: int, room: list[int]):
    counts = spread(tasks, len(room), None, tuple(room))
    assert sum(counts) == tasks
    if tasks <= sum(room):
        assert all(count <= most for count, most in zip(counts, room, strict=True))
        open_nodes = [count for count, most in zip(counts, room, strict=True) if count < most]
        assert not open_nodes or max(counts) - min(open_nodes) <= 1


@given(st.lists(sizes, min_size=1, max_size=12))
def test_counts_are_read_back(counts: list[int]):
    assert expand_counts(counts_text(tuple(counts))) == counts
