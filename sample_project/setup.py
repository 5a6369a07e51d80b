"""Build the sample: the HIP parts by `hip_build.py`, all else as setuptools does."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup

# A build front end does not put the project's directory on the path.
sys.path.insert(0, str(Path(__file__).parent))

from hip_build import build_ext

setup(
    ext_modules=[
        Extension(
            "kpack_sample._core",
            sources=["native/core.c"],
            define_macros=[("Py_LIMITED_API", "0x030A0000")],
            extra_link_args=["-Wl,-rpath,$ORIGIN/lib"],
            py_limited_api=True,
        ),
    ],
    cmdclass={"build_ext": build_ext},
    # One wheel for every Python from 3.10 on: the module uses the stable ABI.
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
