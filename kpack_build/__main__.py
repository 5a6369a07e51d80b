"""Run the command line as `python -m kpack_build`."""

from __future__ import annotations

import sys

from kpack_build.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
