"""What a row was trained with, beside its precision and batch: the GPU, the model, the data. A speed-up over a row with
another one is not that of the devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rankup.scale.published.columns import Column

#: What it is called in a finding → headers of columns that tell it.
_HEADERS = {
    "model": r"^(?:neural )?(?:network|model|architecture|arch|backbone)(?:[\s_-]*name)?$",
    "data set": r"data[\s_-]?set(?![\s_-]*size)",
    "input size": r"(?:image|input|crop|patch)[\s_-]*size|resolution|seq(?:uence)?[\s_.-]*len(?:gth)?",
    "number of samples": r"^(?:#|number of|training|train|num|n)*[\s_-]*(?:samples|images|examples)$|"
    r"data[\s_-]?set[\s_-]*size",
    "compilation": r"compile|\bjit\b|inductor|\bxla\b",
}
#: What changes how much work a time is of, and not how many samples a second are trained.
OF_TIMES_ALONE = frozenset(["number of samples"])

_CHIP = re.compile(
    r"\b(?:(?:V|A|H|P|K|B|L|T|GH|GB)\d{2,3}[a-z]?|MI\d{2,3}[a-z]?|(?:RTX|GTX)\s?(?:A?\d{3,4})(?:\s?Ti)?|"
    r"titan\s?\w{1,3}|gaudi\s?\d?|TPU[\s-]?v\d\w?)\b",
    re.I,
)
_NOTHING = frozenset(["", "-", "–", "—", "n/a", "?", '"', "〃"])
# Words that say how something is run, and not what.
_HOW_IT_RUNS = re.compile(
    r"\([^)]*\)|\b(?:ddp|dp|fsdp\d?|deepspeed|zero\S*|horovod|distributed\w*|data ?parallel|parallel|baseline|single|"
    r"multi|with|without|on|and|amp|fp\d+|bf\d+|tf32|mixed|precision|gpus?|nodes?|\d+\s*[x×]|[x×]\s*\d+)\b"
)
_YES, _NO = r"\W*(?:yes|on|true|✓|✔|✅|x)\W*", r"\W*(?:no|off|false|none|✗|✘|❌)\W*"


def setup_of(cells: Sequence[str], columns: Sequence[Column]) -> Mapping[str, str]:
    """What a row tells of it, in words that can be compared."""
    told: dict[str, str] = {}
    for column in columns:
        cell = cells[column.index].strip()
        if column.role in ("name", "devices", "group") and (chip := _CHIP.search(cell)):
            told.setdefault("GPU", chip[0])
        if column.role not in ("group", "other", "name"):
            continue
        header = re.sub(r"_+", " ", column.header.lower()).strip()
        what = next((what for what, pattern in _HEADERS.items() if re.search(pattern, header)), None)
        if what is not None and cell.lower() not in _NOTHING:
            told[what] = cell
    return told


def differs(what: str, one: str | None, other: str | None) -> bool:
    """Unknown ones are not known to differ, nor is a shorter name of the same: ``ImageNet`` of ``ImageNet-1k``."""
    if one is None or other is None:
        return False
    before, after = _bare(one), _bare(other)
    if not before or not after or before == after:
        return False
    exact = what in ("GPU", "number of samples")
    return exact or not (before in after or after in before)


def _bare(text: str) -> str:
    if re.fullmatch(_YES, text, re.I):
        return "yes"
    if re.fullmatch(_NO, text, re.I):
        return "no"
    return re.sub(r"[\W_]+", "", _HOW_IT_RUNS.sub(" ", text.lower()))
