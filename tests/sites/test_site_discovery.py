"""A profile from what schedulers print, as recorded: SLURM's sinfo, and the formats of qstat -Qf and pbsnodes."""

from __future__ import annotations

from rankup.resolve.precedence import check_defaults
from rankup.sites.comparison import compare, patch
from rankup.sites.discovery import (
    ClusterFacts,
    Queue,
    Survey,
    largest,
    profile,
    read_modules,
    read_mounts,
    read_pbsnodes,
    read_qstat_queues,
    read_sinfo,
    read_srun_runtimes,
)
from rankup.sites.lookup import load_site

LAB = "main*|2|4|1|gpu:2|infinite|1-infinite\n"
CENTRE = """\
cpu*|100|64|256000|(null)|2-00:00:00|1-20
gpu|16|40|190000|gpu:a100:3(S:0-1),gpu:a100_mig:1|1-00:00:00|1-infinite
gpu|2|40|190000|gpu:v100:2|1-00:00:00|1-infinite
debug|1|8|16000|(null)|30:00|1
"""
QUEUES = """\
Queue: route
    queue_type = Route
    enabled = True
    started = True

Queue: workq
    queue_type = Execution
    total_jobs = 3
    resources_max.walltime = 24:00:00
    enabled = True
    started = True

Queue: closed
    queue_type = Execution
    enabled = False
    started = True
"""
OPENPBS = """\
node1
     Mom = node1
     ntype = PBS
     state = free
     pcpus = 32
     resources_available.mem = 196608000kb
     resources_available.ncpus = 32
     resources_available.ngpus = 4

node2
     Mom = node2
     resources_available.mem = 98304000kb
     resources_available.ncpus = 64
"""
TORQUE = "n1\n     state = free\n     np = 16\n     gpus = 2\n"
SEEN = ClusterFacts("sinfo", "x86_64", mpirun=True)


def test_sinfo_says_partitions_nodes_and_gpus():
    assert read_sinfo(LAB) == [Queue("main", 2, 4, 0, 2, "", "", True)]  # memory 1: nobody configured it
    cpu, gpu, old, debug = read_sinfo(CENTRE)
    assert cpu == Queue("cpu", 100, 64, 256000, 0, "", "2-00:00:00", True, 20)
    assert (gpu.gpus, gpu.gpu, gpu.memory) == (4, "a100", 190000)
    assert (old.gpus, old.most, debug.time, debug.most) == (2, 0, "30:00", 1)
    assert largest([cpu, gpu, old, debug]) is gpu


def test_qstat_says_which_queues_run_jobs_now():
    assert read_qstat_queues(QUEUES) == [Queue("workq", time="24:00:00")]


def test_pbsnodes_says_the_node_with_the_most_gpus_and_the_scheduler():
    assert read_pbsnodes(OPENPBS) == (Queue("", 1, 32, 192000, 4), "pbs")
    assert read_pbsnodes(TORQUE) == (Queue("", 1, 16, 0, 2), "torque")
    assert read_pbsnodes("") == (Queue(""), "pbs")


def written(tmp_path, text):
    path = tmp_path / "new.toml"
    path.write_text(text)
    site = load_site(path, [])
    check_defaults(site)
    return site


def test_the_profile_of_a_slurm_chooses_partitions_by_gpus(tmp_path):
    queues = read_sinfo(CENTRE)
    site = written(tmp_path, profile("new", Survey("slurm", tuple(queues), largest(queues), SEEN)))
    assert site.queue_nodes == {"cpu": 20, "gpu": 18, "debug": 1}  # cpu grants at most 20 of its 100 to a job
    assert site.queue_time == {"cpu": "48:00:00", "gpu": "24:00:00", "debug": "00:30:00"}
    assert (site.when["gpu"], site.when["cpu"]) == ({"queue": "gpu"}, {"queue": "cpu"})
    assert (site.node.gpus, site.node.gpu, site.node.cpus, site.node.login_arch) == (4, "a100", 40, "x86_64")
    assert site.launchers == ("torchrun", "srun", "mpirun")
    assert len(site.notes) == 4


def test_the_profile_of_a_torque_names_it(tmp_path):
    node, scheduler = read_pbsnodes(TORQUE)
    site = written(tmp_path, profile("new", Survey(scheduler, (), node, SEEN)))
    assert (site.scheduler, site.family, site.launchers) == ("torque", "pbs", ("torchrun", "mpirun"))


