"""`python -m <package>._kpack`: what serves this machine's GPUs, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import sys

from . import status
from ._report import format_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the status; return the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}",
        description="Show which archive of GPU code serves each AMD GPU of this machine.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    options = parser.parse_args(arguments)
    found = status()
    text = json.dumps(found.as_dict(), indent=2) if options.json else format_status(found)
    # Paths hold whatever the file system allows, and the terminal's encoding may lack it.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
