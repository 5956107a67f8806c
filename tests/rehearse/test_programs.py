"""What a Python command line starts: recorded, run, or only noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankup.rehearse.launch_options import accelerate, deepspeed, torchrun
from rankup.rehearse.mpi_options import parse, place
from rankup.rehearse.programs import program_of


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import torch\n", "training"),
        ("import os, sys, torch.distributed as dist\n", "training"),
        ("if True:\n    from lightning import Trainer\n", "training"),
        ("import model\n", "training"),  # a module beside it imports torch
        ("from package.parts import thing\n", "training"),
        ("import os, json\nprint('torch')\n", "helper"),
        ("import torchless\n", "helper"),
    ],
)
def test_a_program_that_imports_torch_is_a_training(tmp_path: Path, text: str, kind: str):
    (tmp_path / "model.py").write_text("from torch import nn\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "parts.py").write_text("import torch\nthing = 1\n")
    (tmp_path / "train.py").write_text(text)
    assert program_of(["-u", "train.py", "--lr", "1"], tmp_path, {}).kind == kind


@pytest.mark.parametrize(
    ("words", "kind", "launcher"),
    [
        (["-c", "import sys; import torch; print(1)"], "probe", ""),
        (["-c", "print(1)"], "helper", ""),
        (["-m", "torch.distributed.run", "x.py"], "launcher", "torchrun"),
        (["-um", "torch.distributed.launch", "x.py"], "launcher", "launch"),
        (["/opt/env/bin/torchrun", "x.py"], "launcher", "torchrun"),
        (["-m", "pip", "install", "torch"], "installer", ""),
        (["-m", "accelerate.commands.launch", "x.py"], "launcher", "accelerate"),
        (["missing.py"], "training", ""),
        (["-V"], "helper", ""),
        (["-X", "dev", "-um", "accelerate.commands.launch", "x.py"], "launcher", "accelerate"),
        (["-m", "accelerate.commands.accelerate_cli", "env"], "probe", "accelerate"),
    ],
)
def test_command_lines(tmp_path: Path, words: list[str], kind: str, launcher: str):
    found = program_of(words, tmp_path, {})
    assert (found.kind, found.launcher) == (kind, launcher)


@pytest.mark.parametrize(
    ("words", "nodes", "workers", "node_rank", "endpoint"),
    [
        ("train.py", 1, 1, 0, "127.0.0.1:29500"),
        ("--nproc-per-node=gpu train.py", 1, 4, 0, "127.0.0.1:29500"),
        (
            "--nnodes 2 --nproc_per_node 4 --node-rank=1 --master_addr h --master_port 1 train.py",
            2,
            4,
            1,
            "h:1",
        ),
        (
            "--nnodes=1:3 --nproc_per_node=2 --rdzv-backend=c10d --rdzv-endpoint=h train.py",
            3,
            2,
            None,
            "h:29400",
        ),
        ("--standalone --nnodes=1 --nproc_per_node=2 -m package.train", 1, 2, 0, ""),
    ],
)
def test_options_of_torchrun(words: str, nodes: int, workers: int, node_rank: int | None, endpoint: str):
    agent = torchrun(words.split(), {}, gpus=4, cpus=16)
    assert (agent.nodes, agent.workers, agent.node_rank, agent.endpoint) == (
        nodes,
        workers,
        node_rank,
        endpoint,
    )


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --signals-to-handle SIGUSR1 train.py",
        "accelerate --fsdp_min_num_params 2000 --fp8_backend TE train.py",
        "deepspeed --enable_each_rank_log logs --bind_core_list 0-3 train.py",
    ],
)
def test_the_value_of_an_option_is_not_the_program(tmp_path: Path, line: str):
    launcher, *words = line.split()
    if launcher == "torchrun":
        agent = torchrun(words, {}, 4, 16)
    else:
        agent = {"accelerate": accelerate, "deepspeed": deepspeed}[launcher](words, {}, 4, tmp_path)
    assert (agent.target, agent.notes) == ("train.py", ())


def test_an_option_that_a_launcher_does_not_have_is_said(tmp_path: Path):
    assert "has no option --num-gpus" in deepspeed(["--num-gpus", "2", "t.py"], {}, 4, tmp_path).notes[0]


def test_torchrun_reads_variables_and_names_what_it_refuses():
    assert torchrun(["x.py"], {"PET_NPROC_PER_NODE": "3"}, 4, 8).workers == 3
    assert "is not a number" in torchrun(["--node_rank=$X", "x.py"], {}, 4, 8).notes[0]


def test_accelerate_and_deepspeed(tmp_path: Path):
    (tmp_path / "c.yaml").write_text("num_machines: 2\nnum_processes: 8\nmain_process_ip: node1\n")
    agent = accelerate(
        ["launch", "--config_file", "c.yaml", "--machine_rank", "1", "t.py"][1:], {}, 4, tmp_path
    )
    assert (agent.nodes, agent.workers, agent.node_rank, agent.endpoint) == (2, 4, 1, "node1:29500")
    (tmp_path / "hosts").write_text("node1 slots=4\nnode2 slots=4\n")
    agent = deepspeed(["--hostfile", "hosts", "train.py"], {}, 4, tmp_path)
    assert (agent.slots, agent.world) == ((("node1", 4), ("node2", 4)), 8)


@pytest.mark.parametrize(
    ("kind", "words", "placed"),
    [
        ("openmpi", "-np 3 x", "a0 a1 b0"),
        ("openmpi", "--map-by ppr:1:node x", "a0 b0"),
        ("openmpi", "-np 3 --map-by node x", "a0 b0 a1"),
        ("openmpi", "-np 5 x", "not enough slots"),
        ("openmpi", "-np 5 --oversubscribe x", "a0 a1 a2 b0 b1"),
        ("hydra", "-n 4 -ppn 2 x", "a0 a1 b0 b1"),
        ("pals", "-n 4 --ppn 2 --cpu-bind depth --depth 8 x", "a0 a1 b0 b1"),
        ("pals", "-n 3 x", "a0 a1 b0"),
        ("openmpi", "-np two x", "needs a number"),
        ("openmpi", "-np 2 --hostfile nowhere x", "cannot be read"),
        ("openmpi", "-n 2 --cpu-bind depth x", "--cpu-bind is not an option of Open MPI, but of PALS"),
        ("pals", "-n 2 --map-by node x", "rehearse with --mpi openmpi"),
        ("pals", "-ppn 1 -d 8 x", "a0 b0"),
        ("hydra", "-genv A 1 -perhost 1 -n 2 x", "a0 b0"),
    ],
)
def test_ranks_of_mpirun(kind: str, words: str, placed: str):
    options = parse(kind, words.split(), lambda path: None)
    where, problem = place(options, {"a": 2, "b": 2}, kind)
    problem = options.problem or problem
    shown = " ".join(f"{host}{local}" for host, local in where)
    assert placed in problem if problem else shown == placed
