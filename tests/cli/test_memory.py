"""Large blocks come from the heap, which glibc keeps, not from mappings, which are unmapped when freed."""

import platform
import subprocess
import sys

import pytest

from hebbseg.cli.memory import keep_freed_memory

CODE = """
import ctypes, sys
from hebbseg.cli.memory import keep_freed_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype, libc.malloc.argtypes = Info, ctypes.c_void_p, [ctypes.c_size_t]
if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = libc.mallinfo2().hblks
libc.malloc(20 * 2**20)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt and mallinfo2")
@pytest.mark.parametrize("how, mappings", [("keep", 0), ("leave", 1)])
def test_a_large_block_has_no_mapping_of_its_own(how: str, mappings: int) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, encoding="utf-8", check=True, env={})
    assert int(done.stdout) == mappings


def test_the_users_own_choice_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory()
