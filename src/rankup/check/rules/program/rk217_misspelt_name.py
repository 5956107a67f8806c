"""A name or a keyword of torch that it does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.document import Span
from rankup.check.facts.program.module import Module, full_name, torch_last
from rankup.check.facts.program.names import words
from rankup.check.facts.program.program import Program
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.findings.finding import Confidence, Severity

#: Names of torch that scripts use most, by the module that holds them; a near miss of one of them is a slip.
_KNOWN = {
    "torch": "distributed backends utils cuda optim autograd nn multiprocessing device compile no_grad",
    "torch.distributed": """
        init_process_group destroy_process_group get_rank get_world_size barrier all_reduce all_gather broadcast
        is_initialized is_available new_group all_gather_object broadcast_object_list reduce_scatter
        """,
    "torch.nn": "DataParallel parallel Module Linear functional CrossEntropyLoss SyncBatchNorm utils",
    "torch.nn.parallel": "DistributedDataParallel DataParallel",
    "torch.utils": "data tensorboard checkpoint",
    "torch.utils.data": "DataLoader Dataset DistributedSampler TensorDataset random_split Subset distributed",
    "torch.utils.data.distributed": "DistributedSampler",
    "torch.distributed.fsdp": "FullyShardedDataParallel fully_shard MixedPrecision ShardingStrategy",
    "torch.cuda": "set_device device_count is_available synchronize manual_seed_all empty_cache current_device",
    "torch.cuda.amp": "autocast GradScaler",
}
#: Real names that are one letter away from another.
_OTHERS = {
    "torch.distributed": "reduce_op is_mpi_available is_nccl_available is_gloo_available",
    "torch.nn": "Modules",
    "torch.utils.data": "dataset dataloader Datasets",
    "torch": "compiler",
}
#: What people write for ``device_ids``.
_DEVICE_IDS = words("gpu_ids gpus devices device_id gpu_id device")


def find(program: Program) -> Iterator[Match]:
    for module in program.modules:
        for node in module.tree.body:
            if isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    yield from _slip(module, alias, f"{node.module}.{alias.name}")
        for attribute in module.of(ast.Attribute):
            yield from _slip(module, attribute, full_name(module, module.scope, attribute))
    for call in program.named(
        "torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "DistributedDataParallel"
    ):
        for keyword in call.node.keywords if call.name.startswith("torch.nn") else ():
            if keyword.arg in _DEVICE_IDS:
                span = call.module.span(keyword)
                name = Span(span.start, span.start + len(keyword.arg))
                message = f"{torch_last(call)} has no argument {keyword.arg}; it is called device_ids."
                yield Match(call.module.document, span, message, (Edit(name, "device_ids"),))


def _slip(module: Module, node: ast.alias | ast.Attribute, full: str) -> Iterator[Match]:
    right, name = _right(full), full.rpartition(".")[2]
    if not right:
        return
    whole = module.span(node)
    start = whole.start if isinstance(node, ast.alias) else whole.end - len(name)
    span = Span(start, start + len(name))
    if module.document[span] == name:
        message = f"{full} does not exist: the name is {right}."
        yield Match(module.document, span, message, (Edit(span, right),))


def _right(full: str) -> str:
    """The name that is meant, if this one does not exist and one alone is near."""
    holder, _, name = full.rpartition(".")
    if holder not in _KNOWN or len(name) < 6 or name.startswith("_"):
        return ""
    known = _KNOWN[holder].split()
    if name in (*known, *_OTHERS.get(holder, "").split()):
        return ""
    close = [word for word in known if len(word) > 6 and _near(name, word)]
    return close[0] if len(close) == 1 else ""


def _near(name: str, word: str) -> bool:
    """Whether two names differ by one slip: a letter too many, too few, wrong or moved, or the case."""
    if name.lower() == word.lower():
        return True
    if abs(len(name) - len(word)) > 1 or name.rstrip("s") == word.rstrip("s"):
        return False
    pairs = enumerate(zip(name, word, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(name), len(word)))
    a, b = name[at:], word[at:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


RULE = Rule(
    code="RK217",
    name="misspelt-name",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A name of torch is misspelt, or DataParallel gets a keyword that it does not have.",
    why="Python raises AttributeError, ImportError or TypeError when the line runs, perhaps after hours in the queue.",
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
