"""torchrun started once per GPU, each with all processes of the node."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.job.commands import Step
from rankup.check.facts.job.job import Job, Launch
from rankup.check.facts.job.questions import nnodes, nproc
from rankup.check.facts.program.names import LOCAL_RANK_VARIABLES, RANK_VARIABLES
from rankup.check.facts.program.value import Kind, depends_on
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        step = launch.step
        if step is not None and (step.tasks_per_node or 0) > 1 and _spawns_ranks(launch):
            yield Match(
                job.document,
                launch.span,
                f"{step.kind} starts {step.tasks_per_node} tasks on each node, and each of them starts a rank per GPU.",
                _edits(job, step),
            )
            continue
        if step is None or not (launch.is_torchrun or launch.launcher in ("accelerate", "deepspeed")):
            continue
        per_node = step.tasks_per_node
        if per_node is None or per_node < 2 or _one_process_each(job, launch, step):
            continue
        yield Match(
            job.document,
            launch.span,
            f"{step.kind} starts {per_node} tasks on each node, and each of them is a {launch.launcher} of its own.",
            _edits(job, step),
        )


def _spawns_ranks(launch: Launch) -> bool:
    """Whether the program itself starts one rank for each GPU of a node, whatever srun has started."""
    program = launch.program
    if launch.launcher != "python" or program is None or not program.whole or program.frameworks:
        return False
    if not program.inits or not all(call.scope in program.started for call in program.inits):
        return False
    texts = [module.document.text for module in program.modules]
    names = RANK_VARIABLES | LOCAL_RANK_VARIABLES
    if any(f'"{name}"' in text or f"'{name}'" in text for text in texts for name in names):
        return False  # it may start ranks in one task only
    spawns = program.named("torch.multiprocessing.spawn")
    return bool(spawns) and all(
        depends_on(program.value(call, "nprocs", 2), Kind.LOCAL_SIZE) for call in spawns
    )


def _one_process_each(job: Job, launch: Launch, step: Step) -> bool:
    """torchrun as one task per process: --nnodes is the number of tasks."""
    count = nnodes(job, launch)
    if launch.launcher != "torchrun" and not launch.is_torchrun:
        processes = launch.options.get("nproc_per_node") or launch.options.get("num_processes")
        return processes is None or job.number(processes) in (1, None)
    if nproc(job, launch) == 1 and (count == 1 or count is None or count == step.tasks):
        return True
    alone = nproc(job, launch) in (1, None)
    return alone and count is not None and count > 1 and count == step.tasks and step.tasks != step.nodes


def _edits(job: Job, step: Step) -> tuple[Edit, ...]:
    directive = job.request.get("ntasks-per-node")
    if step.kind != "srun" or step.options.keys() & {"ntasks", "ntasks-per-node"}:
        return ()
    if directive is None or directive.number is None or "ntasks" in job.request.by_name:
        return ()
    edits = [Edit(directive.value_span, "1")]
    cpus = job.request.get("cpus-per-task")
    if cpus is not None and cpus.number is not None:  # the one task keeps the cores of all
        edits.append(
            Edit(Span(cpus.value_span.start, cpus.value_span.end), str(cpus.number * directive.number))
        )
    return tuple(edits)


RULE = Rule(
    code="RK104",
    name="torchrun-per-gpu",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A step with several tasks on each node starts torchrun in each of them.",
    why=(
        "Each torchrun starts the processes of a node itself. Several of them on one node start too many processes, or "
        "meet as too many nodes: address already in use, or a hang (NVIDIA/Megatron-LM#1371)."
    ),
    fix="Ask for one task per node (--ntasks-per-node=1) with the cores of all, or start python without torchrun.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
srun python train.py
--- train.py
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(index, count):
    rank = int(os.environ["SLURM_NODEID"]) * count + index
    dist.init_process_group("nccl", rank=rank, world_size=count * int(os.environ["SLURM_NNODES"]))

if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(work, args=(count,), nprocs=count)
""",
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500
srun python train.py
--- train.py
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(index, count):
    rank = int(os.environ["SLURM_NODEID"]) * count + index
    dist.init_process_group("nccl", rank=rank, world_size=count * int(os.environ["SLURM_NNODES"]))

if __name__ == "__main__":
    count = torch.cuda.device_count()
    mp.spawn(work, args=(count,), nprocs=count)
""",
        """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
srun --ntasks=2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d train.py
""",
    ),
)
