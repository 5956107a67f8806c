"""What a Python program does with ranks, devices, data and files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rankup.check.facts.program.code import ProgramCode
from rankup.check.facts.program.data import Data, read_data
from rankup.check.facts.program.module import Call
from rankup.check.facts.program.value import Kind, the_constant


@dataclass
class Program(ProgramCode):
    """A Python program: its code, its data, and what rules of job scripts ask of it."""

    @cached_property
    def data(self) -> Data:
        return read_data(self)

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
