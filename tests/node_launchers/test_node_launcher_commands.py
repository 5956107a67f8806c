"""A node launcher is a pure function from agents to bash: what starts them, and how they are told to end."""

from __future__ import annotations

import pytest

from rankup.errors import RankupError
from rankup.node_launchers.agents import node_launcher
from rankup.node_launchers.base import Agents, AgentsScript

AGENTS = Agents(("exec /py --node-rank \"$NODE_RANK\" 'a b'",), nodes=2, cpus=8)


def started(fanout: str, scheduler: str, agents: Agents = AGENTS, mpi: str = "openmpi") -> AgentsScript:
    return node_launcher(fanout, scheduler, nodes=agents.nodes, mpi=mpi)(agents)


def test_srun_starts_one_task_per_node_that_is_the_agent():
    script = started("auto", "slurm")
    assert script.start[2:] == (
        "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=8 --cpu-bind=none --kill-on-bad-exit=1"
        " --mpi=none \\",
        "  bash -c '\n      NODE_RANK=$SLURM_NODEID\n"
        "      exec /py --node-rank \"$NODE_RANK\" '\"'\"'a b'\"'\"'' &",
        "workers=$!",
    )
    assert (script.own, script.fixed) == ((), ())
    assert 'scancel --signal=TERM "$SLURM_JOB_ID" ' in "\n".join(script.end)


def test_srun_tells_no_other_steps_of_the_job_to_end():
    script = started("srun", "slurm", Agents(("exec agent",), nodes=2, whole_job=False))
    assert script.start[0].startswith('rm -f "$RUN/agents.step"')
    assert 'echo "$SLURM_STEP_ID" >"$RUN/agents.step"' in "\n".join(script.start)
    assert 'scancel --signal=TERM "$SLURM_JOB_ID.$(cat "$RUN/agents.step")"' in "\n".join(script.end)


def test_srun_takes_the_nodes_that_are_meant_of_a_job_that_has_more():
    script = started("srun", "slurm", Agents(("x",), nodes=2, hosts=("n1", "n2")))
    assert " --nodelist=n1,n2 " in "\n".join(script.start)


def test_srun_takes_what_it_gets_where_the_cores_are_not_known():
    assert "--cpus-per-task" not in "\n".join(started("srun", "slurm", Agents(("x",), nodes=2)).start)


@pytest.mark.parametrize(
    ("fanout", "mpi", "program"),
    [
        ("auto", "openmpi", "exec pbsdsh -n "),
        ("pbs_tmrsh", "openmpi", 'exec pbs_tmrsh "${HOSTS[$1]}" '),
        ("ssh", "openmpi", "exec ssh -tt -o BatchMode=yes "),
        ("mpiexec", "openmpi", "$OMPI_COMM_WORLD_RANK.sh"),
        ("mpiexec", "pals", "$PALS_RANKID.sh"),
    ],
)
def test_under_pbs_each_reaches_the_nodes_in_its_own_way(fanout: str, mpi: str, program: str):
    script = started(fanout, "pbs", mpi=mpi)
    assert "\n".join((*script.start, *script.fixed)).count(program) == 1
    assert script.own[2:] == ("agent() {", f"  {AGENTS.agent[0]}", "}")


def test_what_is_a_nodes_own_stays_there_unless_it_is_given_for_all():
    def own(*given: str) -> str:
        script = started("ssh", "pbs", Agents(("x",), nodes=2, given=given))
        return next(line for line in script.fixed if line.startswith("own_names()"))

    assert "|CUDA_VISIBLE_DEVICES|" in own() and "|TMPDIR|" in own()
    assert "CUDA_VISIBLE_DEVICES" not in own("CUDA_VISIBLE_DEVICES")


def test_one_node_is_this_one():
    assert started("pbsdsh", "pbs", Agents(("x",))).start == ("start_agent", "workers=$!")


@pytest.mark.parametrize(("fanout", "scheduler"), [("srun", "pbs"), ("ssh", "slurm")])
def test_a_node_launcher_of_another_scheduler_is_an_error(fanout: str, scheduler: str):
    with pytest.raises(RankupError, match="cannot reach the nodes"):
        node_launcher(fanout, scheduler)
