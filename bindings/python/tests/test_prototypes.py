"""The table of prototypes against blip.h."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
from conftest import ROOT

from blip import _ffi

HEADER = ROOT / "Include" / "blip.h"
pytestmark = pytest.mark.skipif(not HEADER.is_file(), reason="blip.h is not there: not a source checkout")

SCALARS = {
    "blip_status": ctypes.c_int32,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "uint16_t": ctypes.c_uint16,
    "size_t": ctypes.c_size_t,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "double": ctypes.c_double,
}


def header_text() -> str:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def header_functions() -> dict[str, tuple[str, list[str]]]:
    text = re.sub(r"^\s*#.*$", "", header_text(), flags=re.M)
    text = re.sub(r"typedef[^;{]*(\{[^}]*\}[^;]*)?;", "", text).replace('extern "C" {', "")
    found = {}
    for declaration in text.split(";"):
        match = re.search(r"(?s)^\s*(?:[A-Z_]+\s+)?([\w \t\n]+?[\s*]+)(blip_\w+)\s*\((.*)\)\s*[A-Z_]*\s*$", declaration)
        if match:
            result, name, arguments = match.groups()
            found[name] = (result.strip(), split_arguments(arguments))
    return found


def split_arguments(text: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    if part.strip() not in ("", "void"):
        parts.append(part.strip())
    return parts


def expected(declaration: str, *, result: bool) -> object:
    """The ctypes type for a C type, or for a parameter with its name."""
    if "(*" in declaration or re.search(r"\bblip_\w+_fn\b", declaration):
        return ctypes.c_void_p
    text = re.sub(r"\bconst\b", "", declaration).strip()
    if not result:
        text = re.sub(r"\w+$", "", text).strip()
    stars, base = text.count("*"), text.replace("*", "").strip()
    if base == "void":
        return (None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))[stars]
    if base == "char":
        return ctypes.c_char_p
    if base == "blip_slice":
        if stars:
            return ctypes.POINTER(_ffi.OutSlice)
        return _ffi.OutSlice if result else _ffi.Slice
    if base in SCALARS:
        return ctypes.POINTER(SCALARS[base]) if stars else SCALARS[base]
    assert base.startswith("blip_") and stars, declaration
    return ctypes.c_void_p if stars == 1 else ctypes.POINTER(ctypes.c_void_p)


def test_table_and_header_have_the_same_functions() -> None:
    assert set(_ffi.PROTOTYPES) == set(header_functions())


@pytest.mark.parametrize("name", sorted(_ffi.PROTOTYPES))
def test_function_has_the_types_of_the_header(name: str) -> None:
    result, arguments = header_functions()[name]
    declared_result, declared_arguments = _ffi.PROTOTYPES[name]
    assert declared_result is expected(result, result=True)
    assert list(declared_arguments) == [expected(argument, result=False) for argument in arguments]


@pytest.mark.parametrize("name", sorted(_ffi.PROTOTYPES))
def test_library_exports_the_function(name: str) -> None:
    assert _ffi.bind(name).argtypes == _ffi.PROTOTYPES[name][1]  # type: ignore[attr-defined]
    assert _ffi.bind_waiting(name).argtypes == _ffi.PROTOTYPES[name][1]  # type: ignore[attr-defined]


def test_constants_are_those_of_the_header() -> None:
    missing = []
    for name, value in re.findall(r"^#define (BLIP_\w+) \(?(-?\w+)\)?\s*$", header_text(), flags=re.M):
        if name.startswith("BLIP_VERSION_"):
            continue
        number = int(value.rstrip("uUlL"), 0)
        if name == "BLIP_OK" or name.startswith("BLIP_ERROR_"):
            known = getattr(_ffi.Status, name.replace("BLIP_ERROR_", "").replace("BLIP_", ""), None)
        else:
            known = getattr(_ffi, name[len("BLIP_") :], None)
        if known != number:
            missing.append((name, number, known))
    assert missing == []


def test_slices_have_the_layout_of_the_struct() -> None:
    for kind in (_ffi.Slice, _ffi.OutSlice):
        assert ctypes.sizeof(kind) == ctypes.sizeof(ctypes.c_void_p) + ctypes.sizeof(ctypes.c_size_t)
        assert kind.size.offset == ctypes.sizeof(ctypes.c_void_p)


def test_every_use_in_the_package_is_of_a_declared_function() -> None:
    folder = Path(_ffi.__file__).parent
    used = {
        name for path in folder.glob("*.py") for name in re.findall(r'bind(?:_waiting)?\("(\w+)"\)', path.read_text())
    }
    assert used and used <= set(_ffi.PROTOTYPES)
