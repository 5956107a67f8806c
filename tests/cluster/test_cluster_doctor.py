"""``rankup doctor`` on a real SLURM of two nodes: each fault is planted, and named by its host with its fix."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import HEAD, SYSTEM_PATH, Lab, why_not

pytestmark = pytest.mark.cluster

WHOLE = ("-m", "rankup", "doctor", "--json")
DOCTOR = (*WHOLE, "--quick")
LIBRARIES = shlex.quote(str(Path(sys.prefix) / "lib"))  # an environment without them starts no agent
RANGES = ("15000-17817", "17819-32767")  # 17818 is slurmd's
ONE_EACH = ("-N2", "--ntasks-per-node=1")  # enough where a node is wrong as a whole
TASKS = ("-N2", "--ntasks-per-node=2")
# True of a machine on which other tests run at the same time, whatever a test here plants.
BUSY = ("straggler", "slow-rank", "slow-link", "directory-slow-writes")


@dataclass
class Report:
    """What the doctor printed."""

    code: int
    said: dict[str, Any]

    @property
    def found(self) -> dict[str, str]:
        """Code → place, of errors and warnings."""
        return {one["code"]: one["place"] for one in caused_here(self.said) if one["severity"] != "note"}

    def finding(self, code: str) -> dict[str, Any]:
        return next(one for one in self.said["findings"] if one["code"] == code)


def caused_here(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The findings but for those of a busy machine."""
    return [one for one in said["findings"] if one["code"] not in BUSY]


def as_tasks(
    lab: Lab,
    *options: str,
    tasks: tuple[str, ...] = ONE_EACH,
    env: Mapping[str, str] | None = None,
    before: str = "",
    python: str = "",
    doctor: tuple[str, ...] = DOCTOR,
) -> Report:
    """``srun rankup doctor``: each task takes part. ``before`` is bash that each task runs first."""
    command = shlex.join([python or lab.python, *doctor, *options])
    done = lab.srun([*tasks, "bash", "-c", f"{before}\nexec {command}"], env, timeout=40)
    return Report(done.code, _json(done.out, done.err))


def in_job(lab: Lab, *options: str, before: str = "") -> Report:
    """``rankup doctor`` in a batch script, which starts an agent per node. ``before`` is bash of that script."""
    command = shlex.join([lab.python, *DOCTOR, *options])
    job = lab.sbatch(f"#!/bin/bash\n{before}\n{command} >said.json\necho code $?\n", "-N2")
    lab.wait(job, timeout=240)
    said = job.log.read_text()
    return Report(int(said.rpartition("code ")[2]), _json((lab.shared / "said.json").read_text(), said))


def _json(out: str, err: str) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(out)
    except ValueError:
        raise AssertionError(f"no JSON: {out}\n{err}") from None
    return said


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Any:
    """One for all tests here, each of which repairs what it breaks.

    It is warm; a fault of an environment, which a warm Python does not feel, is planted for ``sys.executable``.
    """
    if reason := why_not():
        pytest.skip(f"no SLURM lab: {reason}")
    one = Lab(warm=True)
    try:
        one.up()
        yield one
    finally:
        one.down()


def on(lab: Lab, node: str, command: str) -> None:
    done = lab.run(node, ["bash", "-c", command])
    assert done.code == 0, done.err


def shadow(lab: Lab, node: str, path: str, text: str) -> None:
    """A file in the /tmp of one node alone."""
    target = Path("/tmp/fake") / path
    on(lab, node, f"mkdir -p {target.parent}; cat >{target} <<'END'\n{text}\nEND\nchmod +x {target}")


# --- Healthy


@pytest.fixture(scope="module")
def healthy(lab: Lab) -> Report:
    """Of both rounds: the second one, with tensors, forms a process group over both nodes. Meanwhile the ports of
    node1 are written down."""
    watch = "for i in $(seq 120); do ss -Hltn >>seen-ports; sleep 0.05; done & "
    on(lab, "node1", "rm -f seen-ports")
    before = f'[ "$SLURM_PROCID" != 0 ] || {{ {watch} }}'
    return as_tasks(lab, tasks=TASKS, env={"OMP_NUM_THREADS": "1"}, before=before, doctor=WHOLE)


