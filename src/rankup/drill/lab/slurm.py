"""A real SLURM on the hosts of a lab."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any, ClassVar

from rankup.drill.lab.lab import HEAD, HERE, NETWORK, Lab

_UP = {"idle", "allocated", "mixed"}


class SlurmLab(Lab):
    """``features`` and ``gpu_type`` are those of each node. Its usual queue (partition) is ``main``."""

    kind, title = "slurm", "SLURM"
    needs: ClassVar = {
        "slurmctld": "slurmctld",
        "slurmd": "slurmd",
        "scontrol": "slurm-client",
        "munged": "munge",
    }

    def __init__(
        self, nodes: int = 2, *, features: Sequence[str] = (), gpu_type: str = "", **sizes: Any
    ) -> None:
        super().__init__(nodes, **sizes)
        self._features, self._gpu_type = features, gpu_type

    def up_nodes(self) -> set[str]:
        tokens = ["sinfo", "--Node", "--partition=main", "--noheader", "--format=%N %T"]
        lines = [line.split() for line in self.run(HEAD, tokens, timeout=5).out.splitlines()]
        return {node for node, state in lines if state in _UP}

    def _write_files(self) -> None:
        super()._write_files()
        state, etc = self._state, self._state / "etc" / "slurm"
        for folder in (etc, state / "ctl", state / "munge", state / "gpu"):
            folder.mkdir(exist_ok=True)
        (state / "munge.key").write_bytes(os.urandom(128))
        (state / "munge.key").chmod(0o600)
        kind = f":{self._gpu_type}" if self._gpu_type else ""
        (etc / "slurm.conf").write_text(
            (HERE / "slurm.conf.in").read_text().format(
                head=HEAD, network=NETWORK, state=state, cpus=self.cpus, memory=self.memory,
                gres=f" Gres=gpu{kind}:{self.gpus}" if self.gpus else "",
                features=f" Feature={','.join(self._features)}" if self._features else "",
                partition_lines="\n".join(f"PartitionName={name}" for name in self.queues),
                node_lines="\n".join(f"NodeName={node} NodeAddr={self.address(node)}" for node in self.nodes),
            )
        )  # fmt: skip
        # Device files that nothing drives: SLURM counts them, and sets CUDA_VISIBLE_DEVICES from their numbers.
        for index in range(self.gpus):
            os.mknod(state / "gpu" / f"nvidia{index}", stat.S_IFCHR | 0o666, os.makedev(60, index))
        kind = f"Type={self._gpu_type} " if self._gpu_type else ""
        gpus = f"Name=gpu {kind}File={state}/gpu/nvidia[0-{self.gpus - 1}]\n" if self.gpus else ""
        (etc / "gres.conf").write_text(f"AutoDetect=off\n{gpus}")
        (etc / "cgroup.conf").write_text("")
