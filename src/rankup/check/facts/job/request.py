"""What a job asks the scheduler for, as numbers. What is not known is None."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from rankup.check.document import Span
from rankup.check.facts.job.directives import Directive

_GPUS = re.compile(r"gpu(?:[:=][A-Za-z][\w.-]*|:\d+g[\w.]*)?(?:[:=](\d+))?(?:\(.*\))?\Z")


@dataclass(frozen=True)
class Chunk:
    """A part of PBS's ``select`` or of Torque's ``nodes``: so many nodes of the same kind."""

    count: int | None
    resources: dict[str, str]
    span: Span

    def number(self, name: str) -> int | None:
        value = self.resources.get(name, "")
        return int(value) if value.isdigit() else None


@dataclass
class Request:
    """The directives that the scheduler reads, and what follows from them."""

    scheduler: str = ""  # slurm, pbs, torque, lsf; "": none
    directives: list[Directive] = field(default_factory=list)
    heterogeneous: bool = False  # several components: no number is known

    @cached_property
    def by_name(self) -> dict[str, Directive]:
        """The last of each name: it wins."""
        return {directive.name: directive for directive in self.directives}

    def get(self, *names: str) -> Directive | None:
        """The last directive of one of ``names``."""
        found = None
        for directive in self.directives:
            if directive.name in names:
                found = directive
        return found

    def _count(self, name: str) -> int | None:
        directive = self.by_name.get(name)
        return directive.number if directive is not None and not self.heterogeneous else None

    # ---- PBS and Torque

    @cached_property
    def resources(self) -> dict[str, tuple[str, Span]]:
        """PBS's ``-l name=value``."""
        found: dict[str, tuple[str, Span]] = {}
        for directive in self.directives:
            if directive.scheduler != "pbs" or directive.name != "l":
                continue
            start = directive.value_span.start
            for part in re.finditer(r"[^,]+", directive.value):
                name, _, value = part.group().partition("=")
                span = Span(start + part.start(), min(start + part.end(), directive.value_span.end))
                found[name.strip()] = (value.strip(), span)
        return found

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """The parts of ``select`` (PBS) or ``nodes`` (Torque)."""
        name = "select" if "select" in self.resources else "nodes"
        if name not in self.resources:
            return ()
        value, span = self.resources[name]
        found = []
        position = span.start + len(name) + 1
        for part in value.split("+"):
            words = part.split(":")
            if words[0].isdigit():
                count: int | None = int(words[0])
                words = words[1:]
            else:
                count = 1 if "=" in words[0] or (name == "nodes" and words[0].isalnum()) else None
            resources = {}
            for word in words:
                key, _, number = word.partition("=")
                resources[key] = number
            found.append(Chunk(count, resources, Span(position, min(position + len(part), span.end))))
            position += len(part) + 1
        return tuple(found)

    @property
    def one_chunk(self) -> Chunk | None:
        return self.chunks[0] if len(self.chunks) == 1 else None

    @property
    def packed(self) -> bool:
        """PBS may put several chunks on one node."""
        place = self.resources.get("place", ("", Span(0, 0)))[0]
        return self.scheduler == "pbs" and not re.search(r"scatter|vscatter", place)

    @property
    def lines_per_node(self) -> int | None:
        """How often PBS's node file names each node."""
        chunk = self.one_chunk
        if chunk is None:
            return None
        if self.scheduler == "torque":
            return chunk.number("ppn") if "ppn" in chunk.resources else 1
        return chunk.number("mpiprocs") if "mpiprocs" in chunk.resources else 1

    # ---- numbers

    @cached_property
    def nodes(self) -> int | None:
        if self.scheduler in ("pbs", "torque"):
            counts = [chunk.count for chunk in self.chunks]
            if not counts or None in counts:
                return None
            return sum(count or 0 for count in counts)
        nodes = self._count("nodes")
        if nodes is not None or "nodes" in self.by_name:
            return nodes
        tasks, per_node = self._count("ntasks"), self._count("ntasks-per-node")
        if tasks and per_node and tasks % per_node == 0:
            return tasks // per_node
        return None

    @property
    def many_nodes(self) -> bool:
        """Whether the job certainly has more than one node."""
        return (self.nodes or 0) > 1

    @property
    def tasks_given(self) -> bool:
        return "ntasks" in self.by_name or "ntasks-per-node" in self.by_name

    @cached_property
    def tasks_per_node(self) -> int | None:
        if self.scheduler in ("pbs", "torque"):
            return self.lines_per_node
        tasks, nodes = self._count("ntasks"), self._count("nodes")
        if tasks and nodes and tasks % nodes == 0:
            return tasks // nodes
        per_node = self._count("ntasks-per-node")
        if "ntasks-per-node" in self.by_name:
            return None if tasks and nodes else per_node
        if "ntasks-per-gpu" in self.by_name and self.by_name.keys() & {"gres", "gpus-per-node"}:
            per_gpu, gpus = self._count("ntasks-per-gpu"), self.gpus_per_node
            return per_gpu * gpus if per_gpu and gpus and tasks is None else None
        if "ntasks" in self.by_name or self.heterogeneous or "ntasks-per-gpu" in self.by_name:
            return tasks if nodes == 1 else None
        return 1 if self.scheduler == "slurm" else None

    @cached_property
    def tasks(self) -> int | None:
        if self.scheduler in ("pbs", "torque"):
            return self.nodes * self.lines_per_node if self.nodes and self.lines_per_node else None
        if "ntasks" in self.by_name:
            return self._count("ntasks")
        per_node = self.tasks_per_node
        if self.nodes is not None and per_node is not None:
            return self.nodes * per_node
        return None

    @cached_property
    def gpus_per_node(self) -> int | None:
        """GPUs on each node, if the directives say them for certain."""
        if self.heterogeneous:
            return None
        if self.scheduler in ("pbs", "torque"):
            chunk = self.one_chunk
            if chunk is None:
                return None
            return chunk.number("ngpus") if "ngpus" in chunk.resources else chunk.number("gpus")
        for directive in reversed(self.directives):
            if directive.name in ("gres", "gpus-per-node"):
                return _gpus_in(directive)
        per_task, per_node = self._count_of_gpus("gpus-per-task"), self.tasks_per_node
        if per_task and per_node:
            return per_task * per_node
        total = self._count_of_gpus("gpus")
        if total is not None and self.nodes and total % self.nodes == 0:
            return total // self.nodes
        return None

    def _count_of_gpus(self, name: str) -> int | None:
        directive = self.by_name.get(name)
        return _gpus_in(directive) if directive is not None else None

    @property
    def gpus_per_task(self) -> int | None:
        return self._count_of_gpus("gpus-per-task")

    @property
    def asks_for_gpus(self) -> bool | None:
        """None if it cannot be known."""
        if self.heterogeneous:
            return None
        for directive in self.directives:
            if directive.name in ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"):
                return True
            if directive.name in ("gres", "tres-per-task", "constraint") and "gpu" in directive.value.lower():
                return True
            if directive.name == "gpu":  # LSF
                return True
        if any("gpu" in name.lower() for chunk in self.chunks for name in chunk.resources):
            return True
        return any("gpu" in name.lower() for name in self.resources)

    @property
    def gpu_directive(self) -> Directive | None:
        """The directive that says how many GPUs."""
        for directive in reversed(self.directives):
            if directive.name in ("gpus-per-node", "gpus-per-task", "gpus"):
                return directive
            if directive.name == "gres" and "gpu" in directive.value:
                return directive
        return self.by_name.get("l") if self.chunks else None

    @property
    def cpus_per_task(self) -> int | None:
        chunk = self.one_chunk
        if chunk is not None:
            return chunk.number("ncpus") if self.scheduler == "pbs" else chunk.number("ppn")
        return self._count("cpus-per-task")

    @property
    def exclusive(self) -> bool:
        directive = self.by_name.get("exclusive")
        if directive is not None:
            return directive.value in ("", "exclusive")
        place = self.resources.get("place", ("", Span(0, 0)))[0]
        return "excl" in place

    def number(self, name: str) -> int | None:
        """The number that the scheduler puts into one of its variables in the batch shell."""
        if self.heterogeneous:
            return None
        if name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "PBS_NUM_NODES"):
            return self.nodes
        if name in ("SLURM_NTASKS", "SLURM_NPROCS"):
            return self.tasks if self.tasks_given else None
        if name in ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"):
            return self.tasks_per_node if self.tasks_given else None
        if name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
            return self.gpus_per_node
        if name == "SLURM_CPUS_PER_TASK":
            return self.cpus_per_task
        if name == "PBS_NUM_PPN":
            return self.lines_per_node
        return None


def _gpus_in(directive: Directive) -> int | None:
    """The number in ``4``, ``a100:4``, ``gpu:4``, ``gpu:a100:4``; several types are added; None if there is none."""
    total = 0
    seen = False
    for part in directive.value.split(","):
        text = part.strip()
        if directive.name == "gres":
            text = text.removeprefix("gres/").removeprefix("gres:")
            if not text.startswith("gpu"):
                continue
            match = _GPUS.match(text)
            if match is None:
                return None
            total += int(match.group(1) or 1)
        else:
            number = text.rpartition(":")[2]
            if not number.isdigit():
                return None
            total += int(number)
        seen = True
    return total if seen else None
