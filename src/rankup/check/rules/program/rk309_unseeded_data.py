"""Each rank splits the data, or draws them, in its own way."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.program.flow import tests_around
from rankup.check.facts.program.module import Call, identifiers
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sharding import (
    may_seed,
    random_calls,
    seeded_by_rank_alone,
    seeds,
    seeds_by_rank,
)
from rankup.check.facts.program.value import Kind, depends_on
from rankup.check.rule import Edit, Match, Rule, Safety
from rankup.check.rules.edits import argument_added, name_for
from rankup.check.rules.queries import match
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


def find(program: Program) -> Iterator[Match]:
    if program.whole and program.distributed:
        yield from _splits(program)
        yield from _draws(program)


def _splits(program: Program) -> Iterator[Match]:
    by_rank = seeds_by_rank(program)
    if seeds(program) and not by_rank:
        return
    for call in program.named(*_SPLITS):
        keyword, position = _SPLITS[call.name]
        if call.spread or (keyword and call.argument(keyword, position) is not None):
            continue
        if program.first_only(call) or not program.on_all_ranks(call) or _single(program, call):
            continue
        splits = call.last in {"random_split", "train_test_split"}
        if splits or _makes_subsets(call):
            reason = "each rank seeds it differently" if by_rank else "no seed is set"
            sure = splits and not by_rank and bool(program.inits)
            yield match(
                call.module,
                call.node,
                f"{call.text}() draws other samples on each rank: {reason}.",
                *_edit(call),
                severity=Severity.WARNING if by_rank else None,
                confidence=Confidence.SURE if sure else Confidence.LIKELY,
            )


def _makes_subsets(call: Call) -> bool:
    """Whether a permutation is used to make subsets: Subset(dataset, indices[…])."""
    statement = call.module.statement(call.node)
    made = statement.targets if isinstance(statement, ast.Assign) else call.node.args[:1]
    names = {one.id for one in made if isinstance(one, ast.Name)}
    users = [other for other in call.scope.calls if other.last in {"Subset", "SubsetRandomSampler"}]
    return any(names & identifiers(other.node) for other in users)


def _single(program: Program, call: Call) -> bool:
    """Whether the number of processes is asked for first."""
    asked = [program.values.of(test, call.scope) for test in tests_around(call.module, call.node)]
    return any(depends_on(value, Kind.WORLD_SIZE) for value in asked)


def _edit(call: Call) -> tuple[Edit, ...]:
    if call.last == "train_test_split":
        return (argument_added(call, "random_state=0"),)
    generator = name_for(call.module, "torch.Generator")
    if generator is None or not call.name.startswith("torch."):
        return ()
    return (argument_added(call, f"generator={generator}().manual_seed(0)"),)


def _draws(program: Program) -> Iterator[Match]:
    """A data set of random numbers, which a DistributedSampler divides as if it were one."""
    by_rank = seeded_by_rank_alone(program)
    if may_seed(program) and not by_rank:
        return
    for sampler in program.data.samplers:
        given = sampler.argument("dataset", 0)
        drawn = random_calls(program, given, sampler.scope) if given is not None else []
        drawn = [
            one for one in drawn if one.scope.name not in {"__getitem__", "__iter__", "collate_fn", "forward"}
        ]
        if drawn and program.on_all_ranks(sampler):
            seed = "with a seed of its own" if by_rank else "without a seed"
            yield match(
                drawn[0].module,
                drawn[0].node,
                f"Each rank draws a data set of its own, {seed}, and a DistributedSampler divides it.",
                severity=Severity.WARNING if _has_a_rule(program, sampler) else Severity.NOTE,
                confidence=Confidence.LIKELY,
                why="A DistributedSampler divides one data set among the ranks. Here each rank has another one, so the "
                "parts do not add up, and a rule with random weights differs from rank to rank.",
                fix="Make it with generator=torch.Generator().manual_seed(0), or call torch.manual_seed(0) on all "
                "ranks before.",
            )


def _has_a_rule(program: Program, sampler: Call) -> bool:
    """Whether the labels follow from the inputs: then there is something to learn, and each rank has another truth."""
    for made in program.made(sampler.argument("dataset", 0), sampler.scope):
        if made.last == "TensorDataset" and len(made.node.args) == 2:
            labels = program.made(made.node.args[1], made.scope)
            return not any(one.last.startswith("rand") for one in labels)
    return False


RULE = Rule(
    code="RK309",
    name="unseeded-data",
    severity=Severity.ERROR,
    confidence=Confidence.SURE,
    what="Each rank splits the data into training and validation, or draws a data set, by its own random numbers.",
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
