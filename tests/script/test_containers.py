"""Containers: every runtime gets the arguments that it documents, and the ranks inside see what they need.

The stand-ins accept the options of their runtime and no other, look for what is mounted, and hide from a rank what the
runtime hides. The options are those of the runtimes' own pages: Apptainer's, NERSC/podman-hpc and Podman's, Shifter's,
Sarus's, NVIDIA/pyxis, and CSCS's pages on its Container Engine and on uenv (2026-08).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from test_script_runs import Job, bash

from asking import ask
from rankup.errors import RankupError
from rankup.script.containers import RUNTIMES
from rankup.script.render import render
from rankup.sites.lookup import find_site
from rankup.sites.site import Container, Fabric, Site
from rankup.spec.jobspec import ContainerRuntime, JobSpec

STAND_IN = r"""#!/usr/bin/env python3
import fnmatch, os, sys, tomllib

def die(why):
    sys.exit(f"stand-in of {name}: {why}")

def mount(text, separator=":"):
    source, target = text.split(separator)[:2]
    os.path.exists(source) and target.startswith("/") or die(f"cannot mount {text}")
    mounts.append(target)

def entry(text):
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    parts.pop("type") == "bind" and parts.keys() <= {"source", "destination", "readonly"} or die(text)
    mount(f"{parts['source']}:{parts['destination']}")

def describe(path):
    with open(path, "rb") as file:
        said = tomllib.load(file)
    said["image"] == IMAGE or die(said)
    said["annotations"] == {"com": {"hooks": {"net": {"enabled": "true"}}}} or die(said)
    workdir.append(said["workdir"])
    for text in said["mounts"]:
        mount(text)

IMAGE = "team/image:1"
name, rest = os.path.basename(sys.argv[0]), sys.argv[1:]
mounts, workdir, kept, image = [], [], [], []
look = {
    "apptainer": {"--nv": None, "--bind": lambda text: mount(text if ":" in text else f"{text}:{text}")},
    "podman-hpc": {
        "--rm": None, "--gpu": None, "--network": None, "--ipc": None, "--workdir": workdir.append,
        "--env": kept.append, "--volume": mount,
    },
    "shifter": {"--module": None, "--image": image.append, "--workdir": workdir.append, "--volume": mount},
    "sarus": {"--workdir": workdir.append, "--mount": entry},
    "srun": {
        "--container-image": image.append, "--container-workdir": workdir.append, "--container-env": None,
        "--container-mounts": lambda text: [mount(one) for one in text.split(",")],
        "--environment": describe, "--uenv": image.append, "--view": None,
        **dict.fromkeys(
            "--nodes --ntasks --ntasks-per-node --cpus-per-task --cpu-bind --distribution --kill-on-bad-exit --mpi "
            "--label".split()
        ),
    },
}
look["singularity"] = look["apptainer"]
if name in ("apptainer", "singularity", "podman-hpc", "sarus"):
    rest.pop(0) == ("exec" if "a" == name[0] or "g" in name else "run") or die("the subcommand")
while rest[0].startswith("-"):
    word, equals, text = rest.pop(0).partition("=")
    word in look[name] or die(f"unknown option {word}")
    if not equals and word in ("--bind", "--workdir", "--env", "--volume", "--network", "--ipc"):
        text = rest.pop(0)
    if look[name][word]:
        look[name][word](text)
if name not in ("shifter", "srun"):
    image.append(rest.pop(0))
set(image) <= {IMAGE} or die(f"unknown image {image}")
if workdir:
    os.chdir(workdir[0])
if image and name not in ("srun",):
    os.environ.pop("LD_LIBRARY_PATH", None)
if name == "podman-hpc":
    known = {n: v for n, v in os.environ.items() if any(fnmatch.fnmatch(n, pattern) for pattern in kept)}
    os.environ.clear()
    os.environ.update(known, PATH="/usr/bin:/bin")
with open(os.path.join("FAKES", "mounts"), "a") as file:
    file.writelines(f"{target}\n" for target in mounts)
