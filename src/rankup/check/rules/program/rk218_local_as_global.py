"""The rank within the node is given where the rank among all nodes is meant."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, is_only
from rankup.check.rule import Match, Rule
from rankup.findings.finding import Confidence, Severity

_SAMPLER = ("num_replicas", 1), ("rank", 2)
_GROUP = ("world_size", 3), ("rank", 4)


def find(program: Program) -> Iterator[Match]:
    if not program.many_nodes or program.frameworks - {"xpu", "npu"}:
        return
    nodes = max(start.nodes or 0 for start in program.starts)
    for call in program.inits:
        yield from _arguments(program, call, _GROUP, nodes, "The process group")
    if _knows_its_node(program):  # each node may have its own part of the data
        return
    for call in program.named("DistributedSampler"):
        yield from _arguments(program, call, _SAMPLER, nodes, "The sampler")


def _arguments(
    program: Program, call: Call, arguments: tuple[tuple[str, int], ...], nodes: int, who: str
) -> Iterator[Match]:
    for name, position in arguments:
        given = call.argument(name, position)
        kind = Kind.LOCAL_RANK if name == "rank" else Kind.LOCAL_SIZE
        if given is None or not is_only(program.values.of(given, call.scope), kind):
            continue
        of_node = "the rank within its node" if name == "rank" else "the number of GPUs of one node"
        yield Match(
            call.module.document,
            call.module.span(given),
            f"{who} gets {of_node} as {name}, and the program runs on {nodes} nodes.",
        )


def _knows_its_node(program: Program) -> bool:
    return any(
        isinstance(node, ast.Constant) and node.value in ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID")
        for module in program.modules
        for node in ast.walk(module.tree)
    )


_JOB = """--- job.sh
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint="$HEAD:29500" train.py
--- train.py
"""
RULE = Rule(
    code="RK218",
    name="local-as-global",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="On several nodes, a sampler or the process group gets the rank within the node.",
    why="The ranks of all nodes then have the same numbers: with a sampler every node trains on the same part of the "
    "data, and a process group has several ranks of one number, or is formed on each node alone.",
    fix="Give the rank among all processes: dist.get_rank() and dist.get_world_size(); with mp.spawn, "
    "node_rank * gpus_per_node + index.",
    find=find,
    fires=(
        _JOB
        + """import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
sampler = DistributedSampler(range(100), num_replicas=dist.get_world_size(), rank=local_rank)
dist.destroy_process_group()
""",
        _JOB
        + """import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("nccl")
sampler = DistributedSampler(range(100), torch.cuda.device_count(), dist.get_rank())
dist.destroy_process_group()
""",
    ),
    silent=(
        _JOB
        + """import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("nccl")
sampler = DistributedSampler(range(100), num_replicas=dist.get_world_size(), rank=dist.get_rank())
dist.destroy_process_group()
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1 --gpus-per-node=4
torchrun --standalone --nproc_per_node=4 train.py
--- train.py
import os
import torch.distributed as dist
from torch.utils.data import DistributedSampler

dist.init_process_group("nccl")
sampler = DistributedSampler(range(100), num_replicas=4, rank=int(os.environ["LOCAL_RANK"]))
dist.destroy_process_group()
""",
    ),
)
