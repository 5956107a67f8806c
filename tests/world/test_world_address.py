"""Where ranks meet: one place on every rank, another for every start, and never an ephemeral port."""

from __future__ import annotations

import dataclasses

import pytest

from rankup.errors import RankupError
from rankup.world import World
from rankup.world.address import Meeting, interface_of, rendezvous, route_to
from rankup.world.ports import FIRST_PORT, LAST_PORT

SRUN = World(
    rank=3, local_rank=1, world_size=4, local_world_size=2, node_rank=1, num_nodes=2, hosts=("n1", "n2"),
    launcher="srun", job_id="77",
)  # fmt: skip
MPI = dataclasses.replace(SRUN, launcher="openmpi")
ONE_NODE = World(rank=1, local_rank=1, world_size=2, local_world_size=2, launcher="hydra")


def test_the_route_to_this_machine_is_the_loopback():
    assert route_to("127.0.0.1") == "127.0.0.1"
    assert route_to("localhost") in ("127.0.0.1", "::1")


def test_a_host_that_cannot_be_resolved_is_named():
    with pytest.raises(RankupError, match=r"no route to .no-such-host\.invalid."):
        route_to("no-such-host.invalid")


def test_a_name_that_no_resolver_takes_is_named_too():
    with pytest.raises(RankupError, match="no route to"):
        route_to("x" * 300)


@pytest.mark.parametrize(("address", "interface"), [("127.0.0.1", "lo"), ("192.0.2.1", None), ("::1", None)])
def test_the_interface_that_holds_an_address(address, interface):
    assert interface_of(address) == interface


def test_what_is_exported_decides():
    env = {"MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "29500"}
    assert rendezvous(SRUN, env) == Meeting("10.1.2.3", (29500,))


def test_without_an_export_it_is_the_first_host():
    assert rendezvous(SRUN, {}).host == "n1"


def test_without_hosts_one_node_meets_on_its_loopback():
    assert rendezvous(ONE_NODE, {}).host == "127.0.0.1"


def test_several_nodes_without_hosts_are_told_what_to_export():
    with pytest.raises(RankupError) as caught:
        rendezvous(dataclasses.replace(MPI, hosts=()), {})
    assert "MASTER_ADDR is not set" in caught.value.message
    assert "export MASTER_ADDR=" in caught.value.hint
    assert "-x MASTER_ADDR" in caught.value.hint


def test_all_ranks_derive_the_same_port_below_the_ephemeral_range():
    env = {"SLURM_STEP_ID": "0"}
    ports = {
        rendezvous(dataclasses.replace(SRUN, rank=rank, node_rank=rank // 2), env).port for rank in range(4)
    }
    assert len(ports) == 1
    many = [rendezvous(dataclasses.replace(SRUN, job_id=str(job)), env).port for job in range(500)]
    assert min(many) >= FIRST_PORT and max(many) <= LAST_PORT < 32768
    assert len(set(many)) > 480


@pytest.mark.parametrize(
    ("world", "env"),
    [
        (dataclasses.replace(SRUN, job_id="78"), {"SLURM_STEP_ID": "0"}),
        (dataclasses.replace(SRUN, job_id="77_1"), {"SLURM_STEP_ID": "0"}),
        (dataclasses.replace(SRUN, restart=1), {"SLURM_STEP_ID": "0"}),
        (SRUN, {"SLURM_STEP_ID": "1"}),
    ],
    ids=["another job", "another task of the array", "a requeue", "another step of the job"],
)
def test_another_start_meets_at_another_port(world, env):
    assert rendezvous(world, env).port != rendezvous(SRUN, {"SLURM_STEP_ID": "0"}).port


def test_ranks_of_mpirun_agree_whatever_the_scheduler_told_them():
    """mpirun's daemons run in a step, its head does not; and by ssh nobody has the scheduler's variables."""
    namespace = {"PMIX_NAMESPACE": "1263337473"}
    in_step = rendezvous(MPI, {**namespace, "SLURM_STEP_ID": "0"})
    assert in_step == rendezvous(MPI, namespace)
    assert in_step.port == rendezvous(dataclasses.replace(MPI, job_id=None), namespace).port
    assert in_step.port != rendezvous(MPI, {"PMIX_NAMESPACE": "2"}).port


def test_one_node_without_anything_else_shares_its_launchers_process():
    assert rendezvous(ONE_NODE, {}) == rendezvous(dataclasses.replace(ONE_NODE, rank=0, local_rank=0), {})


def test_several_nodes_that_share_nothing_are_told_to_export_a_port():
    with pytest.raises(RankupError, match="MASTER_PORT is not set"):
        rendezvous(dataclasses.replace(MPI, job_id=None), {})


@pytest.mark.parametrize(
    ("port", "reason"),
    [("0", "must be from 1 to 65535"), ("65536", "must be from 1 to 65535"), ("http", "'http'")],
)
def test_what_is_no_port_is_refused(port, reason):
    with pytest.raises(RankupError, match="MASTER_PORT is") as caught:
        rendezvous(SRUN, {"MASTER_PORT": port})
    assert reason in caught.value.message
