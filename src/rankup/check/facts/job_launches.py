"""Which commands start a training program, by which launcher, with which options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from rankup.check.facts.job_commands import Value, Variable
from rankup.check.facts.job_options import Grammar, grammar, parse

_TORCHRUN_VALUES = (
    "nnodes nproc_per_node nproc-per-node rdzv_backend rdzv-backend rdzv_endpoint rdzv-endpoint rdzv_id "
    "rdzv-id rdzv_conf rdzv-conf max_restarts max-restarts monitor_interval monitor-interval start_method "
    "start-method role log_dir log-dir redirects r tee t node_rank node-rank master_addr master-addr "
    "master_port master-port local_addr local-addr local_ranks_filter local-ranks-filter logs_specs "
    "logs-specs nnode nproc-per-node numa-binding numa_binding log_line_prefix_template event_log_handler"
)
_ACCELERATE_VALUES = (
    "config_file config-file num_processes num-processes num_machines num-machines machine_rank "
    "machine-rank main_process_ip main-process-ip main_process_port main-process-port mixed_precision "
    "mixed-precision gpu_ids gpu-ids rdzv_backend rdzv-backend rdzv_conf rdzv-conf "
    "num_cpu_threads_per_process num-cpu-threads-per-process dynamo_backend dynamo-backend "
    "deepspeed_config_file deepspeed-config-file zero_stage zero-stage deepspeed_multinode_launcher "
    "deepspeed_hostfile offload_optimizer_device offload_param_device gradient_accumulation_steps "
    "gradient_clipping zero3_init_flag zero3_save_16bit_model fsdp_sharding_strategy "
    "fsdp_auto_wrap_policy fsdp_state_dict_type fsdp_transformer_layer_cls_to_wrap fsdp_offload_params "
    "fsdp_backward_prefetch fsdp_version same_network_ max_restarts monitor_interval role log_dir tee "
    "deepspeed_exclusion_filter deepspeed_inclusion_filter main_training_function dynamo_mode "
    "downcast_bf16_ num_cpu_threads mpirun_hostfile mpirun_ccl"
)
_DEEPSPEED_VALUES = (
    "H hostfile i include e exclude num_nodes num_gpus min_elastic_nodes max_elastic_nodes master_port "
    "master_addr node_rank launcher launcher_args elastic_training_ ssh_port venv_script bind_core_list"
)
#: The spelling that all launchers share here → options of accelerate and deepspeed.
_SAME = {
    "num_processes": "num_processes", "num_machines": "nnodes", "machine_rank": "node_rank",
    "main_process_ip": "master_addr", "main_process_port": "master_port", "num_nodes": "nnodes",
    "num_gpus": "nproc_per_node", "H": "hostfile", "i": "include", "e": "exclude", "r": "redirects", "t": "tee",
}  # fmt: skip


def _aliases(names: str) -> dict[str, str]:
    found = {}
    for name in names.split():
        canonical = name.replace("-", "_")
        canonical = _SAME.get(canonical, canonical)
        for dashes in ("-", "--"):
            found[dashes + name] = canonical
    return found


_TORCHRUN_FLAGS = ("standalone", "m", "module", "no_python", "no-python", "run_path", "run-path")
_ACCELERATE_FLAGS = (
    "multi_gpu",
    "cpu",
    "tpu",
    "use_deepspeed",
    "use_fsdp",
    "m",
    "module",
    "no_python",
    "same_network",
)
_DEEPSPEED_FLAGS = (
    "module",
    "no_python",
    "no_local_rank",
    "no_ssh",
    "force_multi",
    "bind_cores_to_rank",
    "autotuning",
)


def _grammar(values: str, flags: Sequence[str]) -> Grammar:
    options = [dashes + name for name in values.split() for dashes in ("-", "--")]
    return grammar(" ".join(options), {**_aliases(values), **_aliases(" ".join(flags))})


_TORCHRUN = _grammar(_TORCHRUN_VALUES, _TORCHRUN_FLAGS)
_ACCELERATE = _grammar(_ACCELERATE_VALUES, _ACCELERATE_FLAGS)
_DEEPSPEED = _grammar(_DEEPSPEED_VALUES, _DEEPSPEED_FLAGS)
_HOROVOD = grammar("-np -p -H --hostfile --num-proc --hosts --network-interface", {"-np": "num_processes"})
_PYTHON = grammar("-W -X -c", {})
_FABRIC = _grammar("accelerator strategy devices num_nodes num-nodes precision main_address main-address main_port "
                   "main-port node_rank node-rank", ())  # fmt: skip

_IS_PYTHON = re.compile(r"(python|pypy)[\d.]*(t|w)?\Z|pythonw?\d?\.sif\Z")


@dataclass(frozen=True)
class LauncherLine:
    """A launcher's command line."""

    launcher: str  # python, torchrun, launch (torch.distributed.launch), accelerate, deepspeed, horovodrun, fabric, ray
    options: dict[str, Value] = field(default_factory=dict)
    words: dict[str, Value] = field(default_factory=dict)
    script: Value | None = None
    module: str = ""  # of python -m
    arguments: tuple[Value, ...] = ()
    inline: bool = False  # python -c, python - <<EOF: not a program of its own
    no_python: tuple[Value, ...] = ()  # torchrun --no_python COMMAND


