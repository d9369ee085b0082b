"""Raw files: the same blocks of whole lines from plain and gzipped text; damage told by name."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.data.raw_files import Input


def write_all(folder, text):
    """The same text plain and gzipped."""
    (folder / "a.txt").write_bytes(text)
    with gzip.open(folder / "a.txt.gz", "wb") as file:
        file.write(text)
    return Input(folder / "a.txt"), Input(folder / "a.txt.gz")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=20), st.booleans(), st.integers(1, 25))
def test_blocks_are_the_lines_that_begin_in_them(tmp_path_factory, lengths, ends_in_newline, block_bytes):
    text = b"\n".join(b"x" * length for length in lengths) + (b"\n" if ends_in_newline and lengths else b"")
    plain, gz = write_all(tmp_path_factory.mktemp("inputs"), text)
    expected, offset = {}, 0
    for line in text.splitlines(keepends=True):
        expected.setdefault(offset // block_bytes, (offset, []))[1].append(line)
        offset += len(line)
    blocks = [(start, b"".join(lines)) for start, lines in expected.values()]
    assert list(gz.blocks(block_bytes)) == list(plain.blocks(block_bytes)) == blocks
    alone = [plain.block(number, block_bytes) for number in range(-(-len(text) // block_bytes))]
    assert [block for block in alone if block[1]] == blocks


@pytest.mark.parametrize("text", [b"a,b\r\n1,2\r\n", b'\xef\xbb\xbfa, "b"\n1,2\n'])
def test_the_header_is_the_names_of_the_first_line(tmp_path, text):
    for input_ in write_all(tmp_path, text):
        assert input_.header(",") == ("a", "b")


def test_what_can_be_read_from_anywhere_is_plain(tmp_path):
    assert [input_.is_plain for input_ in write_all(tmp_path, b"x")] == [True, False]
    assert Input(tmp_path / "a.parquet").is_parquet
