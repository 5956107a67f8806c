"""Facts come back whole, or not at all, from a stream that others write to as well."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from rankup.doctor.contract import Reader, Writer, lines_of

DOCUMENT = st.dictionaries(st.text(max_size=5), st.text(max_size=3000), max_size=3)


def read(data: bytes, tag: str = "ab12") -> list[dict]:
    reader = Reader(tag)
    return reader.feed(data) + reader.end()


@given(st.lists(DOCUMENT, min_size=1, max_size=4), st.integers(0, 2**32))
def test_lines_of_several_nodes_in_any_order_and_any_chunks(documents, seed):
    chance = random.Random(seed)
    lines = [line for node, one in enumerate(documents) for line in lines_of(one, "ab12", node, 0)]
    assert all(len(line) < 1000 for line in lines)
    chance.shuffle(lines)
    noise = ["Welcome to the cluster!", "", "@rankup-doctor:ab12:0:9:0/1:00000000:3:abc", "@rankup-doctor:"]
    text = "\n".join(line for one in lines for line in (one, chance.choice(noise))).encode()
    reader, found = Reader("ab12"), []
    while text:
        size = chance.randrange(1, 200)
        found += reader.feed(text[:size])
        text = text[size:]
    found += reader.end()
    assert sorted(map(str, found)) == sorted(map(str, documents))


def test_half_a_line_is_no_document_and_the_next_one_is():
    first, second = (lines_of({"n": i}, "ab12", i, 0)[0] for i in range(2))
    assert read(f"{first[:-3]}\n{second}\n".encode()) == [{"n": 1}]
    assert read(f"{first[:-3]}".encode()) == []


def test_a_prologue_without_a_line_feed_does_not_hide_a_line():
    (line,) = lines_of({"n": 1}, "ab12", 0, 0)
    assert read(f"Loading modules... {line}\n".encode()) == [{"n": 1}]
    assert read(f"[node1:0] {line} \r\n".encode()) == [{"n": 1}]


def test_lines_of_another_examination_are_not_ours():
    (line,) = lines_of({"n": 1}, "cd34", 0, 0)
    reader = Reader("ab12")
    assert reader.feed(f"{line}\n".encode()) == []
    assert reader.damaged == 0


def test_what_others_print_is_kept_but_not_all_of_it():
    reader = Reader("ab12")
    reader.feed(b"srun: error: node2: no route\n" + b"x" * 10**6 + b"\n" + b"noise\n" * 1000)
    assert reader.noise[0] == "srun: error: node2: no route"
    assert len(reader.noise) <= 40 and max(map(len, reader.noise)) <= 400


def test_what_is_not_json_is_counted_and_ignored():
    import zlib

    text = "[1"
    line = f"@rankup-doctor:ab12:0:0:0/1:{zlib.crc32(text.encode()):08x}:{len(text)}:{text}\n"
    reader = Reader("ab12")
    assert reader.feed(line.encode()) == []
    assert reader.damaged == 1


def test_a_writer_numbers_its_documents():
    out: list[bytes] = []
    writer = Writer("ab12", 3, out.append)
    writer.say("machine", {"cpus": 4})
    writer.say("rank", {"rank": 7}, rank=7)
    found = read(b"".join(out))
    assert [(one["node"], one["part"], one.get("rank")) for one in found] == [
        (3, "machine", None),
        (3, "rank", 7),
    ]
