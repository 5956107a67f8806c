"""How this node resolves names, and its network interfaces."""

from __future__ import annotations

import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from rankup.doctor.plan import Plan
from rankup.errors import RankupError
from rankup.world.address import route_to

_SHOWN = 32  # hosts whose addresses are facts by themselves; of more only those with a problem are
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def probe(plan: Plan, node: int) -> dict[str, Any]:
    others = [host for index, host in enumerate(plan.hosts) if index != node]
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(others, pool.map(addresses_of, others), strict=True))
    shown = found if len(found) <= _SHOWN else {}
    routes = routes_to(others)
    return {
        "own_name": socket.gethostname(),
        "own": addresses_of(socket.gethostname()),
        "peers": shown,
        "unresolved": [host for host, addresses in found.items() if not addresses],
        "loopback": [
            host for host, addresses in found.items() if addresses and all(map(is_loopback, addresses))
        ],
        "interfaces": interfaces(),
        "routes": routes,
    }


def addresses_of(name: str) -> list[str]:
    """All addresses of ``name``, each once, in the resolver's order; none if it is unknown."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def routes_to(others: list[str]) -> list[str]:
    """The own addresses from which packets to the others leave; one, on most machines."""
    found: dict[str, None] = {}
    for host in others[:_SHOWN]:
        try:
            address = route_to(host)
        except RankupError:
            continue
        found.setdefault(address)
    return list(found)


def interfaces() -> dict[str, dict[str, Any]]:
    """Name → addresses, whether it is up, its speed in Mbit/s (0 if it does not tell)."""
    stats = psutil.net_if_stats()
    found = {}
    for name, addresses in psutil.net_if_addrs().items():
        stat = stats.get(name)
        found[name] = {
            "addresses": [one.address.partition("%")[0] for one in addresses if one.family in _FAMILIES],
            "up": bool(stat and stat.isup),
            "mbit": _speed(name, stat.speed if stat else 0),
        }
    return found


def _speed(name: str, told: int) -> int:
    if told < 65535:  # psutil's limit: 16 bits
        return max(told, 0)
    try:
        return max(int(Path(f"/sys/class/net/{name}/speed").read_text()), 0)
    except (OSError, ValueError):
        return 0
