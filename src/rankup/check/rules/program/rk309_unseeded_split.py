"""Each rank splits the data in its own way."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.module import Call, identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import seeds, seeds_by_rank
from rankup.check.facts.program.value import Kind, depends_on
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import argument_added, name_for
from rankup.findings.finding import Confidence, Severity

_SPLITS = {
    "torch.utils.data.random_split": ("generator", 2),
    "torch.utils.data.dataset.random_split": ("generator", 2),
    "sklearn.model_selection.train_test_split": ("random_state", None),
    "torch.randperm": ("generator", None),
    "numpy.random.permutation": ("", None),
    "numpy.random.shuffle": ("", None),
    "random.shuffle": ("", None),
}
_ALONE = {"torch.randperm", "numpy.random.permutation", "numpy.random.shuffle", "random.shuffle"}


def find(program: Program) -> Iterator[Match]:
    if not program.whole or program.frameworks or not program.inits:
        return
    found = seeds(program)
    by_rank = seeds_by_rank(program)
    if found and not by_rank:
        return
    for call in program.named(*_SPLITS):
        keyword, position = _SPLITS[call.name]
        if call.spread or (keyword and call.argument(keyword, position) is not None):
            continue
        if program.first_only(call) or not program.on_all_ranks(call) or _single(program, call):
            continue
        if call.name in _ALONE and not _splits_data(call):
            continue
        reason = "each rank seeds it differently" if by_rank else "no seed is set"
        yield Match(
            call.module.document,
            call.span,
            f"{ast.unparse(call.node.func)}() draws other samples on each rank: {reason}.",
            _edit(call),
            severity=Severity.WARNING if by_rank else None,
            confidence=Confidence.LIKELY if by_rank or call.name in _ALONE else None,
        )


def _splits_data(call: Call) -> bool:
    """Whether a permutation is used to make subsets: Subset(dataset, indices[…])."""
    statement = call.module.statement(call.node)
    names = set()
    if isinstance(statement, ast.Assign):
        names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    elif call.node.args and isinstance(call.node.args[0], ast.Name):
        names = {call.node.args[0].id}
    return bool(names) and any(
        other.last in {"Subset", "SubsetRandomSampler"} and names & identifiers(other.node)
        for other in call.scope.calls
    )


def _single(program: Program, call: Call) -> bool:
    """Whether the number of processes is asked for first."""
    return any(
        isinstance(holder, ast.If) and depends_on(program.values.of(holder.test, call.scope), Kind.WORLD_SIZE)
        for holder, _ in call.module.ancestors(call.node)
    )


def _edit(call: Call) -> tuple[Edit, ...]:
    if call.name.endswith("train_test_split"):
        return (argument_added(call, "random_state=0"),)
    torch = name_for(call.module, "torch.Generator")
    if torch is None or not call.name.startswith("torch."):
        return ()
    return (argument_added(call, f"generator={torch}().manual_seed(0)"),)


RULE = Rule(
    code="RK309",
    name="unseeded-split",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="Each rank splits the data into training and validation by its own random numbers.",
    why="Without a common seed a sample that one rank validates with is trained on by another: the validation result "
    "is too good.",
    fix="Pass generator=torch.Generator().manual_seed(0) to random_split (random_state= to scikit-learn), or set the "
    "same seed on all ranks before.",
    find=find,
    safety=Safety.UNSAFE,
    fires=(
        """import torch
import torch.distributed as dist
from torch.utils.data import random_split

dist.init_process_group("nccl")
torch.manual_seed(1234 + dist.get_rank())
train, valid = random_split(list(range(100)), [90, 10])
print(train, valid)
""",
        """import torch.distributed as dist
from sklearn.model_selection import train_test_split

dist.init_process_group("gloo")
train, valid = train_test_split(list(range(100)), test_size=0.1)
print(train, valid)
""",
    ),
    silent=(
        """import torch
import torch.distributed as dist
from torch.utils.data import random_split

dist.init_process_group("nccl")
train, valid = random_split(list(range(100)), [90, 10], generator=torch.Generator().manual_seed(0))
print(train, valid)
""",
        """from torch.utils.data import random_split

train, valid = random_split(list(range(100)), [90, 10])
print(train, valid)
""",
    ),
)
