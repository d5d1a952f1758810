"""Files of the safetensors format, against its package, and files that are wrong."""

import io
import json

import numpy as np
import pytest

from pyops.models import _container

ARRAYS = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array(2.5),
    "empty": np.zeros((0, 4), np.float32),
    "index": np.array([3, 1], np.int64),
    "flags": np.array([True, False, True]),
    "half": np.ones(3, np.float16),
    "ü": np.array([-1], np.int8),
}
METADATA = {"format": "pt", "other": 'ä " \\ {'}


def file_of(header, data=b"", length=None):
    """Return a file with a header, an object or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_round_trip(tmp_path):
    path = tmp_path / "file.safetensors"
    _container.write(path, ARRAYS, METADATA)
    tensors, metadata = _container.read(path)
    assert metadata == METADATA
    assert tensors.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert tensors[name].dtype == array.dtype
        assert tensors[name].flags.writeable
        np.testing.assert_array_equal(tensors[name], array)
    assert list(tmp_path.iterdir()) == [path]


def test_same_as_the_package(tmp_path):
    """Each reads what the other writes; data are aligned."""
    numpy = pytest.importorskip("safetensors.numpy")
    own, other = tmp_path / "own", tmp_path / "other"
    _container.write(own, ARRAYS, METADATA)
    numpy.save_file(ARRAYS, other, METADATA)
    for found in numpy.load_file(own), _container.read(other)[0]:
        assert found.keys() == ARRAYS.keys()
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
    assert _container.read(other)[1] == METADATA
    assert int.from_bytes(own.read_bytes()[:8], "little") % 8 == 0


def test_unfinished_files_are_removed(tmp_path):
    path = tmp_path / "file"
    _container.write(path, {"a": np.ones(2)}, {})
    with pytest.raises(TypeError, match=r"a: expected one of F64.*, got complex128"):
        _container.write(path, {"a": np.ones(2, complex)}, {})
    assert list(tmp_path.iterdir()) == [path]


DEEP = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
WRONG = {
    "empty": (b"", "expected 8 bytes of the header's length, got 0"),
    "short": (b"\x02\0\0", "got 3"),
    "huge length": (file_of({}, length=2**63), "header: expected a length from 2 to"),
    "length beyond the file": (file_of({}, length=3), "header: expected a length from 2 to 2"),
    "no object": (file_of([]), "header: expected an object"),
    "no JSON": (file_of(b'{"a" 1}'), "header: Expecting ':'"),
    "no UTF-8": (file_of(b'{"\xff": 1}'), "header: 'utf-8' codec"),
    "NaN": (file_of(b'{"a": NaN}'), "header: expected a finite number, got NaN"),
    "long number": (file_of(b'{"a": ' + b"9" * 5000 + b"}"), "header: "),
    "depth": (file_of(DEEP), "header: expected less depth"),
    "two of a name": (file_of(b'{"a": 1, "a": 2}'), "header: expected different names"),
    "metadata": (file_of({"__metadata__": {"a": 1}}), "__metadata__: expected an object of texts"),
    "no entry": (file_of({"a": 1}), "a: expected an object of data_offsets, dtype, shape"),
    "another key": (file_of({"a": entry() | {"b": 1}}, bytes(8)), "a: expected an object of"),
    "type": (file_of({"a": entry("F33")}, bytes(8)), "a: dtype: expected one of F64.*, got 'F33'"),
    "no type": (file_of({"a": entry([])}, bytes(8)), "a: dtype: expected one of"),
    "negative length": (file_of({"a": entry(shape=(-2,))}, bytes(8)), "a: shape: expected a list"),
    "truth": (file_of({"a": entry(shape=(True, 2))}, bytes(8)), "a: shape: expected a list"),
    "fraction": (file_of({"a": entry(offsets=(0, 8.0))}, bytes(8)), "a: data_offsets: expected a"),
    "three offsets": (file_of({"a": entry(offsets=(0, 8, 8))}, bytes(8)), "expected two, got 3"),
    "axes": (file_of({"a": entry(shape=(1,) * 33)}, bytes(8)), "expected at most 32 axes, got 33"),
    "overflow": (
        file_of({"a": entry(shape=(2**40, 2**40))}, bytes(8)),
        f"a: data_offsets: expected {2**82} bytes, got 8",
    ),
    "size": (file_of({"a": entry(offsets=(0, 12))}, bytes(12)), "expected 8 bytes, got 12"),
    "reversed": (file_of({"a": entry(offsets=(8, 0))}, bytes(8)), "expected 8 bytes, got -8"),
    "gap": (
        file_of({"a": entry(offsets=(4, 12))}, bytes(12)),
        "a: data_offsets: expected 0, where the last tensor ends, got 4",
    ),
    "overlap": (
        file_of({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
        "b: data_offsets: expected 8, where the last tensor ends, got 4",
    ),
    "truncated": (file_of({"a": entry()}, bytes(7)), "expected 8 bytes of data, got 7"),
    "trailing": (file_of({"a": entry()}, bytes(9)), "expected 8 bytes of data, got 9"),
    "no truth": (
        file_of({"a": entry("BOOL", (2,), (0, 2))}, b"\1\2"),
        "a: expected bytes of 0 or 1",
    ),
    "impossible shape": (file_of({"a": entry(shape=(0, 2**61, 8), offsets=(0, 0))}), "."),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(case, tmp_path):
    content, message = WRONG[case]
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        _container.read(path)
    assert str(caught.value).startswith(f"{path}: ")


def mutated(content, rng):
    """Return a file with some bytes changed, removed, added or repeated."""
    found = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(found))) if found else 0
        kind = rng.integers(5)
        if kind == 0:
            found[place : place + 1] = bytes([rng.integers(256)])
        elif kind == 1:
            del found[place : place + int(rng.integers(1, 40))]
        elif kind == 2:
            found[place:place] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 3:
            found[place : place + 1] = rng.choice([b"9", b"0", b"-", b"[", b'"', b"}", b","])
        else:
            found[place:place] = found[place : place + int(rng.integers(1, 60))]
    return bytes(found)


def test_mutated_files(tmp_path, rng):
    """Files with random faults are read or refused by a ValueError."""
    path = tmp_path / "file"
    _container.write(path, ARRAYS, METADATA)
    content = path.read_bytes()
    refused = 0
    for _ in range(10_000):
        wrong = mutated(content, rng)
        try:
            tensors, metadata = _container.read_from(io.BytesIO(wrong), len(wrong))
        except ValueError:
            refused += 1
        else:
            assert sum(array.nbytes for array in tensors.values()) <= len(wrong)
            assert all(isinstance(text, str) for text in metadata.values())
    assert 5_000 < refused < 10_000
