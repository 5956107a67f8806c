"""What needs torch, in processes of its own: all-reduces that are timed here, and the parameters of a workload."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rankup.core import shell
from rankup.core.records import read_records
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.resolve.resolved import Resolved
from rankup.run.execute import Result, View, execute
from rankup.scale.predict.links import FREE, RING, Link, Links, fit_link

# From what latency decides about to what bandwidth does; DDP's buckets are among them.
SWEEP = (4 * 1024, 64 * 1024, 1024**2, 4 * 1024**2, 25 * 1024**2)


def measure_links(
    flags: Mapping[str, Any],
    view: View,
    sizes: Sequence[int] = SWEEP,
    *,
    execute: Callable[[Resolved, View], Result] = execute,
) -> tuple[Links, list[dict[str, Any]]]:
    """The links of this machine or allocation, and the records they were fitted to. Raises RankupError."""
    command = ("-m", "rankup.train.allreduce_times", *map(str, sizes))
    result = execute(resolve_here({"name": "links", **flags}, command=command), view)
    if result.code != 0:
        raise result.error or RankupError(
            "sweep-failed", "the bandwidth sweep failed", context=str(result.run.path), exit_code=1
        )
    records = read_records(result.run.records / "links.jsonl", "allreduce")
    return links_of(records), records


def links_of(records: Sequence[Mapping[str, Any]]) -> Links:
    """α and β of each link that was measured; gloo and NCCL use rings for all but the smallest sizes."""
    if not records:
        raise RankupError(
            "one-process",
            "one process has no link to measure",
            hint="--nproc-per-node 2, or an allocation of several nodes",
            exit_code=1,
        )
    fitted: dict[str, Link] = {}
    for name in ("inside", "between"):
        rows = [record for record in records if record["link"] == name]
        pairs = [(float(row["bytes"]), float(row["seconds"])) for row in rows]
        fitted[name] = fit_link(pairs, rows[0]["devices"], RING) if rows else FREE
    return Links(fitted["inside"], fitted["between"], RING)


def parameter_bytes(target: str) -> list[int]:
    """The bytes of each parameter of the workload ``module:Class``, in the model's order. Raises RankupError."""
    done = shell.run([sys.executable, "-m", "rankup.train.parameter_bytes", target], timeout=300)
    try:
        said = json.loads(done.out)
    except ValueError:
        said = None
    if isinstance(said, dict):
        raise RankupError.from_dict(said)
    if done.code != 0 or not isinstance(said, list):
        last = done.err.strip().splitlines()[-1:] or [f"exit code {done.code}"]
        raise RankupError(
            "no-parameters", f"cannot make the model of {target}: {last[0]}", hint="is torch installed here?"
        )
    return [int(size) for size in said]
