"""IDX files: what is written is read back, and what is damaged is said, never guessed."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankup.errors import RankupError
from rankup.workloads.data.idx import parse_header, read_idx, write_idx

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.float32, torch.float64]
# tmp_path is one directory for all the examples of a test, and each writes its file anew.
each_example_overwrites = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Five images of 3×2 in a plain file: a header of 16 bytes, then 30."""
    path = tmp_path / "images"
    write_idx(path, torch.arange(30, dtype=torch.uint8).reshape(5, 3, 2))
    return path


@each_example_overwrites
@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from(DTYPES),
    suffix=st.sampled_from(["", ".gz"]),
    seed=st.integers(0, 1000),
)
def test_what_is_written_is_read_back(tmp_path, shape, dtype, suffix, seed):
    generator = torch.Generator().manual_seed(seed)
    values = (torch.rand(shape, generator=generator, dtype=torch.float64) * 120).to(dtype)
    path = tmp_path / f"values{suffix}"
    write_idx(path, values)
    back = read_idx(path)
    assert back.dtype == dtype
    assert back.shape == values.shape
    assert torch.equal(back, values)


@each_example_overwrites
@given(changes=st.dictionaries(st.integers(0, 15), st.integers(0, 255), min_size=1), packed=st.booleans())
def test_a_header_with_other_bytes_gives_what_it_says_or_an_error(images, changes, packed):
    raw = bytearray(images.read_bytes())
    for place, byte in changes.items():
        raw[place] = byte
    path = images.with_name("changed")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    dimensions = raw[3]
    shape = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions]) if dimensions <= 10 else None
    try:
        values = read_idx(path)
    except RankupError as caught:
        error = caught
    else:
        assert tuple(values.shape) == shape
        assert values.numel() * values.element_size() == len(raw) - 4 - 4 * dimensions
        return
    assert error.code == "bad-idx-file"
    assert str(path) in error.message


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_file_cut_anywhere_is_an_error_that_names_it(images, packed):
    raw = images.read_bytes()
    whole = gzip.compress(raw) if packed else raw
    path = images.with_name("cut")
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(RankupError, match="cut") as caught:
            read_idx(path)
        assert caught.value.code == "bad-idx-file"


def test_a_truncated_file_says_what_was_expected_and_found(images):
    images.write_bytes(images.read_bytes()[:-7])
    with pytest.raises(RankupError, match=r"truncated: uint8 of shape 5×3×2 needs 30 bytes .* found 23"):
        read_idx(images)


def test_a_file_that_is_too_long_is_an_error(images):
    images.write_bytes(images.read_bytes() + b"\0")
    with pytest.raises(RankupError, match="too long"):
        read_idx(images)


@pytest.mark.parametrize("first", [2**32 - 1, 0], ids=["huge", "empty"])
def test_an_impossible_shape_is_refused_before_anything_is_read(first):
    with pytest.raises(RankupError, match="impossible shape"):
        parse_header(struct.pack(">HBB5I", 0, 8, 5, first, *[2**32 - 1] * 4))


def test_a_header_that_claims_more_than_memory_is_truncated_and_not_a_memory_error(tmp_path):
    path = tmp_path / "liar.gz"
    path.write_bytes(gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 60_000, 2**20, 2**20) + bytes(100)))
    with pytest.raises(RankupError, match="truncated"):
        read_idx(path)


def test_an_unknown_type_lists_the_known_ones():
    with pytest.raises(RankupError, match=r"0x08 uint8.*found 0x0a"):
        parse_header(bytes([0, 0, 0x0A, 1, 0, 0, 0, 1]))


def test_more_dimensions_than_torch_has_are_refused():
    with pytest.raises(RankupError, match="found 65"):
        parse_header(bytes([0, 0, 8, 65]) + bytes(260))


def test_another_format_is_not_taken_for_idx(tmp_path):
    path = tmp_path / "page"
    path.write_text("<html>not found</html>")
    with pytest.raises(RankupError, match="found 3c 68"):
        read_idx(path)


def test_damage_inside_a_gzip_is_found(tmp_path):
    path = tmp_path / "images.gz"
    write_idx(path, torch.arange(200, dtype=torch.uint8).reshape(8, 25))
    raw = bytearray(path.read_bytes())
    raw[-6] ^= 0xFF  # in gzip's own checksum
    path.write_bytes(raw)
    with pytest.raises(RankupError, match="gzip compression is damaged"):
        read_idx(path)


def test_a_packed_file_is_known_by_its_bytes_whatever_its_name(images):
    wrong_name = images.with_name("packed-without-suffix")
    wrong_name.write_bytes(gzip.compress(images.read_bytes()))
    assert torch.equal(read_idx(wrong_name), read_idx(images))


def test_a_file_that_cannot_be_read_is_an_error_without_traceback(tmp_path):
    with pytest.raises(RankupError, match="No such file") as caught:
        read_idx(tmp_path / "absent")
    assert caught.value.code == "unreadable-data"


def test_multi_byte_values_are_big_endian_on_disk(tmp_path):
    write_idx(tmp_path / "shorts", torch.tensor([258, -2], dtype=torch.int16))
    assert (tmp_path / "shorts").read_bytes() == bytes([0, 0, 0x0B, 1, 0, 0, 0, 2, 1, 2, 0xFF, 0xFE])


def test_a_gzip_holds_no_time_so_that_the_same_values_are_the_same_bytes(tmp_path):
    write_idx(tmp_path / "a.gz", torch.ones(9, dtype=torch.uint8))
    assert (tmp_path / "a.gz").read_bytes()[4:8] == bytes(4)


def test_a_type_that_idx_lacks_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match="int64"):
        write_idx(tmp_path / "longs", torch.zeros(2, dtype=torch.int64))
    assert not list(tmp_path.iterdir())
