"""The native library: what its files need, that everything that is shipped has them, and its fuzzer."""

from __future__ import annotations

import platform
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from destination_datalake import native
from unit_tests.repository.files import ROOT, text

ARCHITECTURES = {"x86_64": 62, "aarch64": 183}
"""The names that `platform.machine()` returns, and the numbers in ELF files (the generic ABI's list of `e_machine`)."""

LIBRARIES = {machine: Path(native.__file__).with_name(f"_native.{machine}.so") for machine in ARCHITECTURES}
PATHS = {library.relative_to(ROOT).as_posix() for library in LIBRARIES.values()}
SOURCES = {path.relative_to(ROOT).as_posix() for path in (ROOT / "native").rglob("*") if path.is_file()}
CORPUS = sorted((ROOT / "native/corpus").iterdir())

STANDARD = {"calloc", "free", "malloc", "memchr", "memcmp", "memcpy", "memmove", "memset", "realloc"}
"""Functions of C's standard library, which every process with Python in it has."""

SHT_DYNAMIC, SHT_DYNSYM, DT_NEEDED, SHN_UNDEF = 6, 11, 1, 0


class SharedLibrary:
    """An ELF file of 64 bits, little endian."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        self.identification = self._content[:6]
        [self.machine] = struct.unpack_from("<H", self._content, 18)
        [start] = struct.unpack_from("<Q", self._content, 40)
        size, count = struct.unpack_from("<HH", self._content, 58)
        # The type, offset, size and linked section of each section.
        self._sections = [
            struct.unpack_from("<4xI8x8xQQI", self._content, start + size * number) for number in range(count)
        ]

    def needed(self) -> int:
        """Return the number of other libraries that the dynamic linker would load."""
        return sum(tag == DT_NEEDED for tag, _ in self._entries(SHT_DYNAMIC, "<qQ"))

    def symbols(self, is_defined: bool) -> set[str]:
        """Return the names of the functions that the library has, or that it needs from the process."""
        return {
            self._name(name)
            for name, section in self._entries(SHT_DYNSYM, "<I2xH16x")
            if name and (section != SHN_UNDEF) == is_defined
        }

    def _entries(self, kind: int, form: str) -> Iterator[tuple[int, ...]]:
        [(_, offset, size, _)] = [section for section in self._sections if section[0] == kind]
        yield from struct.iter_unpack(form, self._content[offset : offset + size])

    def _name(self, start: int) -> str:
        [names] = [section[3] for section in self._sections if section[0] == SHT_DYNSYM]
        start += self._sections[names][1]
        return self._content[start : self._content.index(b"\0", start)].decode()


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ARCHITECTURES, reason="no library for this system"
)
def test_this_machine_loads_its_library() -> None:
    assert native.library() is not None


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_library_needs_no_other_library_so_that_it_fits_every_c_library(machine: str) -> None:
    library = SharedLibrary(LIBRARIES[machine])

    assert (library.identification, library.machine) == (b"\x7fELF\x02\x01", ARCHITECTURES[machine])
    assert library.needed() == 0
    assert library.symbols(is_defined=False) - STANDARD == set()
    assert library.symbols(is_defined=True) == {"decode_records", "split_messages"}


@pytest.mark.slow
@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_same_sources_give_the_same_library(machine: str, tmp_path: Path) -> None:
    library = tmp_path / LIBRARIES[machine].name

    subprocess.run([str(ROOT / "native/build.sh"), sys.executable, str(library)], cwd=tmp_path, check=True)

    assert library.read_bytes() == LIBRARIES[machine].read_bytes()


def test_the_wheel_has_the_libraries_and_the_source_distribution_their_sources(tmp_path: Path) -> None:
    build = [str(ROOT / ".uv/bin/uv"), "build", "--offline", "--quiet", "--out-dir", str(tmp_path)]

    subprocess.run(build, cwd=ROOT, check=True)

    # Other systems install the same wheel, and decode without a library.
    [wheel] = tmp_path.glob("*-py3-none-any.whl")
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")} == PATHS
    [source] = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as tar:
        assert {name.partition("/")[2] for name in tar.getnames()} >= SOURCES


def test_the_image_compiles_its_libraries_itself() -> None:
    [command] = [line for line in text("Dockerfile").replace("\\\n", "").splitlines() if "native/build.sh" in line]

    assert "uv run --isolated --frozen --only-group native native/build.sh" in command, "with the compiler of uv.lock"
    assert {word for word in command.split() if word.endswith(".so")} == PATHS
    assert "**/*.so" in text(".dockerignore").splitlines()


# --- The fuzzer -----------------------------------------------------------------------------------------------------


def fuzz(source: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the inputs of the corpus, and random ones up to 40,000 runs; the same ones each time."""
    command = [str(source / "fuzz.sh"), sys.executable, "-n", "40000", *map(str, CORPUS)]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True)


@pytest.mark.slow
def test_native_code_withstands_the_corpus_and_random_lines(tmp_path: Path) -> None:
    run = fuzz(ROOT / "native", tmp_path)

    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_the_fuzzer_keeps_the_input_that_makes_native_code_read_beyond_the_text(tmp_path: Path) -> None:
    source = shutil.copytree(ROOT / "native", tmp_path / "native")
    tokens = source / "text.h"
    correct = tokens.read_text(encoding="utf-8")
    wrong = correct.replace("end - at >= LANES) {", "end - at >= LANES - 1) {")
    assert wrong != correct
    tokens.write_text(wrong, encoding="utf-8")

    run = fuzz(source, tmp_path)

    [failing] = re.findall(r"^(\S+): it failed with this input", run.stderr, re.MULTILINE)
    assert subprocess.run([tmp_path / "build/fuzz/fuzz", "-n", "0", failing], cwd=tmp_path).returncode == 1


def test_the_corpus_is_small() -> None:
    assert 0 < len(CORPUS) <= 300
    assert max(path.stat().st_size for path in CORPUS) <= 4096
