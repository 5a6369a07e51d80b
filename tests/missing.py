"""What a test does when something that it needs is not on this machine.

A developer's machine may lack the network or a compiler: the test is skipped and names what is missing. In
continuous integration, where everything can be installed, the same is a failure, so that nothing is left out
unseen.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["missing"]


def missing(what: str) -> NoReturn:
    """Skip the running test because `what` is missing; in CI (environment variable ``CI``) fail it.

    Args:
        what: The thing that is missing and how to get it, one clause.
    """
    if os.environ.get("CI"):
        pytest.fail(f"missing in CI: {what}", pytrace=False)
    pytest.skip(f"missing: {what}")
