"""Write small ELF libraries with HIP wrappers, in layouts that no linker at hand makes.

The files have what the conversion looks at: program and section headers, a dynamic table with relocations of
any kind, device code, wrappers. They hold no instructions and are not meant to be run.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from kpack_build.bundle import write_bundle

__all__ = ["ElfOptions", "build_elf", "code_object", "small_bundle"]

EHDR_SIZE, PHDR_SIZE, SHDR_SIZE = 64, 56, 64
PAGE = 4096
PT_NULL, PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_PHDR = 0, 1, 2, 3, 4, 6
PT_GNU_STACK, PT_GNU_PROPERTY = 0x6474E551, 0x6474E553
PROGBITS, STRTAB, NOBITS = 1, 3, 8
ALLOC, WRITE_ALLOC = 2, 3
RELATIVE = {62: 8, 183: 1027}
ABSOLUTE = {62: 1, 183: 257}


def code_object(size: int = 300, mark: int = 0) -> bytes:
    """Return the header of an AMDGPU object for gfx1100, and content up to a size in bytes."""
    ident = b"\x7fELF\x02\x01\x01\x40\x03" + bytes(7)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, 0, 0x41, 64, 56, 0, 64, 0, 0)
    return header + bytes((position * 7 + mark) % 251 + 1 for position in range(size - len(header)))


def small_bundle(size: int = 300, mark: int = 0) -> bytes:
    """Return a bundle with an empty host entry and one code object of a size in bytes."""
    return write_bundle(
        [
            ("host-x86_64-unknown-linux-gnu-", b""),
            ("hipv4-amdgcn-amd-amdhsa--gfx1100", code_object(size, mark)),
        ]
    )


@dataclass(frozen=True, kw_only=True)
class ElfOptions:
    """What the file is like.

    Attributes:
        bundles: The bundles, laid out one after another on pages.
        wrappers: For each wrapper the number of its bundle, or bytes that stand in its place.
        pointers: How the wrappers' pointers get their values: "rela", "symbol", "relr", "plain" or "none".
        type: `e_type`.
        machine: `e_machine`.
        align: Alignment of the load segments.
        extra: Types of further program headers, in front of the load segments.
        before: Bytes of `.rodata` in front of the device code, in its segment; None starts the segment there.
        after: Bytes of `.eh_frame` behind the device code, in its segment.
        text: Bytes of an executable segment in front of all that, empty for none.
        fatbin_tail: Bytes at the end of the device code's section.
        relocations: Further RELA entries: place, info, addend.
        symbols: Values of dynamic symbols, from number 1 on.
        room: Bytes left free behind the program header table, by their filler.
        sections: Whether there are section headers.
        names_first: Whether the table of section names stands in front of mapped bytes.
        names_gap: Bytes that follow it there.
        trailer: Bytes behind everything.
        flags_1: Value of DT_FLAGS_1.
        needed: Names of needed libraries.
        soname: Its own name.
        repeat_addend: Whether the wrappers' words repeat the values of their relocations.
        debug: Whether it is a separated debug file.
        fatbin_name: Name of the section of device code.
    """

    bundles: tuple[bytes, ...] = (small_bundle(),)
    wrappers: tuple[int | bytes, ...] = (0,)
    pointers: str = "rela"
    type: int = 3
    machine: int = 62
    align: int = PAGE
    extra: tuple[int, ...] = (PT_PHDR,)
    before: bytes | None = b"read-only data"
    after: bytes = b"unwind tables"
    text: bytes = b""
    fatbin_tail: bytes = b""
    relocations: tuple[tuple[int, int, int], ...] = ()
    symbols: tuple[int, ...] = ()
    room: bytes = b""
    sections: bool = True
    names_first: bool = False
    names_gap: bytes = b""
    trailer: bytes = b""
    flags_1: int = 0
    needed: tuple[str, ...] = ("libamdhip64.so.7",)
    soname: str = "libtest.so"
    repeat_addend: bool = False
    debug: bool = False
    fatbin_name: str = ".hip_fatbin"


@dataclass
class _Section:
    name: str
    address: int
    offset: int
    size: int
    flags: int = ALLOC
    type: int = PROGBITS


@dataclass
class _Writer:
    options: ElfOptions
    data: bytearray = field(default_factory=bytearray)
    bias: int = 0
    sections: list[_Section] = field(default_factory=list)
    loads: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def align(self, alignment: int) -> None:
        self.data += bytes(-len(self.data) % alignment)

    def place(self, name: str, content: bytes, alignment: int = 8, flags: int = ALLOC) -> int:
        """Add a section; returns its address."""
        self.align(alignment)
        address = len(self.data) + self.bias if flags else 0
        self.sections.append(_Section(name, address, len(self.data), len(content), flags))
        self.data += content
        return address

    def load(self, start: int, flags: int, extra_memory: int = 0) -> None:
        size = len(self.data) - start
        self.loads.append((flags, start, start + self.bias, size, size + extra_memory))


def build_elf(options: ElfOptions | None = None) -> bytes:
    """Return the bytes of a library."""
    options = options or ElfOptions()
    writer = _Writer(options)
    loads = 4 if options.text else 2 + (options.before is None)
    count = loads + 2 + len(options.extra)
    writer.data += bytes(EHDR_SIZE + count * PHDR_SIZE) + options.room
    note = writer.place(".note.gnu.build-id", struct.pack("<III", 4, 4, 3) + b"GNU\0abcd", 4)
    tables = _place_tables(writer)
    if options.text:
        writer.load(0, 4)
        writer.align(PAGE)
        start = len(writer.data)
        writer.place(".text", options.text)
        writer.load(start, 5)
        writer.align(PAGE)
    start = len(writer.data) if options.text else 0
    if options.before is None:
        if not options.text:
            writer.load(0, 4)
        writer.align(options.align)
        start = len(writer.data)
    else:
        writer.place(".rodata", options.before)
    bundles = _place_bundles(writer)
    if options.after:
        writer.place(".eh_frame", options.after)
    writer.load(start, 4)
    if options.names_first:
        names = _place_names(writer)
        writer.data += options.names_gap
    writer.align(8)
    writer.bias = options.align
    start = len(writer.data)
    _place_writable(writer, tables, bundles)
    writer.load(start, 6, extra_memory=16)
    writer.sections.append(
        _Section(".bss", len(writer.data) + writer.bias, len(writer.data), 16, WRITE_ALLOC, NOBITS)
    )
    writer.place(".comment", b"made by a test\0", 1, 0)
    if not options.names_first:
        names = _place_names(writer)
    _write_program_headers(writer, note, count)
    _write_headers(writer, names, count)
    return bytes(writer.data) + options.trailer


def _place_tables(writer: _Writer) -> dict[str, tuple[int, int]]:
    """Reserve the tables that the dynamic section names: address and size of each."""
    options = writer.options
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in (*options.needed, options.soname))
    wrapped = options.pointers in {"rela", "symbol"}
    relocations = (len(options.wrappers) if wrapped else 0) + len(options.relocations)
    sizes = {
        ".dynsym": 24 * (1 + len(options.symbols) + (options.pointers == "symbol")),
        ".dynstr": len(strings),
        ".rela.dyn": 24 * relocations,
        ".relr.dyn": 16 if options.pointers == "relr" else 0,
    }
    tables = {}
    for name, size in sizes.items():
        content = strings if name == ".dynstr" else bytes(size)
        tables[name] = (writer.place(name, content), size)
    for number, value in enumerate(options.symbols, 1):
        struct.pack_into("<IBBHQQ", writer.data, tables[".dynsym"][0] + 24 * number, 0, 0x11, 0, 1, value, 0)
    return tables


def _place_bundles(writer: _Writer) -> list[int]:
    """Place the device code; returns the addresses of the bundles."""
    content = bytearray()
    starts = []
    for bundle in writer.options.bundles:
        content += bytes(-len(content) % PAGE)
        starts.append(len(content))
        content += bundle
    content += writer.options.fatbin_tail
    address = writer.place(writer.options.fatbin_name, bytes(content), PAGE)
    return [address + start for start in starts]


def _place_names(writer: _Writer) -> _Section:
    names = dict.fromkeys([".shstrtab", ".hip_fatbin", ".hipFatBinSegment", ".bss", ".dynamic", ".comment"])
    names.update(dict.fromkeys(section.name for section in writer.sections))
    writer.place(".shstrtab", b"\0" + b"".join(name.encode() + b"\0" for name in names), 1, 0)
    section = writer.sections[-1]
    section.type = STRTAB
    return section


def _place_writable(writer: _Writer, tables: dict[str, tuple[int, int]], bundles: list[int]) -> None:
    options = writer.options
    dynamic = writer.place(".dynamic", bytes(16 * 20), 8, WRITE_ALLOC)
    records, targets = bytearray(), []
    for wrapper in options.wrappers:
        if isinstance(wrapper, bytes):
            records += wrapper
            continue
        targets.append((len(records) + 8, bundles[wrapper]))
        in_place = options.pointers in {"relr", "plain"} or options.repeat_addend
        records += struct.pack("<4sIQQ", b"FPIH", 1, bundles[wrapper] if in_place else 0, 0)
    start = writer.place(".hipFatBinSegment", bytes(records), 8, WRITE_ALLOC)
    places = [(start + offset, target) for offset, target in targets]
    _write_relocations(writer, tables, places)
    struct.pack_into(f"<{2 * 20}Q", writer.data, dynamic - writer.bias, *_dynamic(options, tables))


def _write_relocations(
    writer: _Writer, tables: dict[str, tuple[int, int]], places: list[tuple[int, int]]
) -> None:
    options = writer.options
    entries = list(options.relocations)
    if options.pointers == "rela":
        entries += [(place, RELATIVE[options.machine], target) for place, target in places]
    if options.pointers == "symbol":
        # The symbol is at the first bundle; the others are reached by an addend.
        symbol, base = 1 + len(options.symbols), places[0][1]
        info = symbol << 32 | ABSOLUTE[options.machine]
        entries += [(place, info, target - base) for place, target in places]
        struct.pack_into("<IBBHQQ", writer.data, tables[".dynsym"][0] + 24 * symbol, 0, 0x11, 3, 1, base, 0)
    for number, entry in enumerate(entries):
        struct.pack_into("<QQq", writer.data, tables[".rela.dyn"][0] + 24 * number, *entry)
    if options.pointers == "relr" and places:
        first = places[0][0]
        bits = sum(1 << (place - first) // 8 for place, _ in places[1:])
        struct.pack_into("<QQ", writer.data, tables[".relr.dyn"][0], first, bits | 1)


def _dynamic(options: ElfOptions, tables: dict[str, tuple[int, int]]) -> list[int]:
    position, pairs = 1, []
    for name in options.needed:
        pairs.append((1, position))
        position += len(name) + 1
    pairs.append((14, position))
    tags = {".dynsym": (6, 0), ".dynstr": (5, 10), ".rela.dyn": (7, 8), ".relr.dyn": (36, 35)}
    for name, (address_tag, size_tag) in tags.items():
        address, size = tables[name]
        if size:
            pairs.append((address_tag, address))
            pairs += [(size_tag, size)] if size_tag else []
    pairs += [(0x6FFFFFFB, options.flags_1)] if options.flags_1 else []
    flat = [value for pair in pairs for value in pair]
    return flat + [0] * (2 * 20 - len(flat))


def _write_program_headers(writer: _Writer, note: int, count: int) -> None:
    options, headers = writer.options, []
    by_name = {section.name: section for section in writer.sections}
    build_id, dynamic = by_name[".note.gnu.build-id"], by_name[".dynamic"]
    for kind in options.extra:
        place = {
            PT_PHDR: (EHDR_SIZE, count * PHDR_SIZE),
            PT_NOTE: (note, build_id.size),
            PT_GNU_PROPERTY: (note, build_id.size),
            PT_INTERP: (note, build_id.size),
        }.get(kind, (0, 0))
        headers.append((kind, 4, place[0], place[0], place[0], place[1], place[1], 8))
    for flags, offset, address, size, memory in writer.loads:
        headers.append((PT_LOAD, flags, offset, address, address, size, memory, options.align))
    headers.append(
        (PT_DYNAMIC, 6, dynamic.offset, dynamic.address, dynamic.address, dynamic.size, dynamic.size, 8)
    )
    headers.append((PT_GNU_STACK, 6, 0, 0, 0, 0, 0, 16))
    assert len(headers) == count
    for number, header in enumerate(headers):
        struct.pack_into("<IIQQQQQQ", writer.data, EHDR_SIZE + number * PHDR_SIZE, *header)


def _write_headers(writer: _Writer, names: _Section, count: int) -> None:
    options, table = writer.options, b""
    strings = bytes(writer.data[names.offset : names.offset + names.size])
    writer.align(8)
    shoff = len(writer.data)
    for section in writer.sections:
        kind = NOBITS if options.debug and section.flags else section.type
        name = strings.index(section.name.encode() + b"\0")
        table += struct.pack(
            "<IIQQQQIIQQ",
            name,
            kind,
            section.flags,
            section.address,
            section.offset,
            section.size,
            0,
            0,
            1,
            0,
        )
    number, index = 1 + len(writer.sections), 1 + writer.sections.index(names)
    if options.sections:
        writer.data += bytes(SHDR_SIZE) + table
    else:
        shoff, number, index = 0, 0, 0
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    tail = (1, 0, EHDR_SIZE, shoff, 0, EHDR_SIZE, PHDR_SIZE, count, SHDR_SIZE, number, index)
    struct.pack_into("<16sHHIQQQIHHHHHH", writer.data, 0, ident, options.type, options.machine, *tail)
