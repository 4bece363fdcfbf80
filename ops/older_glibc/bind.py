"""Binds x86-64 ELF files, in place, to an older glibc than this machine's, and to a C++ runtime of their own.

    bind.py libkiln_glibc.so FILE...    the first is made of stand_ins.c

A file asks the loader for names at versions: pthread_create at GLIBC_2.34. Each version newer than 2.28 is
renamed GLIBC_2.2.5, the first of x86-64, where the file lists what it asks for. glibc keeps every version that
it ever had, so that what only moved from one of its libraries to another, or got a better variant (pow), is
found at this one in old and new glibc alike. What is not there at that version, or is something else there,
libkiln_glibc.so defines at it, and no glibc does. A name that neither covers is an error.

The C++ runtime of manylinux_2_28 is GCC 8's, and the files need GCC 12's. It travels with them like other
libraries, under a name and versions of its own (GLIBCXX_3.4.30 becomes KLIBCXX_3.4.30): a process can hold
PyTorch with the machine's runtime and Kiln with this one, and neither sees the other's.

Nothing moves in a file: each new string is one that it has, or as long as the old one.
"""

from __future__ import annotations

import re
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile

NEWEST = (2, 28)
FIRST = "GLIBC_2.2.5"
GLIBC = [Path("/lib/x86_64-linux-gnu") / name
         for name in ("libc.so.6", "libm.so.6", "libresolv.so.2", "ld-linux-x86-64.so.2")]
SAME_LENGTH = {b"\0libstdc++.so.6\0": b"\0libstdk++.so.6\0",  # ops/wheel renames the file
               b"\0__libc_start_main\0": b"\0__kiln_start_main\0"}
UNIQUE, GLOBAL = 10, 1  # how a symbol binds; of two unique ones of a name, all of a process see one


class Version(NamedTuple):
    number: int  # by which the symbols of a file refer to it
    name: str
    name_at: int  # where these lie in the file
    offset_at: int
    hash_at: int


class Elf:
    """What a file says of its dynamic symbols and their versions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = bytearray(path.read_bytes())
        with path.open("rb") as stream:
            sections = {each.name: (each["sh_offset"], each["sh_size"]) for each in ELFFile(stream).iter_sections()}
        self.strings, self.strings_size = sections[".dynstr"]
        symbols, size = sections[".dynsym"]
        self.symbols = range(symbols, symbols + size, 24)
        self._numbers, _ = sections.get(".gnu.version", (0, 0))
        self._needed, _ = sections.get(".gnu.version_r", (0, 0))
        self._defined, _ = sections.get(".gnu.version_d", (0, 0))

    def read(self, layout: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from("<" + layout, self.data, at)

    def string_at(self, at: int) -> str:
        return self.data[at:self.data.index(0, at)].decode()

    def names(self) -> Iterator[tuple[int, str]]:
        """Each symbol's number of a version, and its name."""
        for i, symbol in enumerate(self.symbols):
            number = self.read("H", self._numbers + 2 * i)[0] & 0x7fff if self._numbers else 1
            yield number, self.string_at(self.strings + self.read("I", symbol)[0])

    def _version(self, number: int, offset_at: int, hash_at: int) -> Version:
        name_at = self.strings + self.read("I", offset_at)[0]
        return Version(number, self.string_at(name_at), name_at, offset_at, hash_at)

    def needed(self) -> Iterator[Version]:
        library = self._needed
        while library:
            _, count, _, entry, following = self.read("HHIII", library)
            entry += library
            for _ in range(count):
                _, _, number, _, step = self.read("IHHII", entry)
                yield self._version(number, entry + 8, entry)
                entry += step
            library = library + following if following else 0

    def defined(self) -> Iterator[Version]:
        entry = self._defined
        while entry:
            _, _, number, _, _, name, following = self.read("HHHHIII", entry)
            yield self._version(number, entry + name, entry + 8)
            entry = entry + following if following else 0

    def rename(self, version: Version, to: str) -> None:
        """To a name that the file has, or else to one as long, in its place."""
        wanted = b"\0" + to.encode() + b"\0"
        found = self.data.find(wanted, self.strings, self.strings + self.strings_size)
        if found < 0:
            assert len(to) == len(version.name), (self.path, version, to)
            self.data[version.name_at:version.name_at + len(to)] = to.encode()
            found = version.name_at - 1
        struct.pack_into("<I", self.data, version.offset_at, found + 1 - self.strings)
        struct.pack_into("<I", self.data, version.hash_at, elf_hash(to))


def elf_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xf0000000
        value = (value ^ high >> 24) & ~high
    return value


def glibc_version(name: str) -> tuple[int, ...]:
    """GLIBC_2.34's numbers; nothing of versions that are not glibc's."""
    numbers = re.fullmatch(r"GLIBC_([0-9.]+)", name)
    assert numbers or not name.startswith("GLIBC_"), f"{name} is no part of glibc's interface"
    return tuple(map(int, numbers[1].split("."))) if numbers else ()


def versions_here() -> dict[str, set[str]]:
    """Each name that this machine's glibc defines, with its versions up to 2.28."""
    found: dict[str, set[str]] = defaultdict(set)
    for elf in map(Elf, GLIBC):
        old = {each.number: each.name for each in elf.defined()
               if re.fullmatch(r"GLIBC_[0-9.]+", each.name) and glibc_version(each.name) <= NEWEST}
        for number, name in elf.names():
            if number in old:
                found[name].add(old[number])
    return found


def bind_to_older_glibc(elf: Elf, here: dict[str, set[str]], stand_ins: set[str]) -> list[str]:
    """The names that it uses and nothing covers."""
    newer = [each for each in elf.needed() if glibc_version(each.name) > NEWEST]
    numbers = {each.number for each in newer}
    for version in newer:
        elf.rename(version, FIRST)
    return [f"{elf.path.name} needs {name}" for number, name in elf.names()
            if number in numbers and name not in stand_ins and here[name] != {FIRST}]


def give_a_runtime_of_its_own(elf: Elf) -> None:
    for version in (*elf.needed(), *elf.defined()):
        if version.name.startswith(("GLIBCXX_", "CXXABI_")):
            elf.rename(version, "K" + version.name[1:])
    for symbol in elf.symbols:
        kind = elf.data[symbol + 4]
        if kind >> 4 == UNIQUE:
            elf.data[symbol + 4] = GLOBAL << 4 | kind & 15


def rename_strings(elf: Elf) -> None:
    end = elf.strings + elf.strings_size
    for old, new in SAME_LENGTH.items():
        elf.data[elf.strings:end] = elf.data[elf.strings:end].replace(old, new)


def main() -> None:
    made, *files = (Elf(Path(each)) for each in sys.argv[1:])
    defined = {each.number for each in made.defined()}
    stand_ins = {name for number, name in made.names() if number in defined}
    here = versions_here()
    missing = bind_to_older_glibc(made, here, set())
    for elf in files:
        rename_strings(elf)
        give_a_runtime_of_its_own(elf)
        missing += bind_to_older_glibc(elf, here, stand_ins)
    if missing:
        sys.exit("\n".join(missing) + f"\nwhich glibc 2.28 has not at {FIRST}: make it in stand_ins.c")
    for elf in (made, *files):
        elf.path.write_bytes(elf.data)


main()
