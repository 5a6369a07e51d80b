from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from setuptools import Command, Distribution
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.errors import ExecError, ModuleError, OptionError, SetupError

from kpack_build.config import Config, Loader
from kpack_build.errors import WheelError
from kpack_build.hooks.bdist_kpack import bdist_kpack
from kpack_build.hooks.setuptools import (
    check_kpack_keyword,
    finalize_distribution_options,
    pack_wheels_of,
    settings_of,
)
from kpack_build.report import Outcome, PackReport, Sizes
from kpack_build.targets import GroupBy

if TYPE_CHECKING:
    from collections.abc import Callable

WHEEL = "thing-1.0-py3-none-any.whl"


class FakePack:
    """Stands in for the pipeline: copies the wheel with a mark, and notes how it was called."""

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self.sources: list[Path] = []
        self.fail_on: str | None = None

    def __call__(
        self, source: Path, output_dir: Path, config: Config, *, progress: None = None
    ) -> PackReport:
        assert progress is None
        self.configs.append(config)
        self.sources.append(source)
        if source.name == self.fail_on:
            raise WheelError(source, "is broken", remedy="mend it")
        output_dir.mkdir(parents=True, exist_ok=True)
        output = output_dir / source.name
        output.write_bytes(b"packed " + source.read_bytes())
        size = Sizes(before=3, after=10)
        return PackReport(
            source=source,
            output=output,
            outcome=Outcome.DONE,
            wheel=size,
            installed=size,
            scheme=config.scheme,
        )


class FakeBdistWheel(bdist_wheel):
    """A project's own bdist_wheel: writes its wheels at once, and nothing but them."""

    wheels: tuple[str, ...] = (WHEEL,)

    def run(self) -> None:
        assert self.dist_dir is not None
        for name in self.wheels:
            path = Path(self.dist_dir, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"fat")
            vars(self.distribution)["dist_files"].append(("bdist_wheel", "3", str(path)))


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> FakePack:
    fake = FakePack()
    module = ModuleType("kpack_build.pipeline")
    vars(module)["pack"] = fake
    monkeypatch.setitem(sys.modules, "kpack_build.pipeline", module)
    return fake


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_table(text: str = "") -> None:
    Path("pyproject.toml").write_text(f"[tool.kpack-build]\n{text}\n", encoding="utf-8")


def distribution(
    *script_args: str, wheel_command: type[Command] = FakeBdistWheel, **attrs: object
) -> Distribution:
    """Make a distribution as `setup()` does; kpack-build's entry points need not be installed."""
    dist = Distribution(
        {
            "name": "thing",
            "version": "1.0",
            "script_name": "setup.py",
            "script_args": list(script_args),
            "cmdclass": {"bdist_wheel": wheel_command, "bdist_kpack": bdist_kpack},
        }
    )
    vars(dist).update(attrs)
    return dist


def run(dist: Distribution) -> None:
    dist.parse_command_line()  # type: ignore[no-untyped-call]
    dist.run_commands()


