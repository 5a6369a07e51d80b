"""The corpus holds what its table says, counted by a reader that is not ours."""

from __future__ import annotations

import zipfile

import pytest

from tests.corpus import CORPUS, corpus_tree, corpus_wheel
from tests.fat import read_fat_binary

__all__: list[str] = []

pytestmark = pytest.mark.corpus


@pytest.mark.parametrize("name", CORPUS)
def test_corpus_wheel_holds_what_the_table_says(name: str) -> None:
    expected, tree = CORPUS[name], corpus_tree(name)
    libraries = [
        wrappers
        for path in sorted(tree.rglob("*.so*"))
        # The runtime libraries that auditwheel put beside a package are not the package's own.
        if ".libs" not in path.parent.name and (wrappers := read_fat_binary(path))
    ]
    objects = [
        (target, len(data))
        for library in libraries
        for wrapper in library
        for target, data in wrapper.code_objects.items()
    ]
    assert tuple(len(library) for library in libraries) == expected.wrappers
    assert len({target for target, _ in objects}) == expected.targets
    assert len(objects) == expected.code_objects
    assert sum(size for _, size in objects) == expected.device_bytes


@pytest.mark.parametrize("name", CORPUS)
def test_corpus_tree_is_the_whole_wheel(name: str) -> None:
    tree = corpus_tree(name)
    with zipfile.ZipFile(corpus_wheel(name)) as archive:
        members = {member.filename: member.file_size for member in archive.infolist() if not member.is_dir()}
    files = {
        path.relative_to(tree).as_posix(): path.stat().st_size for path in tree.rglob("*") if path.is_file()
    }
    assert files == members
