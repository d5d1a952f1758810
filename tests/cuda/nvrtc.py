"""The device's compiler, which needs no device."""

import pytest

from pyops.cuda._source import OPTIONS


def cubin(text, architecture):
    """Machine code of a source; an error with the compiler's log."""
    nvrtc = pytest.importorskip("cupy").cuda.nvrtc

    try:
        program = nvrtc.createProgram(text, "pyops.cu", [], [])
    except ImportError as error:
        pytest.skip(f"no NVRTC: {error}")
    try:
        nvrtc.compileProgram(program, [*OPTIONS, f"--gpu-architecture={architecture}"])
        return nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