@pytest.mark.slow
def test_a_healthy_cluster_has_no_finding(lab: Lab, healthy: Report):
    for report in (healthy, in_job(lab, "--nproc-per-node", "2")):
        assert caused_here(report.said) == []
        assert report.code == 0
        assert report.said["verdict"] == "healthy" or report.said["findings"]
        assert sorted(one["rank"] for one in report.said["ranks"]) == [0, 1, 2, 3]
        assert report.said["nodes"]["1"]["network"]["reached"] == 1
    assert not list(lab.shared.glob(".rankup-doctor*"))
    for node in lab.nodes:
        assert lab.run(node, ["bash", "-c", "ls -d /tmp/rankup-doctor*"]).out == ""


def test_a_healthy_cluster_sums_right_on_every_pair(healthy: Report):
    ranks = [one for node in healthy.said["nodes"].values() for one in node["compute"]["ranks"]]
    assert [one["stage"] for one in ranks] == ["end"] * 4, ranks
    assert all(one["right"] and one["wrong"] == [] for one in ranks)


TORCHRUN = (
    "torchrun --nnodes 2 --node_rank $SLURM_NODEID --nproc_per_node 2 --master_addr node1 --master_port 29400"
)
LAUNCHERS = {
    "salloc on a login node": (["salloc", "-N2"], 2),
    "mpirun": (["salloc", "-N2", "--ntasks-per-node=2", "mpirun", "-np", "4", "--map-by", "ppr:2:node"], 4),
    "torchrun": (
        ["srun", "-N2", "--ntasks-per-node=1", "bash", "-c", f'exec {TORCHRUN} --no_python "$@"', "-"],
        4,
    ),
    "a part of a job": (["salloc", "-N2", "--ntasks-per-node=2", "srun", "-N1", "-n2"], 2),
}


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(name, marks=[] if name in ("torchrun", "a part of a job") else pytest.mark.campaign)
        for name in LAUNCHERS
    ],
)
def test_any_launcher_can_start_it(lab: Lab, launcher: str):
    words, ranks = LAUNCHERS[launcher]
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    warm = {"PATH": f"{Path(lab.python).parent}:{SYSTEM_PATH}"}  # of torchrun
    done = lab.run(HEAD, [*words, lab.python, *DOCTOR, "--out", "out.json"], warm, timeout=90)
    assert done.code == 0, done.err
    said = json.loads((lab.shared / "out.json").read_text())
    assert caused_here(said) == [] and len(said["ranks"]) == ranks
    (lab.shared / "out.json").unlink()


def test_agents_listen_on_the_address_of_the_route_alone(lab: Lab, healthy: Report):
    ours = {line.split()[3] for line in (lab.shared / "seen-ports").read_text().splitlines()}
    assert healthy.said["nodes"]["0"]["network"]["addresses"] == ["10.78.0.11"]
    python_ports = {
        one for one in ours if 15000 <= int(one.rpartition(":")[2]) <= 32767 and not one.endswith(":17818")
    }
    assert python_ports and all(one.startswith("10.78.0.11:") for one in python_ports)


# --- Many faults at once

LISTENS = """
import socket, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", 29400))
s.listen()
open("up", "w")
time.sleep(60)
"""
# Code → place, where to look, and what stands there.
MANY = {
    "name-is-loopback": ("node2", "fix", "/etc/hosts on node2"),
    "port-taken": ("node1", "message", "python"),
    "torch-differs": ("node2", "message", "2.1.0 on node2"),
    "python-differs": ("node2", "message", ""),
    "clock-off": ("node2", "message", "60 s ahead"),
    "directory-not-writable": ("node2", "message", ""),
    "no-shared-memory": ("node2", "message", ""),
}


