"""A name of torch with a letter too many, or too few."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.program.module import Module, full_name
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

#: Names of torch that scripts use most, by the module that holds them; a near miss of one of them is a slip.
_KNOWN = {
    "torch": words(
        "distributed backends utils cuda optim autograd nn multiprocessing device compile no_grad"
    ),
    "torch.distributed": words(
        """
        init_process_group destroy_process_group get_rank get_world_size barrier all_reduce all_gather broadcast
        is_initialized is_available new_group all_gather_object broadcast_object_list reduce_scatter
        """
    ),
    "torch.nn": words("DataParallel parallel Module Linear functional CrossEntropyLoss SyncBatchNorm utils"),
    "torch.nn.parallel": words("DistributedDataParallel DataParallel"),
    "torch.utils": words("data tensorboard checkpoint"),
    "torch.utils.data": words(
        "DataLoader Dataset DistributedSampler TensorDataset random_split Subset distributed"
    ),
    "torch.utils.data.distributed": words("DistributedSampler"),
    "torch.distributed.fsdp": words("FullyShardedDataParallel fully_shard MixedPrecision ShardingStrategy"),
    "torch.cuda": words(
        "set_device device_count is_available synchronize manual_seed_all empty_cache current_device"
    ),
    "torch.cuda.amp": words("autocast GradScaler"),
}


def find(program: Program) -> Iterator[Match]:
    for module in program.modules:
        for node in module.tree.body:
            if isinstance(node, ast.ImportFrom) and not node.level:
                yield from _imported(module, node)
        for attribute in module.of(ast.Attribute):
            if isinstance(attribute, ast.Attribute):
                full = full_name(module, module.scope, attribute)
                right = _right(full)
                if right is not None:
                    end = module.span(attribute).end
                    span = Span(end - len(attribute.attr), end)
                    if module.document[span] == attribute.attr:
                        yield _match(module, span, full, right)


def _imported(module: Module, node: ast.ImportFrom) -> Iterator[Match]:
    for alias in node.names:
        full = f"{node.module}.{alias.name}"
        right = _right(full)
        if right is not None:
            start = module.span(alias).start
            yield _match(module, Span(start, start + len(alias.name)), full, right)


def _match(module: Module, span: Span, full: str, right: str) -> Match:
    return Match(module.document, span, f"{full} does not exist: the name is {right}.", (Edit(span, right),))


def _right(full: str) -> str | None:
    holder, _, name = full.rpartition(".")
    known = _KNOWN.get(holder)
    if known is None or name in known or len(name) < 6 or name.startswith("_"):
        return None
    close = [word for word in known if len(word) > 6 and _near(name, word)]
    return close[0] if len(close) == 1 and name not in _OTHERS.get(holder, ()) else None


def _near(name: str, word: str) -> bool:
    """Whether two names differ by one slip: a letter too many, too few, wrong or moved, or the case."""
    if name.lower() == word.lower():
        return True
    if abs(len(name) - len(word)) > 1 or name.rstrip("s") == word.rstrip("s"):
        return False
    at = next(
        (i for i, (a, b) in enumerate(zip(name, word, strict=False)) if a != b), min(len(name), len(word))
    )
    a, b = name[at:], word[at:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


#: Real names that are one letter away from another.
_OTHERS = {
    "torch.distributed": words(
        "all_reduce all_gather reduce_op is_mpi_available is_nccl_available is_gloo_available"
    ),
    "torch.nn": words("Modules DataParallel"),
    "torch.utils.data": words("DataLoader dataset dataloader Datasets distributed"),
    "torch": words("compiler"),
}

RULE = Rule(
    code="RK217",
    name="misspelt-name",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A name of torch is misspelt.",
    why="Python raises AttributeError or ImportError when the line runs, perhaps after hours in the queue.",
    fix="Write the name as torch does.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """import torch.distributed as dist

dist.init_proces_group("nccl")
""",
        """from torch.nn.parallel import DistributedDataParalell as DDP
from torch.utils.data import Dataloader
""",
    ),
    silent=(
        """import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
dist.all_gather_into_tensor(None, None)
""",
        """import mytorch

mytorch.distrbuted.init()
""",
    ),
)
