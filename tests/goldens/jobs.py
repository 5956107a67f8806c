"""The jobs of the golden scripts: for each site, each shape that it is made for, and each launcher that it allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankup.resolve.precedence import resolve
from rankup.script.render import render
from rankup.sites.lookup import find_site

FOLDER, RUN = Path("/work/user/project"), Path("/work/user/project/runs/train/20260101-120000-abcd")
COMMAND = ("train.py", "--lr", "0.1", "--note", "it's $HOME")
ACCOUNT = {"olivia": "nn9999k", "sockeye": "st-user-1-gpu", "alliance": "def-user"}
# What a user of the site gives besides the shape, from what its centre's pages show.
USUAL: dict[str, dict[str, Any]] = {
    "cyclone": {"time": "24h"},
    "eap": {"time": "1h", "venv": "$HOME/venvs/torch"},
    "olivia": {"time": "1h"},
    "sockeye": {"time": "24h", "venv": "/arc/project/user/venv", "mail": "user@example.org", "mem": "186G"},
    "alliance": {"time": "24h", "venv": "$HOME/venv", "mail": "user@example.org"},
    "della": {"time": "1h"},
}
# The profiles of tutorials, which today's have replaced.
PROFILE = {"cyclone": "cyclone@2023", "alliance": "alliance@2023", "della": "della@2023"}
# From public pages: two whole nodes of each, with what a user must give there.
PUBLIC: dict[str, dict[str, Any]] = {
    **{name: {"venv": "$HOME/venv"} for name in ("fir", "nibi", "narval", "rorqual", "trillium")},
    "olivia@eessi": {},
    "olivia@module": {},
    "lumi": {},
    "roihu": {},
    "mila": {"venv": "$HOME/venv"},
    "frontier": {"conda": "/lustre/orion/abc123/env"},
    "aurora": {"queue": "debug"},
    "perlmutter": {"container": "nvcr.io/nvidia/pytorch:25.06-py3"},
    "clariden": {"container": "$HOME/ngc.toml"},
}
STAGED = {
    "command": ("train.py", "--data={stage}/data", "--note", "it's {stage} $HOME"),
    "stage": {"data": "$HOME/it's data.tar", "env": "/work/user/env.tar.gz"},
    "back": ("out/*", "a b/**"),
}
CPUS = {"sockeye": 6, "alliance": 10}
IMAGES = {
    "singularity": "/images/torch.sif",
    "podman-hpc": "nvcr.io/nvidia/pytorch:25.06-py3",
    "shifter": "nersc/pytorch:25.02.01",
    "sarus": "nvcr.io/nvidia/pytorch:25.06-py3",
    "pyxis": "nvcr.io#nvidia/pytorch:25.06-py3",
    "edf": "ngc-pytorch",
    "uenv": "pytorch/v2.9.1:v1",
}


def shapes(gpus: int) -> dict[str, dict[str, Any]]:
    return {
        "cpu": {"nodes": 1, "gpus_per_node": 0},
        "one-gpu": {"nodes": 1, "gpus_per_node": 1},
        "one-node": {"nodes": 1, "gpus_per_node": gpus},
        "two-nodes": {"nodes": 2, "gpus_per_node": gpus},
    }


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """File name → (site, flags)."""
    made: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, usual in USUAL.items():
        profile = PROFILE.get(name, name)
        site = find_site(profile, {}, Path("/"))
        if name in ACCOUNT:
            usual = {**usual, "account": ACCOUNT[name]}
        for shape, sizes in shapes(site.node.gpus).items():
            if sizes["gpus_per_node"] and name in CPUS:
                sizes = {**sizes, "cpus_per_task": CPUS[name]}
            if name == "cyclone" and shape == "cpu":
                sizes = {**sizes, "venv": "$HOME/venv"}  # its modules are for jobs with GPUs
            for launcher in site.launchers:
                made[f"{name}-{shape}-{launcher}"] = (profile, {**usual, **sizes, "launcher": launcher})
    for name, given in PUBLIC.items():
        site = find_site(name, {}, Path("/"))
        account = {"account": "abc123"} if "account" in site.required else {}
        made[name] = (name, {**given, **account, "nodes": 2, "gpus_per_node": site.node.gpus, "time": "1h"})
    two = {"nodes": 2, "gpus_per_node": 4, "time": "1h", "python": "python"}
    eap = {**USUAL["eap"], "nodes": 2, "gpus_per_node": 4}
    return made | {
        "eap-fanout-mpiexec": ("eap", {**eap, "fanout": "mpiexec"}),
        "eap-fanout-pbs_tmrsh": ("eap", {**eap, "fanout": "pbs_tmrsh"}),
        "eap-fanout-ssh": ("eap", {**eap, "fanout": "ssh"}),
        "slurm-elastic": ("slurm", {**two, "max_restarts": 2, "nccl_debug": True}),
        "slurm-array": (
            "slurm",
            {**two, "array": "0-9%2", "env": {"FOO": "a 'b' $c"}, "pre": ("ulimit -c 0",)},
        ),
        "slurm-conda-directive": (
            "slurm",
            {**two, "conda": "torch-env", "directives": ("--reservation=course",), "exclusive": True},
        ),
        "slurm-pixi": ("slurm", {**two, "pixi": "$HOME/my project"}),
        **{
            f"slurm-{runtime}": (
                "slurm",
                {
                    **two,
                    "container": image,
                    "container_runtime": runtime,
                    "binds": ("$SCRATCH/data:/data:ro",),
                },
            )
            for runtime, image in IMAGES.items()
        },
        "slurm-spare": ("slurm", {**two, "spare": 1, "preflight": True}),
        "slurm-spare-srun": ("slurm", {**two, "spare": 2, "launcher": "srun"}),
        "slurm-numa": ("slurm", {**two, "numa_binding": "node", "saves": ("$SCRATCH/my models/*.pt", "out")}),
        "slurm-preflight": ("slurm", {**two, "preflight": True}),
        "slurm-program": (
            "slurm",
            {"command": ("./simulate", "x"), "nproc_per_node": 2, "launcher": "torchrun", "python": "python"},
        ),
        "slurm-stage": ("slurm", {**two, **STAGED, "venv": "$RANKUP_STAGE/env"}),
        "pbs-stage": ("pbs", {**two, **STAGED, "launcher": "mpirun", "cpus_per_task": 8}),
        "alliance-stage": ("alliance@2023", {**USUAL["alliance"], **STAGED, "account": "def-user"}),
        "pbs-array": ("pbs", {**two, "array": "1-4", "cpus_per_task": 8}),
        "pbs-two-processes": ("pbs", {"nproc_per_node": 2, "time": "1h", "python": "python"}),
        "lumi-srun": (
            "lumi",
            {"account": "abc123", "queue": "standard-g", "nodes": 2, "gpus_per_node": 8, "launcher": "srun"},
        ),
        "local-two": ("local", {"nproc_per_node": 2, "python": "python", "time": "1h"}),
        "local-one": ("local", {"python": "python"}),
    }


CASES = cases()


def script(name: str, tmp_path: Path, run: Path | None, folder: Path = FOLDER) -> str:
    """The whole script of a job in ``folder``, whose run directory is ``run``; ``tmp_path`` gets its programs."""
    site, flags = CASES[name]
    flags = dict(flags)
    command = flags.pop("command", COMMAND)
    for program in ("train.py", "simulate"):
        (tmp_path / program).touch(mode=0o755)
    resolved = resolve(
        flags, command=command, file=None, site=site, env={"HOME": "/home/user"}, folder=tmp_path
    )
    return render(
        resolved.spec.model_copy(update={"folder": folder, "runs_root": Path("runs")}), resolved.site, run
    )