@pytest.fixture(scope="module")
def many(lab: Lab) -> Report:
    """What one doctor says of faults that have nothing to do with each other."""
    data = lab.shared / "data"
    data.mkdir(exist_ok=True)
    real = shlex.quote(sys.executable)
    # The job's interpreter is a file of the node's own, and a wrapper on node2 says another version.
    shadow(lab, "node1", "python", f'#!/bin/bash\nexec {real} "$@"')
    shadow(lab, "node2", "python", f'#!/bin/bash\n{real} "$@" | sed \'s/^\\["3[.][0-9]*/["3.8/\'')
    shadow(lab, "node2", "torch/version.py", "__version__ = '2.1.0'\ncuda = None")
    shadow(lab, "node2", "torch/__init__.py", "")
    # The clock of the agents' Python, by a sitecustomize that only this node has.
    shadow(lab, "node2", "sitecustomize.py", "import time\nreal = time.time\ntime.time = lambda: real() + 60")
    faults = {
        "sed 's/^[0-9.]* node1$/127.0.1.1 node1/' /etc/hosts >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts":
        "umount /etc/hosts",
        f"mount --bind {data} {data} && mount -o remount,ro,bind {data}": f"umount {data}",
        "mount -t tmpfs -o size=1m none /dev/shm": "umount /dev/shm",
    }  # fmt: skip
    with subprocess.Popen(lab.enter("node1", [sys.executable, "-c", LISTENS])) as holder:
        try:
            lab.until((lab.shared / "up").exists)
            for plant in faults:
                on(lab, "node2", plant)
            env = {"PYTHONPATH": "/tmp/fake", "MASTER_PORT": "29400", "MASTER_ADDR": "node1"}
            options = ("--dir", str(data), "--python", "/tmp/fake/python")
            return as_tasks(lab, *options, env=env, python=sys.executable)
        finally:
            on(lab, "node1", "pkill -f [2]9400")
            holder.wait()
            for repair in faults.values():
                on(lab, "node2", repair)
            for node in lab.nodes:
                on(lab, node, "rm -r /tmp/fake")


@pytest.mark.parametrize("code", MANY)
def test_of_many_faults_each_is_named_by_its_host(many: Report, code: str):
    place, where, words = MANY[code]
    assert many.found[code] == place, many.said["findings"]
    assert words in many.finding(code)[where]


def test_many_faults_are_found_and_no_others(many: Report):
    # The machine may have little free space, which is another finding than the directory's.
    found = {code: place for code, place in many.found.items() if code != "little-room"}
    assert found == {code: place for code, (place, _, _) in MANY.items()}
    assert many.code == 1


# --- Network


@pytest.mark.slow
def test_a_cut_link(lab: Lab):
    """The whole link of the node: its agent cannot even be started."""
    job_waits = "touch begun; while [ ! -e cut ]; do sleep 0.05; done; rm cut"
    for name in ("begun", "said.json"):
        (lab.shared / name).unlink(missing_ok=True)
    import threading

    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(in_job(lab, before=job_waits)))
    thread.start()
    lab.until((lab.shared / "begun").exists)
    on(lab, HEAD, "ip link set node2 down")
    try:
        (lab.shared / "cut").touch()
        lab.until((lab.shared / "said.json").exists)
        lab.until((lab.shared / "said.json").read_text, timeout=240)
    finally:
        on(lab, HEAD, "ip link set node2 up")
        thread.join()
    (report,) = reports
    assert report.found == {"host-unreachable": "node2"}
    assert "--exclude=node2" in report.finding("host-unreachable")["fix"]
    lab.until(lambda: lab.run(HEAD, ["sinfo", "-hNo", "%T"]).out.split() == ["idle", "idle"])