os.execvp(rest[0], rest)
"""
# What a rank needs, whatever the runtime: who it is, the network's variables and libraries, the job's folder.
RANK = 'echo "here $RANK of $WORLD_SIZE $FI_PROVIDER $MINE $LD_LIBRARY_PATH $PWD"'
ON_NODE = {
    **{"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
    **{"SLURM_NTASKS": "2", "SLURM_NODEID": "0", "PLUGIN": "/usr/share"},
}


def site(runtime: str, **values: Any) -> Site:
    flags = {"edf": {"flags": ('com.hooks.net.enabled = "true"',)}, "uenv": {"flags": ("--view=default",)}}
    return Site(
        name="here",
        scheduler="slurm",
        containers=Container.model_validate({"runtime": runtime, **flags.get(runtime, {})}),
        fabric=Fabric(
            env={"FI_PROVIDER": "cxi"},
            binds=("$PLUGIN/doc:/opt/plugin",),
            libraries=("/opt/plugin", "/opt/our net's"),
        ),
        **values,
    )


def run(tmp_path: Path, runtime: str, **values: Any) -> Job:
    job = Job(tmp_path, "slurm", **{"container": "team/image:1", "env": {"MINE": "a b"}, **values})
    for name in ("srun", "apptainer", "singularity", "podman-hpc", "shifter", "sarus"):
        (job.fakes / name).write_text(STAND_IN.replace('"FAKES"', repr(str(job.fakes))))
        (job.fakes / name).chmod(0o755)
    job.script.write_text(render(job.spec, site(runtime), job.run.path))
    path = f"{job.fakes}:{Path(sys.executable).parent}:/usr/bin:/bin"
    assert job.execute({**ON_NODE, "PATH": path}) == 0
    return job


@pytest.mark.repeated
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_rank_on_several_nodes_sees_who_it_is_the_fabric_and_its_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], runtime: str
):
    job = run(tmp_path, runtime, command=bash(RANK), launcher="srun", nodes=2, gpus_per_node=1)
    assert f"here 0 of 2 cxi a b /opt/plugin:/opt/our net's {job.folder}" in capfd.readouterr().out
    mounts = (job.fakes / "mounts").read_text().split("\n")
    ours = [] if runtime in ("shifter", "uenv") else [str(job.run.path), str(job.folder)]
    assert [one for one in mounts if one] == [*ours, *([] if runtime == "uenv" else ["/opt/plugin"])]


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("runtime", ["apptainer", "pyxis"])
def test_torchrun_runs_inside_and_one_node_binds_no_fabric(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], runtime: str
):
    job = run(tmp_path, runtime, command=bash(RANK), nproc_per_node=2)
    assert capfd.readouterr().out.count("of 2  a b  ") == 2
    assert "/opt/plugin" not in job.script.read_text()


def test_a_virtual_environment_on_an_image_starts_its_own_torchrun(tmp_path: Path):
    job = Job(
        tmp_path, "slurm", command=("train.py",), container="/i.sif", venv="/v", python="python", nodes=2
    )
    command = " ".join(line.strip(" \\") for line in render(job.spec, site("apptainer"), None).splitlines())
    assert "/i.sif /v/bin/python -m torch.distributed.run --nnodes=2" in command


def test_what_the_fabric_asks_for_is_added_to_the_modules_binds_and_variables_of_a_job(tmp_path: Path):
    job = {"container": "/i.sif", "modules": ("mine",), "binds": ("/data",), "env": {"NCCL_PROTO": "Simple"}}
    sizes: tuple[dict[str, int], ...] = (
        {"gpus_per_node": 4, "nodes": 2}, {"gpus_per_node": 4}, {"nodes": 2},
    )  # fmt: skip
    two, *others = (
        render(
            ask(tmp_path, site="olivia", account="a", **job, **size).spec,
            find_site("olivia", {}, tmp_path),
            None,
        )
        for size in sizes
    )
    assert "module load mine NRIS/GPU NCCL/" in two and "/opt/aws-ofi-nccl/lib --bind /usr/lib64" in two
    assert "--bind /data" in two and "FI_PROVIDER=cxi" in two and "NCCL_PROTO=Simple" in two
    assert not any("NRIS" in text or "FI_PROVIDER" in text or "/usr/lib64" in text for text in others)


def test_the_runtimes_are_those_that_a_job_can_name():
    assert tuple(RUNTIMES) == get_args(ContainerRuntime)


@pytest.mark.parametrize("name", ["pbs", "slurm"])
def test_a_runtime_of_srun_is_refused_where_srun_does_not_start_the_ranks(tmp_path: Path, name: str):
    spec = JobSpec(
        command=("x",), name="x", folder=tmp_path, container="i", container_runtime="pyxis",
        nodes=2, launcher="mpirun" if name == "slurm" else "torchrun",
    )  # fmt: skip
    with pytest.raises(RankupError, match="option of srun"):
        render(spec, find_site(name, {}, tmp_path), None)


@pytest.mark.parametrize(
    ("folder", "refuses"),
    [
        ("run 2026-11-27 12:00", {"apptainer", "singularity", "podman-hpc", "sarus", "pyxis", "edf"}),
        ("a,b", {"apptainer", "singularity", "sarus", "pyxis"}),
        ('say "hi"', {"edf"}),
        ("back\\slash", {"edf"}),
    ],
)
def test_a_folder_that_a_runtime_cannot_be_given_is_refused(tmp_path: Path, folder: str, refuses: set[str]):
    for runtime in get_args(ContainerRuntime):
        spec = JobSpec(
            command=("x",), name="x", folder=tmp_path / folder, container="i", container_runtime=runtime
        )
        if runtime in refuses:
            with pytest.raises(RankupError, match=f"{runtime} cannot be given it"):
                render(spec, find_site("slurm", {}, tmp_path), None)
        else:
            assert render(spec, find_site("slurm", {}, tmp_path), None)


def test_apptainer_gets_an_image_to_mount_as_it_is_given(tmp_path: Path):
    (tmp_path / "torch.sif").touch()
    job = ask(tmp_path, container="torch.sif", binds=("data.squashfs:/data:image-src=/",))
    assert f"--bind {tmp_path}/data.squashfs:/data:image-src=/" in render(job.spec, job.site, None)
