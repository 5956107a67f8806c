"""What a Python program does with ranks, devices, data and files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rankup.check.facts.program.code import ProgramCode
from rankup.check.facts.program.data import Data, read_data
from rankup.check.facts.program.frameworks import Does
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.sounds import sounds
from rankup.check.facts.program.value import Kind, constants, objects, the_constant, union


@dataclass
class Program(ProgramCode):
    """A Python program: its code, its data, and what rules of job scripts ask of it."""

    @cached_property
    def data(self) -> Data:
        return read_data(self)

    # -- ranks

    @cached_property
    def distributed(self) -> bool:
        """Whether the program forms a process group: by itself, or by a framework that it starts for several ranks."""
        if self.inits:
            return True
        forming = self.named(*(name for row in self.framework_rows for name in row.forms))
        trainers = self.named(*(name for row in self.framework_rows for name in row.trainers))
        return (
            any(call.scope in self.running for call in forming)
            or any(self.several_devices(call) for call in trainers)
            or (self.gets(Does.GROUP) and self.many_ranks)
        )

    def several_devices(self, trainer: Call) -> bool:
        """Whether a trainer of a framework is certainly made for several processes."""
        for keyword in ("devices", "num_nodes", "gpus"):
            value = self.value(trainer, keyword)
            if any(atom.kind is Kind.SEQUENCE and len(atom.detail) > 1 for atom in value):
                return True  # devices=[0, 1]
            for number in constants(value):
                if isinstance(number, int) and not isinstance(number, bool) and (number > 1 or number == -1):
                    return True
        found = constants(self.value(trainer, "strategy"))
        return any(sounds(str(name), ("ddp", "fsdp", "deepspeed")) for name in found)

    @cached_property
    def averages(self) -> bool:
        """Whether gradients are averaged over ranks, or the model is sharded: by torch or by a framework."""
        return bool(self.wraps) or (self.distributed and self.gets(Does.WRAP))

    @cached_property
    def one_process(self) -> bool:
        """Whether it trains, and certainly has no other process to train with."""
        alone = not (self.many_ranks or self.distributed or self.averages or self.gets(Does.GROUP))
        return alone and self.whole and bool(self.methods("backward"))

    def of_frameworks(self) -> Iterator[Call]:
        """The collectives of objects that frameworks make: ``accelerator.gather()``."""
        for maker, methods in ((m, found) for row in self.framework_rows for m, found in row.collectives):
            for call in self.methods(*methods):
                value = self.values.of(call.base, call.scope)
                inner = union(atom.detail[0] for atom in value if atom.kind is Kind.ITEM)
                made = objects(value) + objects(inner)
                if made and all(one.name == maker for one in made):
                    yield call

    # -- what job scripts' rules ask

    @cached_property
    def uses_cuda(self) -> bool:
        """Whether it cannot run without a GPU: NCCL, or a device set without a question."""
        if any(the_constant(self.value(call, "backend", 0)) == "nccl" for call in self.inits):
            return True
        return bool(self.named("torch.cuda.set_device"))

    @cached_property
    def device_calls(self) -> list[Call]:
        """Calls that choose this process's GPU."""
        return self.named("torch.cuda.set_device")

    @cached_property
    def device_is_local_rank(self) -> bool:
        """Whether the GPU is chosen by the rank within the node, without regard to how many GPUs are visible."""
        for call in self.device_calls:
            value = self.value(call, "device", 0)
            own = [atom for atom in value if atom.kind is Kind.LOCAL_RANK]
            if own and all(atom.detail not in {"modulo", "spawn"} for atom in own):
                return True
        return False

    @cached_property
    def workers(self) -> list[tuple[Call, int]]:
        """Training loaders with a known number of workers."""
        found = []
        for loader in self.data.loaders:
            number = the_constant(self.value(loader.call, "num_workers"))
            if loader.call.argument("num_workers") is None and not loader.call.spread:
                number = 0
            if isinstance(number, int) and loader.trains:
                found.append((loader.call, number))
        return found
