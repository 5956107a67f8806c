"""Names that decide by their sound, all of them: what is not known otherwise is believed to be what it is called.

A name may make a rule silent, or weaker. It never makes a finding sure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from rankup.check.facts.program.module import identifiers
from rankup.check.facts.program.names import words

#: True on one rank only.
FIRST_RANK = words(
    """
    is_main is_master is_first is_root is_primary is_chief is_leader master_process main_process rank_zero rank0 rank_0
    is_zero_rank local_zero global_zero log_rank is_logging_process is_rank master_only main_rank
    """
)
#: Numbers of a process.
A_RANK = words("procid proc_id process_index process_id gpu local_process_index")
#: Something that differs between processes.
PROCESS = words("rank proc gpu device shard node worker")
#: A question whether there are several processes.
MANY = words("dist world ddp multi parallel sampler rank")
ONE_PROCESS = words("world distributed initialized ddp multi single parallel")
GROUP_EXISTS = words("initialized world distributed available")
MAY_SAVE = (*PROCESS, *words("dist world ddp main master should_save do_save"))
LEAVES_EARLY = (*PROCESS, "dist", "world")
MAY_DOWNLOAD = words("dist world ddp rank exists download")
TURNS = words("first lock")
#: Data that are divided among ranks.
SHARDED = words("rank world shard")
OWN_SEED = words("rank seed_offset")
WORLD = words("world replica")
#: Data in an order that is wanted, or that were shuffled before.
ORDERED = words("shuffle permut pack sort")
#: A file of each process, or of each node.
OWN_FILE = words("buffer uuid pid tempfile temporary mkstemp mkdtemp gettempdir mktemp")
NODE_FILE = words("tmp local scratch node rank host ssd nvme")
#: A number that knows how many ranks there are.
SCALED = words("world scale global warm")
GLOBAL = words("global total effective")
#: Results that are added up over ranks.
ADDS_UP = words("reduce gather synchronize_between sync_between all_to_all")
#: What may leave out a step with inf by itself.
FINITE = words("finite isinf isnan found_inf overflow get_scale")
DEVICE = words("device gpu local")
OPTIMIZER_STATE = words("optim opt state. trainer")

GLOBAL_BATCH = re.compile(r"(^|_)(global|total|effective)_?(batch|bs)", re.I)
GLOBAL_HELP = re.compile(r"total|global|effective|all (gpus|processes|ranks|nodes)|across", re.I)
LOCAL_HELP = re.compile(r"\bper\b|each", re.I)
EVALUATION = re.compile(r"(?<![a-z])(e?val(id|idation|uation)?|test(ing)?|dev|inference)(?![a-z])", re.I)
TRAINING = re.compile(r"train", re.I)
ONE_MACHINE = re.compile(r"(single|one)[-_ ]?(node|machine)|standalone", re.I)
PRECISION = re.compile(r"^--?(use[-_])?(amp|fp16|bf16|half|precision|mixed[-_]precision|tf32|dtype)\b")


def sounds(what: ast.AST | str, like: Iterable[str]) -> bool:
    """Whether a name, or any name in an expression, has one of these words in it."""
    named = [what] if isinstance(what, str) else identifiers(what)
    return any(word in name.lower() for name in named for word in like)


def says(node: ast.AST, words: Iterable[str]) -> bool:
    """Whether one of these words is anywhere in the text of a node."""
    text = ast.unparse(node).lower()
    return any(word in text for word in words)


def is_optimizer_name(name: str) -> bool:
    last = name.rpartition(".")[2].lower()
    return last == "opt" or (last.startswith("optim") and "sched" not in last)


def may_step_name(name: str) -> bool:
    """An optimizer or a gradient scaler: what a training loop steps with."""
    return sounds(name, ("opt", "scaler"))
