"""``srun``'s command line and its input variables → what the step asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_VALUE_SHORT = {
    "A": "account", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint", "D": "chdir", "d": "dependency",
    "e": "error", "F": "nodefile", "G": "gpus", "i": "input", "J": "job-name", "L": "licenses", "m": "distribution",
    "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "p": "partition", "P": "dependency", "q": "qos",
    "r": "relative", "S": "core-spec", "t": "time", "T": "threads", "W": "wait", "w": "nodelist", "x": "exclude",
    "b": "begin",
}  # fmt: skip
_FLAG_SHORT = {
    "E": "preserve-env", "H": "hold", "K": "kill-on-bad-exit", "k": "no-kill", "l": "label", "O": "overcommit",
    "Q": "quiet", "s": "oversubscribe", "u": "unbuffered", "v": "verbose", "X": "disable-status", "Z": "no-allocate",
    "I": "immediate", "V": "version", "h": "help",
}  # fmt: skip
_FLAGS = frozenset(
    [
        "preserve-env",
        "hold",
        "no-kill",
        "label",
        "overcommit",
        "quiet",
        "oversubscribe",
        "unbuffered",
        "verbose",
        "disable-status",
        "no-allocate",
        "version",
        "help",
        "overlap",
        "exact",
        "whole",
        "multi-prog",
        "contiguous",
        "spread-job",
        "use-min-nodes",
        "test-only",
        "pty",
        "no-shell",
        "requeue",
        "no-requeue",
        "container-readonly",
        "no-container-readonly",
        "container-writable",
        "no-container-mount-home",
        "container-mount-home",
        "no-container-entrypoint",
        "container-entrypoint",
        "container-remap-root",
        "no-container-remap-root",
        "slurmd-debug",
        "resv-ports",
        "send-libs",
        "mpi-combine",
        "reboot",
        "get-user-env",
        "share",
        "interactive",
        "ignore-pbs",
        "external",
    ]
)
#: Flags that may have a value, but only after ``=``.
_OPTIONAL = frozenset(
    {"kill-on-bad-exit", "exclusive", "immediate", "nice", "propagate", "x11", "pty", "label"}
)
_SAME = {"tasks": "ntasks", "tasks-per-node": "ntasks-per-node", "tasks-per-gpu": "ntasks-per-gpu",
         "workdir": "chdir", "gpus-per-tasks": "gpus-per-task"}  # fmt: skip


@dataclass
class SrunOptions:
    """What stands on the command line, by long name, and the command to run."""

    options: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    problem: str = ""
    unknown: list[str] = field(default_factory=list)

    def number(self, name: str) -> int | None:
        text = self.options.get(name, "")
        match = re.match(r"(\d+)", text.rpartition(":")[2] if name.startswith("gpus") else text)
        return int(match[1]) if match else None

    def has(self, name: str) -> bool:
        return name in self.options


_VALUES = frozenset(
    [
        "account",
        "acctg-freq",
        "bb",
        "bbf",
        "bcast",
        "begin",
        "clusters",
        "comment",
        "compress",
        "constraint",
        "container",
        "container-image",
        "container-mounts",
        "container-name",
        "container-save",
        "container-workdir",
        "container-env",
        "container-id",
        "context",
        "core-spec",
        "cores-per-socket",
        "cpu-bind",
        "cpu_bind",
        "cpu-freq",
        "cpus-per-gpu",
        "cpus-per-task",
        "chdir",
        "deadline",
        "debugger-test",
        "delay-boot",
        "dependency",
        "distribution",
        "environment",
        "epilog",
        "error",
        "exclude",
        "export",
        "export-file",
        "extra",
        "extra-node-info",
        "gid",
        "gpu-bind",
        "gpu-freq",
        "gpus",
        "gpus-per-node",
        "gpus-per-socket",
        "gpus-per-task",
        "gres",
        "gres-flags",
        "hint",
        "het-group",
        "pack-group",
        "input",
        "job-name",
        "jobid",
        "licenses",
        "mail-type",
        "mail-user",
        "max-threads",
        "mcs-label",
        "mem",
        "mem-bind",
        "mem_bind",
        "mem-per-cpu",
        "mem-per-gpu",
        "mincpus",
        "mpi",
        "msg-timeout",
        "network",
        "nodefile",
        "nodelist",
        "nodes",
        "ntasks",
        "ntasks-per-core",
        "ntasks-per-gpu",
        "ntasks-per-node",
        "ntasks-per-socket",
        "ntasks-per-tres",
        "open-mode",
        "output",
        "partition",
        "power",
        "prefer",
        "priority",
        "profile",
        "prolog",
        "qos",
        "reservation",
        "segment",
        "signal",
        "slurmd-debug",
        "sockets-per-node",
        "stepmgr",
        "switches",
        "task-epilog",
        "task-prolog",
        "thread-spec",
        "threads",
        "threads-per-core",
        "time",
        "time-min",
        "tmp",
        "tree-width",
        "tres-bind",
        "tres-per-task",
        "uid",
        "wait",
        "wckey",
        "relative",
        "send-libs",
        "bcast-exclude",
        "resv-ports",
    ]
)


def parse(words: Sequence[str]) -> SrunOptions:
    """The command line after ``srun``. Options end at the first word that is none, or at ``--``."""
    parsed = SrunOptions()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _full_name(name)
            if name not in _VALUES | _FLAGS | _OPTIONAL:
                parsed.unknown.append(
                    word
                )  # of another version, or a site's plug-in: a value may only follow a =
                continue
            if not equals and name in _VALUES and name not in _FLAGS and name not in _OPTIONAL:
                if not rest:
                    parsed.problem = f"srun: option '--{name}' requires an argument"
                    return parsed
                value = rest.pop(0)
            parsed.options[name] = value
        elif word.startswith("-") and len(word) > 1:
            problem = _short(word[1:], rest, parsed.options)
            if problem:
                parsed.problem = problem
                return parsed
        else:
            rest.insert(0, word)
            break
    parsed.command = rest
    return parsed


def _full_name(name: str) -> str:
    """getopt_long takes every beginning of a name that is not ambiguous."""
    name = _SAME.get(name, name)
    known = _VALUES | _FLAGS | _OPTIONAL
    if name in known:
        return name
    found = [one for one in known if one.startswith(name)]
    return found[0] if len(found) == 1 else name


def _short(text: str, rest: list[str], options: dict[str, str]) -> str:
    """``-lN2``: flags, then one option with its value, attached or in the next word."""
    while text:
        letter, text = text[0], text[1:]
        if letter in _FLAG_SHORT:
            if letter in "KI":  # its value may only be attached
                options[_FLAG_SHORT[letter]], text = text, ""
                return ""
            options[_FLAG_SHORT[letter]] = ""
        elif letter in _VALUE_SHORT:
            if not text and not rest:
                return f"srun: option requires an argument -- '{letter}'"
            options[_VALUE_SHORT[letter]] = text.removeprefix("=") if text else rest.pop(0)
            return ""
        else:
            return f"srun: invalid option -- '{letter}'"
    return ""


#: Input variables of srun that change a step; an option on the command line wins.
_INPUT = {
    "SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NPROCS": "ntasks", "SLURM_NTASKS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node", "SLURM_GPUS_PER_TASK": "gpus-per-task", "SLURM_GPU_BIND": "gpu-bind",
    "SLURM_NTASKS_PER_GPU": "ntasks-per-gpu", "SLURM_DISTRIBUTION": "distribution", "SLURM_EXPORT_ENV": "export",
    "SLURM_STEP_GPUS_PER_NODE": "gpus-per-node", "SLURM_OVERLAP": "overlap", "SLURM_EXACT": "exact",
    "SLURM_LABELIO": "label", "SLURM_OVERCOMMIT": "overcommit", "SLURM_WHOLE": "whole",
    "SLURM_MPI_TYPE": "mpi", "SLURM_REMOTE_CWD": "chdir", "SLURM_WORKING_DIR": "chdir",
    "SRUN_CPUS_PER_TASK": "cpus-per-task", "SRUN_EXPORT_ENV": "export",
}  # fmt: skip


def inherited(env: Mapping[str, str], version: tuple[int, int]) -> dict[str, str]:
    """The options that variables give. In 22.05 and 23.02 the job's own -c is not among them."""
    given = {option: env[name] for name, option in _INPUT.items() if name in env}
    job_cpus = env.get("SLURM_CPUS_PER_TASK")
    if job_cpus and "cpus-per-task" not in given and not (22, 5) <= version < (23, 11):
        given["cpus-per-task"] = job_cpus
    return given
