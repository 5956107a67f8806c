"""A program is started with an option that it does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankup.check.facts.job.job import Job
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.program import Program
from rankup.check.facts.program.value import objects
from rankup.check.rule import Match, Rule
from rankup.core.nearest import did_you_mean
from rankup.findings.finding import Confidence, Severity

_ADDING = ("add_argument", "add_argument_group", "add_mutually_exclusive_group")


def find(job: Job) -> Iterator[Match]:
    for launch in job.launches:
        program = launch.program
        if program is None or not program.whole or launch.launcher in ("launch", "deepspeed", "horovodrun"):
            continue
        names = _options(program)
        if names is None:
            continue
        for word in launch.arguments:
            if word.known == "--":
                break
            option = word.head.partition("=")[0]
            if not option.startswith("--") or (word.known is None and "=" not in word.head):
                continue
            if any(name.startswith(option) for name in names):  # argparse takes the beginning of a name
                continue
            yield Match(
                job.document,
                word.span,
                f"{program.document.path} has no option {option}{did_you_mean(option, sorted(names))}.",
            )


def _options(program: Program) -> set[str] | None:
    """The long options of a program's only parser; None if they are not all known."""
    parsers = program.named("argparse.ArgumentParser")
    if len(parsers) != 1 or parsers[0].spread or parsers[0].keywords & {"parents", "fromfile_prefix_chars"}:
        return None
    if not program.methods("parse_args") or program.methods(
        "parse_known_args", "add_subparsers", "parse_args_into_dataclasses"
    ):
        return None
    if any(call.node.args or call.node.keywords for call in program.methods("parse_args")):
        return None
    for module in program.modules:
        if any(node.attr == "argv" for node in module.of(ast.Attribute)):
            return None  # it reads or changes the arguments itself
    renamed = _renamed(program)
    if renamed is None or _handed_on(program):
        return None
    found = {"--help"}
    for call in [*program.methods("add_argument"), *renamed]:
        if call.spread:
            return None
        for given in call.node.args:
            if not isinstance(given, ast.Constant) or not isinstance(given.value, str):
                return None
            found.add(given.value)
            action = call.argument("action")
            if isinstance(action, (ast.Name, ast.Attribute)):  # argparse.BooleanOptionalAction
                found.add("--no-" + given.value.removeprefix("--"))
    return found


def _renamed(program: Program) -> list[Call] | None:
    """The calls of ``add = parser.add_argument`` by that name; None if it is used in any other way."""
    found = []
    for module in program.modules:
        names = set()
        for node in module.of(ast.Assign):
            if getattr(node.value, "attr", "") in _ADDING:
                (target, *others) = node.targets
                if others or not isinstance(target, ast.Name) or node.value.attr != "add_argument":  # type: ignore[attr-defined]
                    return None
                names.add(target.id)
        if not names:
            continue
        calls = [call for call in module.calls if isinstance(call.node.func, ast.Name) and call.last in names]
        read = [node for node in ast.walk(module.tree) if isinstance(node, ast.Name) and node.id in names]
        if len(read) != len(calls) + len(names):
            return None
        found += calls
    return found


def _handed_on(program: Program) -> bool:
    """Whether the parser goes into a function of another package, which may add options."""
    (parser,) = program.named("argparse.ArgumentParser")
    for call in program.calls:
        if program.graph.called.get(call):
            continue
        given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        if any(
            not isinstance(argument, ast.Constant)
            and parser in objects(program.values.of(argument, call.scope))
            for argument in given
        ):
            return True
    return False


_JOB = """--- job.sh
#!/bin/bash
#SBATCH --gpus-per-node=1
python train.py --data /scratch/images --batchsize 256
--- train.py
import argparse
import torch

"""

RULE = Rule(
    code="RK170",
    name="unknown-argument",
    severity=Severity.ERROR,
    confidence=Confidence.LIKELY,
    what="A program is started with an option that its parser does not have.",
    why="The program ends at once with 'error: unrecognized arguments', after the job has waited in the queue.",
    fix="Write the option as the program's parser has it, or add it there.",
    find=find,
    fires=(
        _JOB
        + """parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()
print(torch.zeros(args.batch_size), args.data)
""",
        _JOB
        + """parser = argparse.ArgumentParser()
add = parser.add_argument
add("--data", required=True)
add("--batch-size", type=int)
args = parser.parse_args()
print(torch.zeros(args.batch_size), args.data)
""",
        _JOB.replace("python train.py", "torchrun --standalone --nproc_per_node=gpu train.py")
        + """def options(parser):
    parser.add_argument("-d", "--data", required=True)
    parser.add_argument("--epochs", type=int, default=10)

def main():
    parser = argparse.ArgumentParser(description="training")
    options(parser)
    args = parser.parse_args()
    print(torch.zeros(args.epochs))

main()
""",
    ),
    silent=(
        _JOB
        + """parser = argparse.ArgumentParser()
add = parser.add_argument
add("--data", required=True)
add("--batchsize", type=int)
args = parser.parse_args()
""",
        _JOB
        + """parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--batchsize-per-gpu", type=int, default=64)  # its beginning is enough
args = parser.parse_args()
""",
    ),
)
