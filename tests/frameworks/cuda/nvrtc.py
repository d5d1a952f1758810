"""The device compiler, which needs no device."""

import struct

import pytest

from pyops.cuda._compiler import compiled


def cubin(text, architecture):
    """Compile a source to machine code; errors contain the compiler's log."""
    pytest.importorskip("cupy")
    try:
        kind, code = compiled(text, architecture=architecture)
    except ImportError as error:
        pytest.skip(f"no NVRTC: {error}")
    assert kind == "cubin"
    return code


def stacks(code):
    """Return the bytes of local memory per thread of each kernel, from the ELF file's notes."""
    (table,), (size, count, names) = (
        struct.unpack_from("<Q", code, 40),
        struct.unpack_from("<3H", code, 58),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + size * i) for i in range(count)]

    def text(strings, offset):
        start = sections[strings][4] + offset
        return code[start : code.index(b"\0", start)].decode()

    (symbols,) = (s for s in sections if s[1] == 2)
    (notes,) = (s for s in sections if text(names, s[0]) == ".nv.info")
    found, place = {}, notes[4]
    while place < notes[4] + notes[5]:
        form, kind, length = struct.unpack_from("<BBH", code, place)
        if form == 4 and kind == 0x11:  # a symbol and its frame size
            symbol, frame = struct.unpack_from("<II", code, place + 4)
            (name,) = struct.unpack_from("<I", code, symbols[4] + 24 * symbol)
            found[text(symbols[6], name)] = frame
        place += 4 + (length if form == 4 else 0)
    return found
