"""What a column of a table holds, from its header and its cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankup.scale.published import quantities as q


@dataclass(frozen=True)
class Column:
    """``role``: devices, nodes, per-node, cores, time, rate, speedup, efficiency, batch, accuracy, epochs, repeats,
    precision, group, name or other.

    ``per``: a time of the whole training (""), of an ``epoch`` or a ``step``, or to a ``target`` accuracy; a rate or a
    batch of the whole job (""), or of one ``device``. ``unit`` of a time. ``precision`` that the header names.
    """

    index: int
    header: str
    role: str
    per: str = ""
    unit: str = ""
    precision: str | None = None


_SPEEDUP = (
    r"speed[\s_-]*up|加速比|acceleration|beschleunigung|aceleraci|scaling factor|strong scaling|"
    r"weak scaling|\bscaling\b|\bfaster\b"
)
_EFFICIENCY = r"efficien|eficien|effizien|扩展效率|\beff\b|% of (?:linear|ideal)|linear scaling"
_RATE = (
    r"throughput|images?\s*(?:/|per)|img\s*(?:/|per)|samples?\s*(?:/|per)|seq\w*\s*(?:/|per)|"
    r"tokens?\s*(?:/|per)|examples?\s*(?:/|per)|吞吐|durchsatz|\bspeed\b"
)
_TIME = (
    r"\btime\b|time\s*[(\[/]|training.?time|epoch.?time|_time\b|\bdauer\b|duration|run\s*time|"
    r"runtime|wall|elapsed|\bseconds?\b|\bsecs?\b|\bminutes\b|\bhours\b|\btempo\b|\btiempo\b|"
    r"\btemps\b|laufzeit|\bzeit\b|耗时|时间|^(?:ms|secs?|s|min|h)\s*/|s/epoch"
)
_PARTIAL = (
    r"communicat|comm\.|\bcomm\b|all-?reduce|data.?load|load(?:ing)?\b|i/o|\bwait|queue|"
    r"start-?up|setup|compile|inference|latency|download|eval|validation time|test time|valid"
)
_NOT_A_COUNT = (
    r"time|memory|mem\b|util|speed|effici|batch|throughput|hour|cost|model|type|name|images|"
    r"samples|power|energy|tflop|flops|vram|ram\b|\bgb\b|bandwidth|price"
)
_PER_NODE = (
    r"(?:gpus?|gpu_num|process\w*|ranks?|devices?|tasks?|n?procs?|ppn|cards?)[\s_]*(?:per|/|"
    r"_per_|each)[\s_]*(?:node|server|host|machine)|per[\s_-]*node|\bppn\b|/\s*node"
)
_DEVICES = (
    r"\bgpus?\b|gpu_?num|num_?gpus?|n_?gpus?|#\s*gpus?|devices?\b|accelerators?|world[\s_]*size|"
    r"\branks?\b|process(?:es|ors?)?\b|\bprocs?\b|nproc\b|n_?procs|gcds?|tpus?\b|显卡|卡数|gpu数|"
    r"gpu数量|副本|processus|prozess"
)
_WORKERS = r"^(?:#|number of)?\s*workers$"
_LOADERS = r"num workers|loader"
_TIME_OVER_UNIT = re.compile(r"^(?:[a-z]+\s+)?(?:time|t|runtime|duration)\s*/\s*(ms|s|min|h)\b")
_NODES = (
    r"\bnodes?\b|node_?num|num_?nodes|nnodes|n_nodes|machines?\b|servers?\b|\bhosts?\b|节点|"
    r"knoten|nœuds|nodos"
)
_CORES = r"\bcores?\b|\bcpus?\b|\bthreads?\b"
_BATCH = r"batch|\bbs\b|mini-?batch|批"
_LOCAL = (
    r"per[\s_-]*(?:gpu|device|process|rank|card|worker|replica|node)|/\s*(?:gpu|device)|local|micro|each gpu"
)
_GLOBAL = r"global|total|effective|overall|aggregate"
_GROUP = (
    r"model|network|architecture|\barch\b|framework|dataset|data set|\bdata\b|\btask\b|hardware|"
    r"gpu type|gpu model|machine type|system|cluster|image size|resolution|sequence|seq|problem|"
    r"library|backend|mode|implementation|version"
)
_OTHER_COMPARISON = r"\bvs\.?\b|\bversus\b|relative to|compared (?:to|with)|\bover\b"
_DEVICE_BASELINE = (
    r"1 gpu|single|baseline|one gpu|1 node|serial|sequential|1 process|previous|no ddp|1×|1x|"
    r"1 dev|ideal|linear|cpu"
)


def columns_of(rows: Sequence[Sequence[str]]) -> list[Column]:
    """The columns of a table whose first row is its header."""
    header, *body = rows
    columns = [_column(n, header[n], [row[n] for row in body]) for n in range(len(header))]
    gpus = [c for c in columns if c.role == "devices" and not re.search(_WORKERS, c.header.lower())]
    return [
        replace(c, role="other") if gpus and c.role == "devices" and c not in gpus else c for c in columns
    ]


def _column(index: int, header: str, cells: Sequence[str]) -> Column:
    low = re.sub(r"_+", " ", header.lower())
    filled = [cell for cell in cells if cell and cell not in "-–—"]
    named = q.precisions(header)
    precision = q.precision(header) if len(named) == 1 or "mixed" in named else None

    def is_(pattern: str) -> bool:
        return bool(re.search(pattern, low))

    def made(role: str, per: str = "", unit: str = "") -> Column:
        return Column(index, header, role, per, unit, precision)

    counts = sum(q.count(cell) is not None or q.devices(cell) is not None for cell in filled)
    mostly_counts = bool(filled) and 2 * counts > len(filled)
    several = len(named - {"mixed"}) > 1 or (len(named) > 1 and re.search(r"\bto\b|vs", low) is not None)
    if match := _TIME_OVER_UNIT.match(low):
        return made("time", "", match[1])
    if is_(_LOADERS):
        return made("group")
    if is_(r"^s(?:\(\w\))?$"):
        return made("speedup")
    if is_(r"^e(?:\(\w\))?$"):
        return made("efficiency")
    if is_(_EFFICIENCY) and not is_(r"memory|energy|cost|power|sample eff|price|mem\b"):
        return made("other" if several else "efficiency")
    if is_(_SPEEDUP) and not (is_(_RATE) and not is_(r"speed[\s_-]*up|scaling|加速")):
        foreign = several or (is_(_OTHER_COMPARISON) and not is_(_DEVICE_BASELINE))
        if foreign or is_(r"learning|batch scaling|ideal|theoretical|expected"):
            return made("other")
        percent = [cell for cell in filled if "%" in cell]
        if percent and is_(r"faster|reduction|improve|gain|saved"):  # 45 % less time is not a ratio of times
            return made("other")
        if filled and 2 * len(percent) > len(filled):
            return made(_of_percents(filled))
        return made("speedup")
    if is_(_BATCH) and not is_(r"time|throughput|/s|per sec|latency"):
        return made("batch", "device" if is_(_LOCAL) else "global" if is_(_GLOBAL) else "")
    if is_(_PER_NODE) and not is_(_NOT_A_COUNT) and mostly_counts:
        return made("per-node")
    if q.is_rate(low) or (is_(_RATE) and not is_(_TIME)) or _cells_are_rates(filled):
        if is_(
            r"inference|validation|test|steps?\s*/|iter\w*\s*/|\bit/s|flop|\bgb/s|bandwidth|gbps|epochs?/"
        ):
            return made("other")
        return made("rate", "device" if is_(_LOCAL + r"|per worker") else "")
    if is_(_TIME) or q.header_unit(low) or _cells_are_times(filled):
        if is_(
            _PARTIAL + r"|timestamp|limit|ideal|theoretical|expected|estimated|speed|"
            r"std|stdev|deviation|\bsd\b|\bsem?\b|σ|"
            r"max\b|maximum|default|(?:node|gpu|cpu|core)[\s-]*h|gpu-?hours|cpu-?hours"
        ):
            return made("other")
        per = "epoch" if is_(r"epoch") and not is_(r"\d+\s*epochs|epochs\)") else ""
        if is_(r"time.to\b|to \d+(?:\.\d+)? ?%|\btarget\b|convergence|to accuracy"):
            per = "target"
        per = "step" if is_(r"step|iter|per batch|/batch|batch time") else per
        return made("time", per, q.header_unit(low))
    if is_(r"accura|\bacc\b|top-?\s?1|acc\.|精度|genauigkeit") and not is_(r"top-?5"):
        return made("accuracy")
    if is_(r"^(?:#|num\w*|number of)?\s*epochs?$|epochs"):
        return made("epochs")
    if is_(r"^(?:#|number of)?\s*(?:runs|repeats|repetitions|trials|seeds|n)$"):
        return made("repeats")
    if is_(r"precision|dtype|data type|\bamp\b|number format|精度类型"):
        return made("precision")
    kinds = {found[0] for cell in filled if (found := q.devices(cell))}
    with_devices = sum(q.devices(cell) is not None for cell in filled)
    if with_devices >= 2 and 2 * with_devices > len(filled):
        return made("nodes" if kinds == {"node"} else "name")
    counted = mostly_counts and not is_(_NOT_A_COUNT)
    if counted and is_(_DEVICES):
        return made("devices")
    if counted and is_(_NODES):
        return made("nodes")
    if counted and is_(_CORES):
        return made("cores")
    if is_(_WORKERS) and mostly_counts:
        return made("devices")
    if with_devices >= 2:
        return made("name")
    if is_(_GROUP) or is_(r"\bgpu\b"):
        return made("group")
    return made("other")


def _of_percents(cells: Sequence[str]) -> str:
    """The role of percents below a header like "speed-up": ``96%`` is an efficiency, ``182%`` a ratio, and ``+82%``,
    from ``0%`` on, a gain, which is neither."""
    if any(re.match(r"\W*\+|0+(?:\.0+)?\s*%", cell) for cell in cells):
        return "other"
    found = [share.value for cell in cells if (share := q.share(cell))]
    return "speedup" if found and max(found) >= 1.5 else "efficiency"


def _cells_are_rates(cells: Sequence[str]) -> bool:
    return bool(cells) and 2 * sum(q.is_rate(cell) for cell in cells) > len(cells)


def _cells_are_times(cells: Sequence[str]) -> bool:
    """Cells that give their unit: ``73.48 s``, ``1h 12m``; not ``4 m`` of anything."""
    timed = r"\d\s*(?:s|sec|seconds?|min|minutes?|h|hours?)\b|\d+:\d\d"
    return bool(cells) and 2 * sum(bool(re.search(timed, cell, re.I)) for cell in cells) > len(cells)


def find(columns: Sequence[Column], role: str) -> Column | None:
    return next((column for column in columns if column.role == role), None)


def has(columns: Sequence[Column], *roles: str) -> bool:
    return any(column.role in roles for column in columns)
