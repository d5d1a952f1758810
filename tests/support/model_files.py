"""Model files written without pyops.models, to test readers of the format by themselves."""

import json
import struct

import numpy as np

DTYPES = {"f4": "F32", "f8": "F64", "i8": "I64", "i4": "I32", "f2": "F16", "u1": "U8", "i1": "I8"}
DTYPES |= {"b1": "BOOL", "i2": "I16"}


def header_of(tensors, program=None):
    """Return the header and the data of a safetensors file."""
    metadata = {"format": "pt"}
    if program is not None:
        metadata["pyops.model"] = json.dumps(program)
    header, data = {"__metadata__": metadata}, b""
    for name, array in tensors.items():
        stored = np.asarray(array, order="C").tobytes()
        header[name] = {
            "dtype": DTYPES[np.asarray(array).dtype.str[1:]],
            "shape": list(np.shape(array)),
            "data_offsets": [len(data), len(data) + len(stored)],
        }
        data += stored
    return header, data


def write_bytes(path, header, data):
    """Write a file from the text of its header."""
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def write(path, tensors, program=None):
    header, data = header_of(tensors, program)
    text = json.dumps(header).encode()
    write_bytes(path, text + b" " * (-len(text) % 8), data)


def read(path):
    """Return the tensors of a file by name."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    types = {name: f"<{code}" for code, name in DTYPES.items()}
    return {
        name: np.frombuffer(
            content[8 + length :][slice(*entry["data_offsets"])], types[entry["dtype"]]
        ).reshape(entry["shape"])
        for name, entry in header.items()
    }


def program(inputs, steps, parameters=(), outputs=None, **more):
    """Return a program; a step is (result, call, inputs, options, graph)."""
    listed = []
    for result, call, given, *rest in steps:
        options, graph = (*rest, {}, None)[:2] if len(rest) < 2 else rest
        step = {"call": call, "inputs": given, "options": options, "result": result}
        listed.append(step | ({"graph": graph} if graph else {}))
    return {
        "version": 1,
        "name": "Test",
        "hyperparameters": {},
        "inputs": [{"name": name, "kind": kind} | extra for name, kind, extra in inputs],
        "parameters": list(parameters),
        "steps": listed,
        "outputs": outputs or [steps[-1][0]],
        **more,
    }
