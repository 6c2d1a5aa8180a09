"""Finds libblip and opens it twice: once keeping the GIL, once releasing it.

The functions of libblip that do not wait take well under a microsecond, and no thread of the library ever
calls Python, so keeping the GIL across them is safe and spares two hand-overs a call. The functions that
wait, or that may read files, are called through the handle that releases the GIL.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import List, Tuple

SONAME = "libblip.so.1"
ENVIRONMENT_VARIABLE = "LIBBLIP_PATH"


class LibraryNotFound(ImportError):
    """libblip is nowhere to be found, or what was found cannot be loaded. The text lists what was tried."""


def candidates() -> List[str]:
    """What to try, in order: a path for files that exist, the bare soname for the system's own search."""
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    if given:
        path = Path(given)
        return [str(path / SONAME)] if path.is_dir() else [str(path)]
    package = Path(__file__).resolve().parent
    found = [package / SONAME]
    for parent in package.parents:
        if (parent / "Include" / "blip.h").is_file():
            found.append(parent / "build" / "lib" / SONAME)
            break
    return [str(path) for path in found if path.is_file()] + [SONAME]


def load() -> Tuple[ctypes.PyDLL, ctypes.CDLL, str]:
    """Opens the first candidate that loads: (keeping the GIL, releasing the GIL, what was opened)."""
    reasons = []
    for candidate in candidates():
        try:
            return ctypes.PyDLL(candidate), ctypes.CDLL(candidate), candidate
        except OSError as error:
            reasons.append(f"  {candidate}: {error}")
    raise LibraryNotFound(
        "the shared library libblip could not be loaded. Tried:\n"
        + "\n".join(reasons)
        + f"\nSet {ENVIRONMENT_VARIABLE} to the file or to the directory that holds {SONAME} (build/lib of a source "
        + "checkout, after `make lib`), or install libblip: `make`, then `sudo make install`."
    )
