"""A data loader with a sampler and with shuffle=True."""

from __future__ import annotations

from collections.abc import Iterator

from rankup.check.facts.program.module import Call, torch_last
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import the_constant
from rankup.check.rule import Match, Rule, Safety
from rankup.check.rules.edits import keyword_removed
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    for call in (loader.call for loader in program.data.loaders):
        shuffles = the_constant(program.value(call, "shuffle", 2)) is True
        if shuffles and program.surely(call.argument("sampler", 3), call.scope, _is_sampler):
            edit = keyword_removed(call, "shuffle")
            yield match(
                call.module,
                call.node,
                "DataLoader gets a sampler and shuffle=True; torch refuses this with a ValueError.",
                *([edit] if edit is not None else []),
            )


def _is_sampler(call: Call) -> bool:
    """Whether a call makes a sampler, by what it is called: another function may return None."""
    return call.last.endswith("Sampler") or torch_last(call).endswith("Sampler")


RULE = Rule(
    code="RK303",
    name="sampler-shuffle",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="A data loader gets a sampler and shuffle=True.",
    why="Both decide about the order. torch raises 'sampler option is mutually exclusive with shuffle'.",
    fix="Remove shuffle=True from the loader: DistributedSampler shuffles by itself.",
    find=find,
    safety=Safety.SAFE,
    fires=(
        """from torch.utils.data import DataLoader, DistributedSampler

def load(dataset):
    sampler = DistributedSampler(dataset)
    return DataLoader(dataset, batch_size=8, shuffle=True, sampler=sampler)
""",
        """import torch

def load(dataset):
    return torch.utils.data.DataLoader(
        dataset,
        shuffle=True,
        sampler=torch.utils.data.distributed.DistributedSampler(dataset),
    )
""",
    ),
    silent=(
        """from torch.utils.data import DataLoader, DistributedSampler

def load(dataset, distributed):
    sampler = DistributedSampler(dataset) if distributed else None
    return DataLoader(dataset, batch_size=8, shuffle=(sampler is None), sampler=sampler)
""",
        """from torch.utils.data import DataLoader, DistributedSampler

def load(dataset):
    sampler = DistributedSampler(dataset, shuffle=True)
    return DataLoader(dataset, batch_size=8, shuffle=False, sampler=sampler)
""",
    ),
)
