"""The tables of options are those of the real commands: an option that a table lacks, or has differently, is named."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import string
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rankup.launch_grammar.numbers import refusal
from rankup.launch_grammar.options import Grammar, Option, commands, grammar_of

NONE, OPTIONAL, VALUE = "no value", "a value after =", "a value"


def kind(option: Option) -> str:
    return OPTIONAL if option.optional else VALUE if option.values else NONE


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def spellings(grammar: Grammar, version: str) -> dict[str, str]:
    """Spelling → kind, of the options that a version has, without those of plug-ins."""
    return {
        spelling: kind(option)
        for spelling, option in grammar.by_spelling.items()
        if not option.by
        and number(option.since or "0.0") <= number(version)
        and (not option.gone or number(version) < number(option.gone))
    }


#: These begin other options.
_SHORTER = {"cluster", "container", "mem", "nodes", "ntasks", "extra", "gpus", "gres", "time", "wait"}
#: Their values are newer than the options, nobody knows since when.
_VALUE_IS_NEWER = {"--pty", "--requeue"}


# ---- Slurm: getopt_long says what an option takes, and names all that begin with some letters.


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a command of Slurm, which stops at a wrong option; what it says."""
    if shutil.which("srun") is None:
        pytest.skip("Debian's slurm-client is not installed")
    conf = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=p Nodes=ALL\n")

    def run(*words: str) -> str:
        env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(conf)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.stdout + done.stderr

    return run


def _long_options(run: Callable[..., str], command: str) -> set[str]:
    names = set(re.findall(r"--([a-z][a-z-]+)", run(command, "--usage")))
    for letter in string.ascii_lowercase:
        said = run(command, f"--{letter}=x", "--no-such-option")
        names.update(re.findall(r"'--([^']+)'", said.partition("possibilities")[2]))
    # A page of usage breaks names at the ends of lines.
    return {name for name in names if not any(f"{name}-" in other for other in names) or name in _SHORTER}


@pytest.mark.repeated
@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_long_options_of_slurm(slurm: Callable[..., str], command: str):
    version = slurm("srun", "--version").split()[-1]
    real = {}
    for name in _long_options(slurm, command):
        if "doesn't allow an argument" in (said := slurm(command, f"--{name}=x", "--no-such-option")):
            real[f"--{name}"] = NONE
        elif f"unrecognized option '--{name}=x'" not in said:
            said = slurm(command, f"--{name}", "--no-such-value", "--no-such-option")
            real[f"--{name}"] = OPTIONAL if "unrecognized option '--no-such-value'" in said else VALUE
    ours = {name: is_ for name, is_ in spellings(grammar_of(command), version).items() if name[1] == "-"}
    for name in ours.keys() - real.keys():  # the only one with its first letters, and not in the usage
        assert f"unrecognized option '{name}" not in slurm(command, f"{name}=x", "--no-such-option"), name
    assert {
        name: is_ for name in real if (is_ := ours.get(name)) != real[name] and name not in _VALUE_IS_NEWER
    } == {}


@pytest.mark.repeated
@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_letters_of_slurm(slurm: Callable[..., str], command: str):
    real = {}
    for letter in set(string.ascii_letters) - {"h", "V"}:  # these two act before the rest is read
        said = slurm(command, f"-{letter}1", "--no-such-option")
        if f"invalid option -- '{letter}'" in said:
            continue
        if "invalid option -- '1'" in said:
            real[f"-{letter}"] = NONE
        else:
            said = slurm(command, f"-{letter}", "--no-such-value", "--no-such-option")
            real[f"-{letter}"] = OPTIONAL if "unrecognized option '--no-such-value'" in said else VALUE
    version = slurm("srun", "--version").split()[-1]
    ours = {name: is_ for name, is_ in spellings(grammar_of(command), version).items() if len(name) == 2}
    assert {name: is_ for name, is_ in ours.items() if name not in ("-h", "-V")} == real


@pytest.mark.parametrize("value", ["72.", "2k", "0", "+2", "7", "x", "1-2", "1,3"])
@pytest.mark.parametrize("command", ["sbatch", "srun"])
def test_numbers_that_slurm_takes(slurm: Callable[..., str], command: str, value: str):
    _same_refusals(slurm, command, value, "COUNT", "NUMBER", "NODES")


