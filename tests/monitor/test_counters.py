"""CPU, memory and network against a /proc with known numbers."""

from __future__ import annotations

import psutil
import pytest

from rankup.monitor import counters
from rankup.monitor.counters import Counters, parse_cpu_lines

#      user nice system idle iowait irq softirq steal guest guest_nice
BEFORE = """\
cpu  1000 0 100 9000 500 0 0 0 700 0
cpu0 100 0 0 1000 0 0 0 0 0 0
cpu4 100 0 0 1000 0 0 0 0 50 0
cpu8 100 0 0 1000 0 0 0 0 0 0
intr 12345 0 0
"""
# In 100 ticks: core 0 all idle; core 4: 50 user, 10 system, 30 idle, 10 waiting for a disk; core 8: all busy.
AFTER = """\
cpu  1100 0 110 9130 510 0 0 0 750 0
cpu0 100 0 0 1100 0 0 0 0 0 0
cpu4 150 0 10 1030 10 0 0 0 99 0
cpu8 150 10 20 1000 0 5 5 10 0 0
intr 12399 0 0
"""
MEMORY = """\
MemTotal: 1000 kB
MemFree: 100 kB
MemAvailable: {} kB
Buffers: 0 kB
Cached: 500 kB
Shmem: 0 kB
Active: 0 kB
Inactive: 0 kB
"""
NETWORK = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 999999999 7 0 0 0 0 0 0 999999999 7 0 0 0 0 0 0
  eth0: {} 7 0 0 0 0 0 0 {} 7 0 0 0 0 0 0
 bond0: {} 7 0 0 0 0 0 0 {} 7 0 0 0 0 0 0
"""  # noqa: E501


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    monkeypatch.setattr(counters, "INTERFACES", str(tmp_path / "sys"))
    monkeypatch.setattr(counters, "job_cores", lambda: {0, 4})
    (tmp_path / "net").mkdir()

    def write(stat, available, *network):
        (tmp_path / "stat").write_text(stat)
        (tmp_path / "meminfo").write_text(MEMORY.format(available))
        (tmp_path / "net" / "dev").write_text(NETWORK.format(*network))

    write(BEFORE, 700, 10, 20, 100, 200)
    write.folder = tmp_path
    return write


def test_a_reading_tells_what_happened_since_the_one_before(proc):
    read = Counters()
    proc(AFTER, 600, 11, 23, 150, 290)
    assert read.read() == {
        "cpu_percent": 30.0,  # of cores 0 and 4; core 8 is not the job's
        "memory_bytes": 400 * 1024,
        "network_sent": 3 + 90,
        "network_received": 1 + 50,
    }
    again = read.read()
    assert (again["cpu_percent"], again["network_sent"], again["network_received"]) == (None, 0, 0)


def test_an_interface_above_a_real_one_is_not_counted_again(proc):
    (proc.folder / "sys" / "eth0" / "device").mkdir(parents=True)
    read = Counters()
    proc(AFTER, 600, 11, 23, 150, 290)
    told = read.read()
    assert (told["network_sent"], told["network_received"]) == (3, 1)


def test_a_network_counter_that_begins_anew_is_no_negative_number(proc):
    read = Counters()
    proc(AFTER, 600, 4, 25, 100, 200)
    told = read.read()
    assert (told["network_sent"], told["network_received"]) == (5, 0)


def test_what_the_system_does_not_tell_is_none(proc):
    read = Counters()
    for name in ("stat", "meminfo", "net/dev"):
        (proc.folder / name).unlink()
    assert set(read.read().values()) == {None}
    assert set(Counters().read().values()) == {None}


def test_a_container_that_numbers_its_cores_anew_is_read_as_a_whole():
    assert parse_cpu_lines(BEFORE, {64, 65}) == (1100, 10600)
    assert parse_cpu_lines(BEFORE, set()) == (1100, 10600)


def test_this_machine_tells_all():
    read = Counters()
    deadline = 10_000_000
    while (told := read.read())["cpu_percent"] is None and deadline:  # a tick is 10 ms
        deadline -= 1
    assert 0 <= told["cpu_percent"] <= 100
    assert 0 < told["memory_bytes"] < psutil.virtual_memory().total