def test_ports_that_drop_new_connections_in_one_direction(lab: Lab):
    """A routing rule of node2 drops what comes in for the ports between nodes; SLURM's own is below its range."""
    # Before the table of local addresses, which usually comes first.
    rules = [f"pref {50 + i} iif eth0 ipproto tcp dport {ports} blackhole" for i, ports in enumerate(RANGES)]
    on(lab, "node2", "ip rule add pref 99 lookup local && ip rule del pref 0")
    on(lab, "node2", "; ".join(f"ip rule add {rule}" for rule in rules))
    try:
        report = as_tasks(lab)
    finally:
        on(lab, "node2", "; ".join(f"ip rule del {rule}" for rule in rules))
        on(lab, "node2", "ip rule add pref 0 lookup local && ip rule del pref 99")
    assert report.found == {"port-blocked": "node2"}
    finding = report.finding("port-blocked")
    assert "node1 cannot connect to node2" in finding["message"] and "no answer" in finding["message"]
    assert report.code == 1


def test_a_link_with_a_tenth_of_the_rate(lab: Lab):
    on(lab, "node2", "tc qdisc add dev eth0 root tbf rate 80mbit burst 128kb latency 50ms")
    try:
        report = as_tasks(lab)
    finally:
        on(lab, "node2", "tc qdisc del dev eth0 root")
    assert report.finding("slow-link")["place"] == "node2" and report.found == {}


# --- Ranks, GPUs, cores


NVIDIA_SMI = """#!/bin/bash
case $1 in
-L) for i in 0 1; do echo "GPU $i: NVIDIA H100 (UUID: GPU-$(hostname)-$i)"; done ;;
--query*)
  for i in 0 1; do echo "$i, GPU-$(hostname)-$i, NVIDIA H100, 550.54, 0000:0$i:00.0, 0, 81559, 0, Default"; done ;;
esac
"""


@pytest.fixture(scope="module")
def gpus(lab: Lab) -> dict[str, str]:
    """An nvidia-smi that shows two GPUs on each node."""
    folder = lab.shared / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text(NVIDIA_SMI)
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}


@pytest.fixture(scope="module")
def ranks(lab: Lab, gpus: dict[str, str]) -> Report:
    """Two ranks of two GPUs on each node: those of node1 are bound to one core, and those of node2 see one GPU. All
    are told an interface that is not there."""
    return as_tasks(
        lab, tasks=(*TASKS, "--gpus-per-node=2"), env={**gpus, "GLOO_SOCKET_IFNAME": "ib0"},
        before='if [ "$SLURMD_NODENAME" = node1 ]; then taskset -pc 0 $$ >/dev/null\n'
               "else export CUDA_VISIBLE_DEVICES=1; fi",
    )  # fmt: skip


def test_two_ranks_on_one_device(ranks: Report):
    assert ranks.found["gpu-shared"] == "node2"
    assert "ranks 2 and 3 use one GPU (GPU-node2-1)" in ranks.finding("gpu-shared")["message"]


def test_two_tasks_that_are_bound_to_one_core(ranks: Report):
    assert ranks.found["ranks-share-cores"] == "node1"
    assert "2 ranks share core 0" in ranks.finding("ranks-share-cores")["message"]


def test_a_wrong_interface(ranks: Report):
    assert ranks.found["wrong-interface"] == "node1 and node2"
    assert ranks.finding("wrong-interface")["fix"] == "export GLOO_SOCKET_IFNAME=eth0"


def test_as_many_tasks_as_gpus(ranks: Report):
    """On node1, where nothing is wrong with them."""
    assert [one["device"] for one in ranks.said["ranks"]] == [
        f"GPU-{device}" for device in ("node1-0", "node1-1", "node2-1", "node2-1")
    ]
    assert set(ranks.found) == {"gpu-shared", "ranks-share-cores", "wrong-interface"}


def test_more_tasks_than_gpus(lab: Lab, gpus: dict[str, str]):
    report = as_tasks(
        lab, tasks=("-N2", "--ntasks-per-node=3", "--gpus-per-node=2", "--overcommit"), env=gpus
    )
    assert report.found == {"more-ranks-than-gpus": "node1 and node2"}
    assert "--ntasks-per-node=2" in report.finding("more-ranks-than-gpus")["fix"]