def start_of(name: str, argv: Sequence[Value]) -> LauncherLine | None:
    """How ``argv`` starts a Python program; None if it does not."""
    words = argv[1:]
    if name in ("torchrun", "torchrun_jsc"):
        return _launcher("torchrun", words, _TORCHRUN)
    if name == "accelerate":
        return _launcher("accelerate", words[1:], _ACCELERATE) if _is(words, "launch") else None
    if name in ("deepspeed", "ds"):
        return _launcher("deepspeed", words, _DEEPSPEED)
    if name == "horovodrun":
        parsed = parse(words, _HOROVOD)
        inner = start_of(_base(parsed.rest), parsed.rest) if parsed.rest else None
        if inner is None:
            return None
        return LauncherLine(
            "horovodrun", parsed.options, parsed.words, inner.script, inner.module, inner.arguments
        )
    if name in ("fabric", "lightning"):
        if not _is(words, "run"):
            return None
        rest = words[2:] if len(words) > 1 and words[1].known == "model" else words[1:]
        return _launcher("fabric", rest, _FABRIC)
    if _IS_PYTHON.match(name) or (not name and _is_python_variable(argv)):
        return _python(words)
    return None


def _python(words: Sequence[Value]) -> LauncherLine | None:
    index = 0
    while index < len(words):
        known = words[index].known
        head = words[index].head
        if known in ("-m",) or (known is not None and re.fullmatch(r"-[uBEsSOIv]+m", known)):
            return _module(words[index + 1 :])
        if known == "-" or (known is not None and re.fullmatch(r"-[uBEsSOIv]*c", known)):
            return LauncherLine("python", inline=True)
        if known in ("-W", "-X"):
            index += 2
            continue
        if not head.startswith("-"):
            return LauncherLine("python", script=words[index], arguments=tuple(words[index + 1 :]))
        if known in ("-V", "--version", "-h", "--help"):
            return None
        index += 1
    return None


def _module(words: Sequence[Value]) -> LauncherLine | None:
    if not words:
        return None
    name, rest = words[0].known or "", tuple(words[1:])
    if name in ("torch.distributed.run", "torch.distributed.elastic"):
        return _launcher("torchrun", rest, _TORCHRUN)
    if name == "torch.distributed.launch":
        return _launcher("launch", rest, _TORCHRUN)
    if name in ("accelerate.commands.launch", "accelerate.launch"):
        return _launcher("accelerate", rest, _ACCELERATE)
    if name.startswith("accelerate.commands"):
        return _launcher("accelerate", rest[1:], _ACCELERATE) if _is(rest, "launch") else None
    if name in ("deepspeed.launcher.runner", "deepspeed"):
        return _launcher("deepspeed", rest, _DEEPSPEED)
    return LauncherLine("python", module=name or "?", arguments=rest)


def _launcher(launcher: str, words: Sequence[Value], options: Grammar) -> LauncherLine:
    parsed = parse(words, options)
    rest = parsed.rest
    if "no_python" in parsed.options:
        return LauncherLine(launcher, parsed.options, parsed.words, arguments=rest[1:], no_python=rest)
    if not rest:
        return LauncherLine(launcher, parsed.options, parsed.words)
    if parsed.options.keys() & {"m", "module"}:
        module = rest[0].known or "?"
        return LauncherLine(launcher, parsed.options, parsed.words, module=module, arguments=rest[1:])
    return LauncherLine(launcher, parsed.options, parsed.words, rest[0], arguments=rest[1:])


def _is(words: Sequence[Value], known: str) -> bool:
    return bool(words) and words[0].known == known


def _base(argv: Sequence[Value]) -> str:
    return (argv[0].known or "").rpartition("/")[2]


def _is_python_variable(argv: Sequence[Value]) -> bool:
    """``$PYTHON train.py`` where nobody knows what PYTHON is."""
    atoms = argv[0].atoms if argv else ()
    return (
        len(atoms) == 1
        and isinstance(atoms[0], Variable)
        and bool(re.search(r"PYTHON(_?(BIN|EXE|EXEC|CMD|3))?\Z", atoms[0].name.upper()))
    )


def relative_path(script: Value, folder: str | None, here: frozenset[str]) -> str:
    """A program's path relative to the job script's folder; "" if nobody knows it.

    ``folder`` is the working directory in the same way (None: unknown, and then the script's folder is as good a guess
    as any); ``here`` are variables that hold the folder from which the job was submitted.
    """
    atoms = [atom for atom in script.atoms if getattr(atom, "text", "x") or isinstance(atom, Variable)]
    base = folder or ""
    if atoms and isinstance(atoms[0], Variable) and atoms[0].name in here:
        script, base = Value(tuple(atoms[1:])), ""
        path = (script.known or "").lstrip("/")
    else:
        path = script.known or ""
    if not path or path.startswith(("/", "~")) or not path.endswith(".py"):
        return ""
    parts: list[str] = []
    for part in PurePosixPath(base, path).parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
