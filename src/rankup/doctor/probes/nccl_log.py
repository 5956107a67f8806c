"""What NCCL says of its transport, in its own log (NCCL_DEBUG=INFO)."""

from __future__ import annotations

import re
from typing import Any

_NETWORK = re.compile(r"NCCL INFO Using network (?P<name>[^\n]+)")
_CHANNEL = re.compile(r"NCCL INFO Channel \d+.*? via (?P<name>NET/[\w ]+?)(?:/\d+.*|\s*)$", re.M)
_LOCAL = re.compile(r"NCCL INFO Channel \d+.*? via (?P<name>P2P/[\w ]+?|SHM/?[\w ]*?)(?:/.*|\s*)$", re.M)
_PLUGIN = re.compile(r"NCCL INFO (?:NET/Plugin|Plugin): ?(?P<text>[^\n]+)")
_VERSION = re.compile(r"NCCL version (?P<version>[\d.]+)")
_INTERFACE = re.compile(r"NCCL INFO (?:NET/\w+|Bootstrap) ?: Using \[?0?\]?:?(?P<name>[\w.]+)[:<]")


def read_nccl_log(text: str) -> dict[str, Any]:
    """``network``: Socket, IB, AWS Libfabric …; ``between`` and ``inside``: transports of its channels."""
    plugin = [match["text"].strip() for match in _PLUGIN.finditer(text)]
    return {
        "version": _first(_VERSION, text, "version"),
        "network": _first(_NETWORK, text, "name"),
        "between": sorted({match["name"].strip() for match in _CHANNEL.finditer(text)}),
        "inside": sorted({match["name"].strip() for match in _LOCAL.finditer(text)}),
        "plugin": plugin[-1] if plugin else None,
        "interface": _first(_INTERFACE, text, "name"),
    }


def _first(pattern: re.Pattern[str], text: str, group: str) -> str | None:
    match = pattern.search(text)
    return match[group].strip() if match else None