@pytest.mark.parametrize(
    "value",
    [
        "7", "72.", "0", "-1", "1h", "+5", "1:2", ":1", "1:", "1:2:3", "1:2:3:4", "1-2", "1-", "1-2:3",
        "1-2-3", "unlimited", "Infinite", "x", "32g", "32GB", "32GBB", "32GiB", "1.5G", "1T", "1P", "2kb",
        "32B", "+5G", "G",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["sbatch", "srun"])
def test_times_and_sizes_of_memory_that_slurm_takes(slurm: Callable[..., str], command: str, value: str):
    _same_refusals(slurm, command, value, "TIME", "MEMORY")


def _same_refusals(slurm: Callable[..., str], command: str, value: str, *kinds: str) -> None:
    differs = {}
    version = slurm("srun", "--version").split()[-1]
    grammar = grammar_of(command)
    for name in spellings(grammar, version):
        option = grammar.by_spelling[name]
        if option.kind in kinds and name.startswith("--"):
            said = slurm(command, f"{name}={value}", "--no-such-option").partition("\n")[0]
            real = said.removeprefix(f"{command}: error: ") if "error: " in said else ""
            if refusal(option, value) != real:
                differs[name] = (refusal(option, value), real)
    assert differs == {}


# ---- MPI


def test_options_of_open_mpi():
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("Debian's openmpi-bin is not installed")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        ["mpirun.openmpi", "--help", "unsupported"],
        env={"PATH": os.environ["PATH"], **allowed}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    real = {}
    for line in re.findall(r"^ *(-[^\s|]+(?:\|-[^\s|]+)*)((?: <arg\d>)*)", done.stdout, re.M):
        for spelling in line[0].split("|"):
            real["-" + spelling.lstrip("-")] = line[1].count("<arg")
    assert len(real) > 90
    real["-help"] = real["-h"] = 0  # its value may be absent
    ours = {
        name: option.values for name, option in grammar_of("openmpi").by_spelling.items() if not option.since
    }
    assert ours == real


# ---- launchers of PyTorch, which are programs of argparse

_PARSER = """
import argparse, json, runpy, sys
def show(parser):
    options = {name: 0 if action.nargs == 0 else action.nargs or 1
               for action in parser._actions for name in action.option_strings}
    print("OPTIONS", json.dumps([parser.allow_abbrev, options]))
    raise SystemExit
argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_known_args = lambda self, *a, **k: show(self)
"""


def _argparse(python: Path, code: str) -> tuple[bool, dict[str, int]]:
    done = subprocess.run([python, "-c", _PARSER + code], capture_output=True, text=True)
    line = next((one for one in done.stdout.splitlines() if one.startswith("OPTIONS ")), "")
    assert line, done.stderr
    abbreviations, options = json.loads(line.removeprefix("OPTIONS "))
    return abbreviations, options


@pytest.mark.parametrize(
    ("launcher", "package", "code"),
    [
        ("torchrun", "torch", "from torch.distributed.run import parse_args; parse_args([])"),
        ("launch", "torch", "from torch.distributed.launch import parse_args; parse_args([])"),
        ("accelerate", "accelerate",
         "from accelerate.commands.launch import launch_command_parser; show(launch_command_parser())"),
        ("deepspeed", "deepspeed", "from deepspeed.launcher.runner import parse_args; parse_args([])"),
    ],
)  # fmt: skip
def test_options_of_launchers_of_pytorch(launcher: str, package: str, code: str, warm: Path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    abbreviations, real = _argparse(warm / "python", code)
    grammar = grammar_of(launcher)
    ours = {spelling: option for spelling, option in grammar.by_spelling.items() if not option.gone}
    differs = {name: values for name, values in real.items() if _values(grammar.find(name)) != values}
    assert differs == {}
    plain = {grammar.find(name) for name in real}
    assert [name for name, option in ours.items() if option not in plain] == []
    assert grammar.exact == (not abbreviations)


def _values(option: Option | None) -> int | None:
    return option.values if option is not None and not option.gone else None


# ---- all


def test_every_row_of_every_table_is_read():
    assert len(commands()) > 70
    for command in commands():
        grammar = grammar_of(command)
        seen = [spelling for option in grammar.options for spelling in option.spellings]
        assert len(seen) == len(set(seen)), command