def files_below(folder: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def listed(dist: Distribution) -> list[tuple[str, str, str]]:
    files: list[tuple[str, str, str]] = vars(dist)["dist_files"]
    return files


@pytest.mark.parametrize("text", [None, "[tool.other]\n", "# kpack-build is not used here\n"])
def test_without_a_table_or_keyword_nothing_changes(text: str | None) -> None:
    if text is not None:
        Path("pyproject.toml").write_text(text, encoding="utf-8")
    dist = distribution()
    finalize_distribution_options(dist)
    assert settings_of(dist) is None
    assert "get_command_class" not in vars(dist)
    assert dist.get_command_class("bdist_wheel") is FakeBdistWheel


def test_without_a_table_nothing_else_of_the_tool_is_imported() -> None:
    program = (
        "import sys; from setuptools import Distribution; from kpack_build.hooks import setuptools as hook;"
        "hook.finalize_distribution_options(Distribution());"
        "names = [name for name in sys.modules if name.startswith(('kpack_build', 'rocm', 'zstandard'))];"
        "print(*sorted(names))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kpack_build", "kpack_build.hooks", "kpack_build.hooks.setuptools"]


def test_a_table_gives_a_bdist_wheel_that_packs() -> None:
    write_table('group-by = "family"')
    dist = distribution()
    finalize_distribution_options(dist)
    assert settings_of(dist) == Config(group_by=GroupBy.FAMILY)
    found = dist.get_command_class("bdist_wheel")
    assert issubclass(found, FakeBdistWheel)
    assert found is not FakeBdistWheel
    assert found.__name__ == "FakeBdistWheel"
    assert dist.get_command_class("bdist_wheel") is found
    assert dist.get_command_class("sdist") is Distribution().get_command_class("sdist")


def test_a_command_class_that_is_set_later_packs_too() -> None:
    class Later(FakeBdistWheel):
        pass

    write_table()
    dist = distribution()
    finalize_distribution_options(dist)
    dist.cmdclass = {"bdist_wheel": Later}
    assert issubclass(dist.get_command_class("bdist_wheel"), Later)


@pytest.mark.parametrize("text", ["colour = 1", "level = 99", 'targets = ["gfx110X"]'])
def test_wrong_settings_are_an_error_before_any_command(text: str) -> None:
    write_table(text)
    # Where kpack-build is installed, its entry point runs in the constructor already.
    with pytest.raises(SetupError, match=r"pyproject\.toml.*allowed"):
        finalize_distribution_options(distribution())


def test_the_keyword_does_what_the_table_does() -> None:
    dist = distribution(kpack={"level": 7, "targets": ("gfx1100",), "group_by": "target"})
    finalize_distribution_options(dist)
    assert settings_of(dist) == Config(level=7, targets=("gfx1100",), group_by=GroupBy.TARGET)


def test_an_empty_keyword_asks_for_the_defaults() -> None:
    dist = distribution(kpack={})
    finalize_distribution_options(dist)
    assert settings_of(dist) == Config()


@pytest.mark.parametrize("value", [True, "on", [], {"colour": 1}, {"level": 0}, {3: 4}])
def test_a_wrong_keyword_is_an_error(value: object) -> None:
    dist = distribution(kpack=value)
    with pytest.raises(SetupError):
        check_kpack_keyword(dist, "kpack", value)
    with pytest.raises(SetupError):
        finalize_distribution_options(dist)


def test_a_right_keyword_is_no_error() -> None:
    check_kpack_keyword(distribution(), "kpack", {"level": 1})


def test_table_and_keyword_together_are_an_error() -> None:
    write_table()
    with pytest.raises(SetupError, match="twice"):
        finalize_distribution_options(distribution(kpack={}))


def test_the_table_is_looked_for_where_the_sources_are(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text("[tool.kpack-build]\n", encoding="utf-8")
    dist = distribution(src_root=str(source))
    finalize_distribution_options(dist)
    assert settings_of(dist) == Config()


def test_bdist_wheel_leaves_the_packed_wheel_alone_in_its_folder(pack: FakePack) -> None:
    dist = distribution("bdist_wheel", "--dist-dir", "out")
    pack_wheels_of(dist, Config(level=5))
    run(dist)
    assert files_below(".") == [f"out/{WHEEL}"]
    assert Path("out", WHEEL).read_bytes() == b"packed fat"
    assert pack.configs == [Config(level=5)]
    assert Path("build").resolve() in pack.sources[0].parents
    assert listed(dist) == [("bdist_wheel", "3", str(Path("out", WHEEL)))]
    command = dist.get_command_obj("bdist_wheel")
    assert command.dist_dir == "out"


def test_the_report_is_in_the_log(pack: FakePack, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[str] = []
    warned: list[str] = []
    monkeypatch.setattr(Distribution, "announce", lambda _dist, line, _level=0: announced.append(line))
    monkeypatch.setattr(FakeBdistWheel, "warn", lambda _command, line: warned.append(line))
    dist = distribution("bdist_wheel")
    pack_wheels_of(dist, Config())
    run(dist)
    assert pack.sources
    assert any(line.startswith(f"kpack-build: {WHEEL}") for line in announced)
    assert len(warned) == 1
    assert "grew by 7 bytes" in warned[0]


def test_files_of_earlier_commands_stay_listed(pack: FakePack) -> None:
    dist = distribution("bdist_wheel")
    listed(dist).append(("sdist", "", "dist/thing-1.0.tar.gz"))
    pack_wheels_of(dist, Config())
    run(dist)
    assert [name for name, _, _ in listed(dist)] == ["sdist", "bdist_wheel"]
    assert pack.sources


def test_a_failing_pack_leaves_nothing(pack: FakePack) -> None:
    pack.fail_on = WHEEL
    dist = distribution("bdist_wheel")
    pack_wheels_of(dist, Config())
    with pytest.raises(ExecError, match="mend it"):
        run(dist)
    assert files_below(".") == []
    assert listed(dist) == []


def test_a_failing_second_wheel_takes_the_first_with_it(pack: FakePack) -> None:
    class Two(FakeBdistWheel):
        wheels = ("a-1-py3-none-any.whl", "b-1-py3-none-any.whl")

    pack.fail_on = Two.wheels[1]
    dist = distribution("bdist_wheel", wheel_command=Two)
    pack_wheels_of(dist, Config())
    with pytest.raises(ExecError):
        run(dist)
    assert len(pack.sources) == 2
    assert files_below(".") == []


def test_a_failing_build_leaves_nothing_and_packs_nothing(pack: FakePack) -> None:
    class Failing(FakeBdistWheel):
        def run(self) -> None:
            super().run()
            raise OSError("disk full")

    dist = distribution("bdist_wheel", wheel_command=Failing)
    pack_wheels_of(dist, Config())
    with pytest.raises(OSError, match="disk full"):
        run(dist)
    assert files_below(".") == []
    assert listed(dist) == []
    assert pack.sources == []


def test_a_command_that_ignores_its_folder_is_named(pack: FakePack) -> None:
    class Elsewhere(FakeBdistWheel):
        wheels = ()

    dist = distribution("bdist_wheel", wheel_command=Elsewhere)
    pack_wheels_of(dist, Config())
    with pytest.raises(ExecError, match="dist_dir"):
        run(dist)
    assert pack.sources == []


def test_bdist_kpack_packs_without_a_table(pack: FakePack) -> None:
    run(distribution("bdist_kpack"))
    assert Path("dist", WHEEL).read_bytes() == b"packed fat"
    assert pack.configs == [Config()]


def test_bdist_kpack_options_come_before_the_table(pack: FakePack) -> None:
    write_table("level = 19\nkeep-ccob = true")
    dist = distribution(
        "bdist_kpack",
        "--mode=embedded",
        "--level=4",
        "--scheme=none",
        "--targets=gfx1100,gfx9_5",
        "--group-by=family",
        "--loader=none",
        "--strict",
        "--workers=2",
        "-d",
        "out",
    )
    finalize_distribution_options(dist)
    run(dist)
    assert pack.configs == [
        Config(
            level=4,
            scheme="none",
            targets=("gfx1100", "gfx950", "gfx9-4-generic"),
            group_by=GroupBy.FAMILY,
            loader=Loader.NONE,
            strict=True,
            keep_ccob=True,
            workers=2,
        )
    ]
    assert files_below(".") == [f"out/{WHEEL}", "pyproject.toml"]


@pytest.mark.parametrize("option", ["--level=high", "--targets=gfx110X", "--targets=", "--loader=x"])
def test_a_wrong_option_is_an_error_before_anything_is_built(pack: FakePack, option: str) -> None:
    with pytest.raises(OptionError, match="allowed"):
        run(distribution("bdist_kpack", option))
    assert files_below(".") == []
    assert pack.sources == []


def test_bdist_kpack_after_bdist_wheel_builds_again_and_packs(pack: FakePack) -> None:
    run(distribution("bdist_wheel", "bdist_kpack"))
    assert len(pack.sources) == 1
    assert Path("dist", WHEEL).read_bytes() == b"packed fat"


def test_bdist_kpack_after_bdist_wheel_gets_a_folder_of_its_own(pack: FakePack) -> None:
    dist = distribution("bdist_wheel", "bdist_kpack")
    run(dist)
    source, folder = dist.get_option_dict("bdist_wheel")["bdist_dir"]
    assert source == "bdist_kpack"
    assert Path(folder).parent == Path(vars(dist.get_command_obj("bdist"))["bdist_base"])
    alone = distribution("bdist_kpack")
    run(alone)
    assert "bdist_dir" not in alone.get_option_dict("bdist_wheel")
    assert len(pack.sources) == 2


def test_bdist_kpack_hands_bdist_wheels_options_on(pack: FakePack) -> None:
    seen: list[tuple[object, ...]] = []

    class Looking(FakeBdistWheel):
        def run(self) -> None:
            seen.append((self.plat_name, self.build_number, self.py_limited_api))
            super().run()

    dist = distribution(
        "bdist_kpack",
        "--plat-name=linux_x86_64",
        "--build-number=7",
        "--py-limited-api=cp310",
        wheel_command=Looking,
        ext_modules=[object()],
    )
    run(dist)
    assert seen == [("linux_x86_64", "7", "cp310")]
    assert pack.sources


def test_bdist_kpack_is_set_up_in_setup_cfg_too(pack: FakePack) -> None:
    Path("setup.cfg").write_text("[bdist_kpack]\nlevel = 9\nstrict = no\n", encoding="utf-8")
    dist = distribution("bdist_kpack")
    dist.parse_config_files()
    run(dist)
    assert pack.configs == [Config(level=9)]


def test_bdist_kpack_says_what_a_missing_bdist_wheel_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = distribution("bdist_kpack")
    real: Callable[[str], type[Command]] = dist.get_command_class

    def lookup(command: str) -> type[Command]:
        if command == "bdist_wheel":
            raise ModuleError("invalid command 'bdist_wheel'")
        return real(command)

    monkeypatch.setitem(vars(dist), "get_command_class", lookup)
    with pytest.raises(ModuleError, match="pip install wheel"):
        run(dist)


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    dist = distribution("bdist_kpack", "--help")
    assert not dist.parse_command_line()  # type: ignore[no-untyped-call]
    shown = capsys.readouterr().out
    for option in (
        "--mode",
        "--targets",
        "--scheme",
        "--level",
        "--group-by",
        "--dist-dir",
        f"[default: {Config().level}]",
    ):
        assert option in shown
