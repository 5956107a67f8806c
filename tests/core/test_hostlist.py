"""Host lists: what SLURM prints is read, what we write is read back, and nothing malformed gets through."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankup.core.hostlist import MAX_HOSTS, compress, expand, expand_counts
from rankup.errors import RankupError

# As `scontrol show hostnames` of SLURM 22.05 expands them, but for the last three, which it does not read.
EXPANSIONS = [
    ("", []),
    ("node1", ["node1"]),
    ("node1,node2", ["node1", "node2"]),
    ("node[1-3]", ["node1", "node2", "node3"]),
    ("rack[1-2]n[3-4]", ["rack1n3", "rack1n4", "rack2n3", "rack2n4"]),
    ("a[1],b[3-4,007-010]", ["a1", "b3", "b4", "b007", "b008", "b009", "b010"]),
    ("b[08-11]", ["b08", "b09", "b10", "b11"]),
    ("n[1-2]x[5],q", ["n1x5", "n2x5", "q"]),
    ("n[2,1,2]", ["n2", "n1", "n2"]),
    ("c[9-10]-ib0", ["c9-ib0", "c10-ib0"]),
    ("[1-2].cluster.org", ["1.cluster.org", "2.cluster.org"]),
    ("  gpu-a[1]  ", ["gpu-a1"]),
]


@pytest.mark.parametrize(("text", "hosts"), EXPANSIONS)
def test_what_slurm_prints_is_expanded_in_order_with_its_padding(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("node[1-3", "a '[' without its ']' at character 9"),
        ("node1-3]", "a ']' without its '['"),
        ("node[3-1]", "3-1 runs backwards"),
        ("node[]", "no number"),
        ("node[1,]", "no number"),
        ("node[1-]", "no number"),
        ("node[a-b]", "no number"),
        ("node[1[2]]", "no number"),
        ("node[²]", "no number"),
        ("a,,b", "a host name is missing"),
        (",a", "a host name is missing"),
        ("a,", "a host name is missing"),
        ("node 1", "' ' in a host name"),
        ("node[1-999999999]", "more than 200,000 hosts"),
        ("a[1-1000]b[1-1000]", "more than 200,000 hosts"),
        ("a[1-150000],b[1-150000]", "more than 200,000 hosts"),
        (f"node[{'9' * 5000}]", "too many digits"),
    ],
)
def test_a_malformed_list_says_what_is_wrong_and_where(text: str, reason: str) -> None:
    with pytest.raises(RankupError) as caught:
        expand(text)
    assert caught.value.code == "bad-hostlist"
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        (["node1"], "node1"),
        (["node1", "node2", "node3", "node7"], "node[1-3,7]"),
        (["b9", "b10", "b11"], "b[9-11]"),
        (["b08", "b09", "b10"], "b[08-10]"),
        (["b8", "b08"], "b[8,08]"),
        (["n2", "n1"], "n[2,1]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["c9-ib", "c10-ib"], "c[9-10]-ib"),
        (["login", "node1", "login"], "login,node1,login"),
        (["x" + "1" * 30, "x" + "1" * 29 + "2"], "x" + "1" * 30 + ",x" + "1" * 29 + "2"),
    ],
)
def test_compress_writes_ranges_and_keeps_order_and_padding(hosts: list[str], text: str) -> None:
    assert compress(hosts) == text
    assert expand(text) == hosts


@pytest.mark.parametrize("host", ["", "a b", "a,b", "a[1]", "a\n"])
def test_what_cannot_be_a_host_name_is_not_compressed(host: str) -> None:
    with pytest.raises(RankupError, match="not a host name"):
        compress(["node1", host])


_numbers = st.integers(0, 1200).flatmap(lambda n: st.sampled_from([str(n), f"{n:03d}", f"{n:05d}"]))
_hosts = st.builds(
    lambda before, number, after: before + number + after,
    st.sampled_from(["n", "node", "rack1n", "gpu-", "9x"]),
    _numbers,
    st.sampled_from(["", "-ib", ".site.org"]),
)
_odd_hosts = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="[],"), min_size=1)


@given(st.lists(_hosts | _odd_hosts, max_size=40))
def test_expand_undoes_compress(hosts: list[str]) -> None:
    assert expand(compress(hosts)) == hosts


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 9))
def test_consecutive_hosts_become_one_range(first: int, count: int, width: int) -> None:
    hosts = [f"n{number:0{width}d}" for number in range(first, first + count)]
    assert compress(hosts) == (hosts[0] if count == 1 else f"n[{hosts[0][1:]}-{hosts[-1][1:]}]")


@given(st.text(st.sampled_from("ab019[],-(x) ²\n"), max_size=30) | st.text(max_size=30))
def test_arbitrary_text_gives_hosts_or_a_rankup_error(text: str) -> None:
    with contextlib.suppress(RankupError):
        hosts = expand(text)
        assert len(hosts) <= MAX_HOSTS
        assert expand(compress(hosts)) == hosts
    with contextlib.suppress(RankupError):
        assert all(count >= 0 for count in expand_counts(text))


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("2(x3),1", [2, 2, 2, 1]),
        ("2,1", [2, 1]),
        ("4", [4]),
        ("16(x2)", [16, 16]),
        ("", []),
        ("3, 1(x1)", [3, 1]),
    ],
)
def test_counts_per_node(text: str, counts: list[int]) -> None:
    assert expand_counts(text) == counts


@pytest.mark.parametrize(
    "text", ["2(x", "2(x)", "x3", "2(3)", "2(xa)", ",", "1(x999999999)", "-1", "9" * 5000]
)
def test_malformed_counts_are_refused(text: str) -> None:
    with pytest.raises(RankupError, match="not a count per node"):
        expand_counts(text)
