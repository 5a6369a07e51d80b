"""The stand-in for the library below HIP: what it refuses, and which HIP libraries it fits."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kpack_build.processors import PROCESSORS
from kpack_build.targets import TargetId, feature_states
from tests.fixtures.build import stub_library
from tests.hip.runtimes import DEBIAN_HIP
from tests.missing import missing
from tests.rocm import rocm_library
from tests.runtime import standin
from tests.runtime.comparison import GPUS
from tests.runtime.standin import StandInError, build_stand_in

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__: list[str] = []

pytestmark = [pytest.mark.corpus, pytest.mark.rocm]

INVALID_ARGUMENT = 0x1001
INCOMPATIBLE_ARGUMENTS = 0x100D
INVALID_CODE_OBJECT = 0x1010
INVALID_ISA_NAME = 0x1017
MAX_GPUS = 16
#: Loads each code object, given as hexadecimal digits, on each GPU, and prints HSA's status of each.
LOAD = """
import ctypes, json, sys
hsa = ctypes.CDLL(sys.argv[1])
request = json.load(sys.stdin)
hsa.hsa_init()
statuses = []
for code in map(bytes.fromhex, request["codes"]):
    for gpu in range(request["gpus"]):
        reader, executable = ctypes.c_uint64(), ctypes.c_uint64()
        size, handle = ctypes.c_size_t(len(code)), ctypes.c_uint64(2 + gpu)
        status = hsa.hsa_code_object_reader_create_from_memory(code, size, ctypes.byref(reader))
        hsa.hsa_executable_create_alt(0, 0, None, ctypes.byref(executable))
        load = hsa.hsa_executable_load_agent_code_object
        statuses.append(status or load(executable, handle, reader, None, None))
print(json.dumps(statuses))
"""
ASK = """
import ctypes, sys
hsa = ctypes.CDLL(sys.argv[1])
hsa.hsa_init()
room = ctypes.create_string_buffer(b"?" * 64, 64)
for function, handle in (("hsa_agent_get_info", 2), ("hsa_amd_memory_pool_get_info", 0x204)):
    print(getattr(hsa, function)(ctypes.c_uint64(handle), 0xBEEF, room), room.raw == b"?" * 64)
print(hsa.hsa_system_get_info(0xBEEF, room), room.raw == b"?" * 64)
print(hsa.hsa_ext_image_import(), True)
"""


@pytest.fixture(scope="module")
def library() -> Path:
    """The stand-in for HIP 7.14."""
    return build_stand_in(rocm_library("libamdhip64"))


def run_program(program: str, library: Path, gpus: Sequence[str], log: Path, text: str = "") -> str:
    environment = {**os.environ, "KPACK_TEST_GPUS": ",".join(gpus), "KPACK_TEST_GPU_LOG": str(log)}
    command = [sys.executable, "-c", program, str(library)]
    result = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=True)
    return result.stdout


def load(library: Path, codes: Sequence[bytes], gpus: Sequence[str], log: Path) -> list[int]:
    request = json.dumps({"codes": [code.hex() for code in codes], "gpus": len(gpus)})
    statuses = json.loads(run_program(LOAD, library, gpus, log, request))
    assert len(statuses) == len(codes) * len(gpus)
    return list(map(int, statuses))


def code_for(target: TargetId) -> bytes:
    """Return the ELF header of a code object (version 5) that holds nothing."""
    processor = PROCESSORS[target.processor]
    flags = processor.mach
    for supported, state, shift in (
        (processor.xnack, target.xnack, 8),
        (processor.sramecc, target.sramecc, 10),
    ):
        flags |= (2 + state if state is not None else int(supported)) << shift
    ident = b"\x7fELF\2\1\1" + bytes([64, 3]) + bytes(7)
    return ident + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, 64, flags, 64, 56, 0, 64, 0, 0)


def code_targets() -> list[TargetId]:
    # The strict kind has the number of the other one in its flags.
    names = sorted(set(PROCESSORS) - {"gfx1250-strict"})
    return [target for name in names for target in {TargetId(processor=name), *feature_states(name)}]


def test_code_of_other_gpus_is_refused(library: Path, tmp_path: Path) -> None:
    """The stand-in's own table and rules agree with the package's, which were made apart from each other."""
    targets = code_targets()
    codes = [code_for(target) for target in targets]
    gpus = [gpu for gpu in GPUS if not gpu.startswith("gfx1250-strict")]
    for start in range(0, len(gpus), MAX_GPUS):
        some = gpus[start : start + MAX_GPUS]
        expected = [
            0 if target.serves(TargetId.parse(gpu)) else INCOMPATIBLE_ARGUMENTS
            for target in targets
            for gpu in some
        ]
        assert load(library, codes, some, tmp_path / "log") == expected


def test_what_is_no_code_is_refused(library: Path, tmp_path: Path) -> None:
    good = code_for(TargetId(processor="gfx1100"))
    host = good[:18] + struct.pack("<H", 62) + good[20:]
    unknown = good[:48] + struct.pack("<I", 0xFE) + good[52:]
    statuses = load(library, [good, good[:20], b"", host, unknown], ["gfx1100"], tmp_path / "log")
    assert statuses == [0, INVALID_CODE_OBJECT, INVALID_ARGUMENT, INVALID_CODE_OBJECT, INVALID_ISA_NAME]


def test_unknown_questions_are_refused_and_named(library: Path, tmp_path: Path) -> None:
    output = run_program(ASK, library, ["gfx1100"], tmp_path / "log")
    assert output.splitlines() == [f"{INVALID_ARGUMENT} True"] * 4
    events: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(event["function"], event["attribute"]) for event in events] == [
        ("hsa_agent_get_info", 0xBEEF),
        ("hsa_amd_memory_pool_get_info", 0xBEEF),
        ("hsa_system_get_info", 0xBEEF),
        ("hsa_ext_image_import", 0),
    ]


def test_hip_of_another_version_is_named() -> None:
    if not DEBIAN_HIP.exists():
        missing("a HIP runtime of another version (Debian: libamdhip64-5)")
    with pytest.raises(StandInError) as caught:
        build_stand_in(DEBIAN_HIP.resolve())
    assert caught.value.missing
    assert all(name.startswith("hsa_") and name in str(caught.value) for name in caught.value.missing)


@pytest.mark.clang
def test_library_that_is_not_hip_is_named() -> None:
    with pytest.raises(StandInError) as caught:
        build_stand_in(stub_library())
    assert caught.value.hip == stub_library()


@pytest.mark.parametrize("lost", ["compiler", "header"])
def test_what_the_build_needs_is_named(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    if lost == "compiler":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    else:
        monkeypatch.setattr(standin, "HEADER", Path("/nowhere/hsa.h"))
    with pytest.raises(pytest.skip.Exception, match="gcc" if lost == "compiler" else "libhsa-runtime-dev"):
        build_stand_in.__wrapped__(rocm_library("libamdhip64"))
