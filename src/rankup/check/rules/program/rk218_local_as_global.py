"""The rank within the node is given where the rank among all nodes is meant."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.names import NODE_RANK_VARIABLES
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import Kind, is_only
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    if not program.many_nodes or program.gets(Does.SPLIT):
        return
    nodes = max(start.nodes or 0 for start in program.starts)
    who = [(call, "The process group", (("world_size", 3), ("rank", 4))) for call in program.inits]
    if not _knows_its_node(program):  # else each node may have its own part of the data
        samplers = program.data.samplers
        who += [(call, "The sampler", (("num_replicas", 1), ("rank", 2))) for call in samplers]
    for call, name, arguments in who:
        for keyword, position in arguments:
            given = call.argument(keyword, position)
            kind = Kind.LOCAL_RANK if keyword == "rank" else Kind.LOCAL_SIZE
            if given is not None and is_only(program.values.of(given, call.scope), kind):
                what = "the rank within its node" if keyword == "rank" else "the number of GPUs of one node"
                yield match(
                    call.module,
                    given,
                    f"{name} gets {what} as {keyword}, and the program runs on {nodes} nodes.",
                )


def _knows_its_node(program: Program) -> bool:
    return any(not module.texts.isdisjoint(NODE_RANK_VARIABLES) for module in program.modules)


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
