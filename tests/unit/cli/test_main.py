"""The frame of the command line: help, usage, exit codes, errors, interruptions."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import types
from typing import TYPE_CHECKING

import pytest

import kpack_build
from kpack_build import cli
from kpack_build.cli import COMMANDS, build_parser, main
from kpack_build.cli.command import ExitCode, UsageError, add_source, add_targets, wanted_targets
from kpack_build.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kpack_build.cli.output import Console

    Run = Callable[[argparse.Namespace, Console], int]


def _exit_code(words: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(words)
    code = caught.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Put a function in the place of the command `inspect`."""

    def replace(run: Run) -> None:
        module = types.SimpleNamespace(
            DESCRIPTION="",
            EXAMPLES="",
            run=run,
            add_options=lambda parser: add_source(parser, "PATH", "a path"),
        )
        monkeypatch.setattr(cli, "_load", lambda _: module)

    return replace


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(["--version"]) == ExitCode.DONE
    assert kpack_build.__version__ in capsys.readouterr().out


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(["--help"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_teaches(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code([name, "--help"]) == ExitCode.DONE
    out = capsys.readouterr().out
    assert f"kpack-build {name} " in out.partition("examples:")[2]
    assert all(option in out for option in ("--json", "--quiet", "--debug"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    [commands] = [
        action for action in build_parser([name])._actions if isinstance(action, argparse._SubParsersAction)
    ]
    for action in commands.choices[name]._actions:
        assert action.help, action.dest


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--unknown"],
        ["unknown"],
        ["inspect"],
        ["pack", "x.whl"],
        ["inspect", "x", "--jso"],
        ["verify", "a", "b"],
        ["inspect", ""],
        ["restore", "x.whl", "-o", ""],
    ],
)
def test_wrong_use(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(words) == ExitCode.USAGE
    assert "usage:" in capsys.readouterr().err


def test_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "absent")]) == ExitCode.FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "absent" in captured.err


def test_errors_are_json_too(command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]) -> None:
    def run(*_: object) -> int:
        raise FormatError("x.so", "is cut short", offset=3)

    command(run)
    assert main(["inspect", "x", "--json"]) == ExitCode.FAILED
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["type"] == "FormatError"
    assert captured.err.count("\n") == 1


def test_traceback_on_demand(command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]) -> None:
    def run(*_: object) -> int:
        raise ZeroDivisionError

    command(run)
    assert main(["inspect", "x"]) == ExitCode.FAILED
    assert "Traceback" not in capsys.readouterr().err
    assert main(["inspect", "x", "--debug"]) == ExitCode.FAILED
    assert "Traceback" in capsys.readouterr().err


def test_error_without_file(command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]) -> None:
    def run(*_: object) -> int:
        raise OSError(28, "No space left on device")

    command(run)
    assert main(["inspect", "x"]) == ExitCode.FAILED
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "code", "fact"),
    [
        (FileNotFoundError, 2, "there is no such file"),
        (FileExistsError, 17, "is a file, not a folder"),
        (NotADirectoryError, 20, "is a file, not a folder"),
        (PermissionError, 13, "permissions"),
    ],
)
def test_error_of_a_path(
    kind: type[OSError],
    code: int,
    fact: str,
    command: Callable[[Run], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*_: object) -> int:
        raise kind(code, "the system's words", "some/path")

    command(run)
    assert main(["inspect", "x"]) == ExitCode.FAILED
    message = capsys.readouterr().err
    assert "some/path: " in message
    assert fact in message


@pytest.mark.parametrize(
    ("words", "guess"),
    [(["--qiet"], "--quiet"), (["--jsn=1"], "--json"), (["b.whl"], None), (["--unlike-anything"], None)],
)
def test_unknown_arguments(
    words: list[str], guess: str | None, command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda *_: 0)
    assert _exit_code(["inspect", "a.whl", *words]) == ExitCode.USAGE
    message = capsys.readouterr().err
    assert words[0] in message
    assert "usage: kpack-build inspect" in message
    assert ("did you mean" in message) == (guess is not None)
    assert guess is None or guess in message.partition("did you mean")[2]


def test_wrong_use_found_by_the_command(
    command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> int:
        raise UsageError("these do not go together")

    command(run)
    assert _exit_code(["inspect", "x"]) == ExitCode.USAGE
    assert "these do not go together" in capsys.readouterr().err


def test_interrupted(command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]) -> None:
    def run(*_: object) -> int:
        raise KeyboardInterrupt

    command(run)
    assert main(["inspect", "x"]) == ExitCode.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_arguments_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["kpack-build", "inspect", str(tmp_path / "absent")])
    assert main() == ExitCode.FAILED


def test_output_that_nobody_reads() -> None:
    command = [sys.executable, "-m", "kpack_build", "inspect", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in {ExitCode.DONE, ExitCode.BROKEN_PIPE}


def test_nothing_slow_is_imported_for_help() -> None:
    slow = ("rich", "msgpack", "zstandard", "rocm_bootstrap", "kpack_build.pipeline", "concurrent.futures")
    code = (
        "import sys\nfrom kpack_build.cli import build_parser\nbuild_parser([])\n"
        f"sys.exit(' '.join(name for name in {slow!r} if name in sys.modules) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_targets_expand_families() -> None:
    parser = argparse.ArgumentParser()
    add_targets(parser, "choose")
    found = wanted_targets(parser.parse_args(["--target", "gfx110x", "--target", "gfx90a:xnack-"]))
    assert found is not None
    assert {"gfx1100", "gfx1101", "gfx90a:xnack-"} <= found


def test_no_targets_are_all() -> None:
    parser = argparse.ArgumentParser()
    add_targets(parser, "choose")
    assert wanted_targets(parser.parse_args([])) is None


def test_wrong_target() -> None:
    parser = argparse.ArgumentParser()
    add_targets(parser, "choose")
    with pytest.raises(UsageError):
        wanted_targets(parser.parse_args(["--target", "sm_90"]))


class _ClosedPipe(io.StringIO):
    """A stream whose reader went away."""

    def write(self, _: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_reader_that_goes_away(command: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: argparse.Namespace, console: Console) -> int:
        console.line("something")
        return ExitCode.DONE

    command(run)
    monkeypatch.setattr(sys, "stdout", _ClosedPipe())
    assert main(["inspect", "x"]) == ExitCode.BROKEN_PIPE


def test_module_is_a_program() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "kpack_build", "--version"], capture_output=True, text=True, check=True
    )
    assert kpack_build.__version__ in result.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams(closed: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    command = f"{sys.executable} -m kpack_build inspect {tmp_path / 'empty'} --quiet {closed}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.DONE, "")


@pytest.mark.parametrize("option", ["", "--json"])
def test_output_that_does_not_arrive(option: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    command = f"{sys.executable} -m kpack_build inspect {tmp_path / 'empty'} {option} > /dev/full"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.FAILED
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr
