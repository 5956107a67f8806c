"""``rankup doctor layernorm|matmul|allreduce``: a row for each size as soon as it is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rankup.cli.output import console
from rankup.core.columns import aligned
from rankup.core.records import read_records
from rankup.core.rundir import RunDir
from rankup.doctor import micro
from rankup.errors import RankupError
from rankup.run.execute import SilentView
from rankup.world.devices import count_gpus


@dataclass
class Progress(SilentView):
    """Says how many sizes are done."""

    name: str
    sizes: int
    said: int = field(default=0)

    def tick(self, run: RunDir) -> None:
        path = run.records / "micro.jsonl"
        done = len(read_records(path, "micro")) if path.exists() else 0
        if done > self.said:
            self.said = done
            console.say(f"{self.name}: {done} of {self.sizes} sizes")


def run_benchmark(
    name: str, sizes: str, dtype: str, nproc_per_node: int, plot: Path | None, *, as_json: bool
) -> None:
    try:
        chosen = [int(word) for word in sizes.split(",") if word.strip()]
    except ValueError:
        raise RankupError(
            "bad-sizes", f"sizes are whole numbers, got {sizes!r}", hint="--sizes 256,1024"
        ) from None
    # One process tells the speed of a device; an all-reduce needs two.
    each = nproc_per_node or (max(2, count_gpus()) if name == "allreduce" else 1)
    progress = Progress(name, len(chosen or micro.BENCHMARKS[name]))
    records = micro.measure(name, chosen, dtype, {"nproc_per_node": each}, progress)
    if plot is not None:
        micro.plot(records, plot)
    if as_json:
        console.print_json({"benchmark": name, "dtype": dtype, "nproc_per_node": each, "records": records})
        return
    rows = [[*micro.HEAD], *micro.rows(records)]
    print("\n".join(aligned(rows, right=range(len(micro.HEAD)))))
