"""Runs that are compared differ in more than their GPUs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.document import Document, Span
from rankup.check.facts.program.flow import tests_around
from rankup.check.facts.program.module import Module, Scope
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.sounds import PRECISION
from rankup.check.facts.program.value import RANKS, Kind, depends_on
from rankup.check.facts.start import Start
from rankup.check.rule import Match, Rule
from rankup.check.rules.queries import match
from rankup.findings.finding import Confidence, Severity


def find(program: Program) -> Iterator[Match]:
    yield from _by_option(program)
    scopes = [scope for module in program.modules for scope in module.scopes.values()]
    set_here = [(one.at, scope) for scope in scopes for one in scope.definitions.get(".allow_tf32", ())]
    set_here += [(call.node, call.scope) for call in program.named("torch.set_float32_matmul_precision")]
    for node, scope in set_here if program.uses_torch else ():
        yield from _by_rank(program, scope.module, scope, node)


def _by_option(program: Program) -> Iterator[Match]:
    """The scripts start the program with and without ``--amp``."""
    settings: dict[int, tuple[str, ...]] = {}
    for start in program.starts:
        if start.nodes and start.processes_per_node and start.arguments:
            settings.setdefault(start.nodes * start.processes_per_node, _settings(start))
    if len(set(settings.values())) > 1:
        named = [(size, " ".join(settings[size]) or "no such option") for size in sorted(settings)]
        shown = "; ".join(f"{size} ranks: {options}" for size, options in named)
        yield Match(
            program.document,
            _first_line(program.document),
            f"The scripts start this program with different precision for different numbers of ranks ({shown}).",
        )


def _settings(start: Start) -> tuple[str, ...]:
    found: list[str] = []
    for word, following in zip(start.arguments, (*start.arguments[1:], ""), strict=True):
        if PRECISION.match(word):
            alone = "=" in word or following.startswith("-") or not following
            found.append(word if alone else f"{word} {following}")
    return tuple(sorted(found))


def _first_line(document: Document) -> Span:
    for number, start in enumerate(document.starts):
        if document.line(number).strip():
            return Span(start, start + len(document.line(number)))
    return Span(0, 0)


def _by_rank(program: Program, module: Module, scope: Scope, node: ast.AST) -> Iterator[Match]:
    """``if world_size > 1: torch.backends.cuda.matmul.allow_tf32 = True``"""
    tests = tests_around(module, node)
    asked = [one for one in tests if depends_on(program.values.of(one, scope), *RANKS, Kind.WORLD_SIZE)]
    for test in asked[:1]:
        yield match(
            module,
            node,
            f"The precision of float32 products depends on the condition at {module.line(test.lineno)}, which asks for "
            "the rank or the number of ranks.",
            confidence=Confidence.SURE,
            why="Runs on one and on several GPUs then compute with different precision, so neither their results nor "
            "their times compare.",
            fix="Set it in the same way for all runs.",
        )


RULE = Rule(
    code="RK602",
    name="unequal-precision",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    what="Runs with different numbers of ranks have different precision, by their options or by a condition.",
    why="A speed-up of 4 GPUs with mixed precision over 1 GPU without it is that of both; nobody can tell the parts.",
    fix="Change one thing at a time: give all runs the same precision.",
    find=find,
    fires=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --standalone --nproc-per-node=1 train.py --epochs 2
torchrun --standalone --nproc-per-node=4 train.py --epochs 2 --amp
--- train.py
import torch
print(torch.__version__)
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=2
torchrun --standalone --nproc-per-node=1 train.py --precision fp32
torchrun --standalone --nproc-per-node=2 train.py --precision bf16
--- train.py
import torch
print(torch.__version__)
""",
    ),
    silent=(
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --standalone --nproc-per-node=1 train.py --amp
torchrun --standalone --nproc-per-node=4 train.py --amp
--- train.py
import torch
print(torch.__version__)
""",
        """--- job.sh
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
torchrun --standalone --nproc-per-node=4 train.py --amp
torchrun --standalone --nproc-per-node=4 train.py
--- train.py
import torch
print(torch.__version__)
""",
    ),
)