# Where other tests use both cores in that moment, every rank is as slow as the one whose core is shared.
@pytest.mark.slow
@pytest.mark.flaky(reruns=3, reruns_delay=2)
def test_a_core_that_somebody_else_uses(lab: Lab):
    import subprocess

    spin = ["taskset", "-c", "1", "bash", "-c", "exec -a thief bash -c 'while :; do :; done'"]
    with subprocess.Popen(lab.enter("node2", spin)) as thief:
        try:
            report = as_tasks(
                lab,
                tasks=TASKS,
                before='[ "$SLURM_PROCID" != 3 ] && taskset -pc 0 $$ >/dev/null || taskset -pc 1 $$ >/dev/null',
            )
        finally:
            on(lab, "node2", "pkill -f [t]hief")
            thief.wait()
    finding = report.finding("straggler")
    assert finding["place"] == "node2" and "rank 3" in finding["message"]


# --- The shared directory, and a preflight


@pytest.fixture
def folder(lab: Lab) -> Path:
    path = lab.shared / "data"
    path.mkdir(exist_ok=True)
    return path


def test_a_full_directory(lab: Lab, folder: Path):
    """A tiny file system that both nodes see, by the machine's own mount."""
    on(lab, "node1", f"mount -t tmpfs -o size=1m none {folder}")
    try:
        report = in_job(lab, "--dir", str(folder))
    finally:
        on(lab, "node1", f"umount {folder}")
    assert report.found["directory-full"] == "node1"


@pytest.mark.slow
def test_a_directory_that_is_not_shared_and_an_agent_that_is_missing(folder: Path):
    """Both at once, on a third node: neither is taken for the other."""
    if reason := why_not():
        pytest.skip(f"no SLURM lab: {reason}")
    lab = Lab(3)
    try:
        lab.up()
        data = lab.shared / "data"
        data.mkdir()
        on(lab, "node2", f"mount -t tmpfs -o size=2g none {data}")
        on(lab, "node3", f"mount -t tmpfs none {LIBRARIES}")
        command = shlex.join([sys.executable, *DOCTOR, "--dir", str(data)])
        job = lab.sbatch(f"#!/bin/bash\n{command} >said.json\n", "-N3")
        lab.wait(job)
        report = Report(0, json.loads((lab.shared / "said.json").read_text()))
    finally:
        lab.down()
    assert report.found == {"agent-missing": "node3", "directory-not-shared": "node2"}


@pytest.mark.slow
def test_a_job_with_a_preflight_ends_at_once_on_a_broken_node(lab: Lab):
    (lab.shared / "train.py").write_text("print('trained')")
    options = (
        "--site",
        "slurm",
        "--time",
        "5m",
        "--nodes",
        "2",
        "--nproc-per-node",
        "1",
        "--launcher",
        "srun",
        "--preflight",
        "--json",
    )
    command = [lab.python, "-m", "rankup", "submit", *options]
    for env, state, last in (
        ((), "COMPLETED", "rankup: done, exit code 0"),  # on a busy machine a link may be a doubtful one
        (("--env", "GLOO_SOCKET_IFNAME=ib0"), "FAILED", "broken: node1 and node2: wrong-interface"),
    ):
        done = lab.run(HEAD, [*command, *env, "train.py"])
        assert done.code == 0, done.err
        answer = json.loads(done.out)
        assert lab.wait_for(answer["job"], timeout=120) == state
        said = (Path(answer["run"]) / "logs" / "job.log").read_text()
        assert last in said, said
        assert ("trained" in said) == (state == "COMPLETED")


# --- Many times


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_healthy_cluster_has_no_finding_20_times_in_a_row(lab: Lab):
    for _ in range(20):
        report = as_tasks(lab, tasks=TASKS)
        assert report.found == {}, report.said["findings"]