def test_the_profile_of_one_machine_needs_no_queue(tmp_path):
    site = written(
        tmp_path, profile("new", Survey("local", (), Queue("", cpus=2), ClusterFacts("here", "x86_64")))
    )
    assert (site.scheduler, site.node.arch, site.node.cpus, site.launchers) == (
        "local",
        "x86_64",
        2,
        ("torchrun",),
    )


AVAIL = """\
/cvmfs/modules/core:
StdEnv/2023
cuda/12.2
cuda/12.6(default)
python/
python/3.11.5
PyTorch/2.6.0-foss-2024a-CUDA-12.6.0
Inactive Modules
Where:
"""
HELP = "    --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n    --uenv=<file>   the image\n"
MOUNTS = """\
proc /proc proc rw 0 0
10.0.0.1@tcp:/s /scratch lustre rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
"""


def test_modules_runtimes_and_file_systems_are_read_from_what_commands_print():
    assert read_modules(AVAIL) == (
        "StdEnv/2023", "cuda/12.2", "cuda/12.6", "python/3.11.5", "PyTorch/2.6.0-foss-2024a-CUDA-12.6.0",
    )  # fmt: skip
    assert read_srun_runtimes(HELP) == ("pyxis", "uenv")
    assert read_mounts(MOUNTS) == ("lustre /scratch", "nfs4 /home")


CLUSTER = Survey(
    "slurm",
    tuple(read_sinfo(CENTRE)),
    largest(read_sinfo(CENTRE)),
    ClusterFacts(
        "sinfo on login1",
        "x86_64",
        "2026-11-27",
        modules=read_modules(AVAIL),
        runtimes=("apptainer", "pyxis"),
        interfaces=("eth0", "hsn0", "lo"),
        version="25.11.2",
        expedites=True,
        shared=("lustre /scratch",),
    ),
)


def test_a_whole_profile_has_what_was_seen_its_source_and_its_day(tmp_path):
    text = profile("new", CLUSTER)
    site = written(tmp_path, text)
    assert (site.node.interface, site.containers.runtime, site.slurm.version) == (
        "hsn0",
        "apptainer",
        "25.11.2",
    )
    assert site.slurm.expedite
    assert (site.source.page, site.source.seen) == ("sinfo on login1", "2026-11-27")
    assert "#     PyTorch/2.6.0" in text and "StdEnv" not in text and "# Seen here: lustre /scratch" in text
    assert compare(site, CLUSTER, lambda _: True) == []


OLD = """\
scheduler = "slurm"
[source]
seen = "2023"
of."when.gpu" = { seen = "2024-02" }
[node]
gpus = 8
cpus = 20
memory = "192G"
interface = "ib0"
[containers]
runtime = "sarus"
[queue_time]
gpu = "12h"
[queue_nodes]
gone = 4
[defaults]
modules = ["StdEnv", "cuda/11.7", "gcc/9"]
container = "/images/torch.sif"
[when.gpu]
queue = "gpu"
modules = ["StdEnv/2023", "cuda/11.7"]
"""


def test_what_differs_is_named_and_the_patch_is_a_profile_that_says_it_right(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "old.toml").write_text(OLD)
    site = load_site(own / "old.toml", [own])
    found = compare(site, CLUSTER, lambda path: path != "/images/torch.sif")
    assert {one.place: one.there for one in found} == {
        "node.gpus": 4,
        "slurm.expedite": True,
        "queue_time.gpu": "24:00:00",
        "queue_nodes.gone": None,
        "defaults.modules": None,
        "when.gpu.modules": ["StdEnv/2023", "cuda/12.6"],
        "containers.runtime": "apptainer",
        "node.interface": None,
        "defaults.container": None,
    }
    said = [one.line(site.source) for one in found]
    assert (
        "when.gpu.modules: StdEnv/2023, cuda/11.7 in the profile (of 2024-02), StdEnv/2023, cuda/12.6 here"
        in said
    )
    text = patch(site, CLUSTER, found)
    assert "# defaults.modules: no such module here: gcc/9\n" in text
    (tmp_path / "old.toml").write_text(text)
    right = load_site(tmp_path / "old.toml", [tmp_path, own])
    left = [one.place for one in compare(right, CLUSTER, lambda _: True)]
    assert left == ["queue_nodes.gone", "defaults.modules", "node.interface"]
    assert right.source.of_key("node.gpus").seen == "2026-11-27"
