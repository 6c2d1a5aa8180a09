"""What header and library promise beside behaviour: they compile and agree, and the library needs and exports nothing
more than it should."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import generate_tables

NEEDED = {
    "libssl.so.3", "libcrypto.so.3", "libz.so.1", "libisal.so.2", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1",
    "libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
}
MAXIMUM_SIZE = 9_000_000
STANDARDS = [
    ("cc", "c99"), ("cc", "c11"), ("cc", "c17"), ("cc", "c2x"), ("cxx", "c++11"), ("cxx", "c++17"), ("cxx", "c++20"),
]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def compile_source(arguments, compiler, standard, source, *options):
    name = arguments.cc if compiler == "cc" else arguments.cxx
    suffix = ".c" if compiler == "cc" else ".cc"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "source" + suffix)
        path.write_text(source, encoding="utf-8")
        result = subprocess.run(
            [*name.split(), f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror",
             f"-I{arguments.header.parent}", *options, "-c", str(path), "-o", str(Path(folder, "object"))],
            capture_output=True, text=True)
    if result.returncode == 0:
        return []
    return [f"{name} -std={standard}: {line}" for line in result.stderr.split("\n")[:8]]


def header_alone(arguments):
    findings = []
    for compiler, standard in STANDARDS:
        findings += compile_source(arguments, compiler, standard, "#include <blip.h>\n#include <blip.h>\n")
    return findings


def easy_header_alone(arguments, here):
    folder = here.parent.parent / "bindings" / "c"
    findings = []
    for compiler, standard in STANDARDS:
        findings += compile_source(
            arguments, compiler, standard, "#include <blip_easy.h>\n#include <blip_easy.h>\n", f"-I{folder}")
    return findings


def functions_from_both_languages(arguments):
    """Every declared function can be referred to from C and from C++."""
    names = [name for _, name, _ in generate_tables.parse(arguments.header)[3]]
    start = (
        "#include <blip.h>\n"
        "typedef void function(void);\n"
        "extern function *const all[];\n"
        "function *const all[] = {\n"
    )
    in_c = start + "".join(f"    (function *)&{name},\n" for name in names) + "};\n"
    in_cxx = start + "".join(f"    reinterpret_cast<function *>(&{name}),\n" for name in names) + "};\n"
    quiet = "-Wno-cast-function-type"
    return compile_source(arguments, "cc", "c11", in_c, quiet) + compile_source(
        arguments, "cxx", "c++17", in_cxx, quiet)


def exported(arguments):
    """Global symbols; a linker may leave local ones in the table too."""
    symbols = {}
    for line in output("nm", "-D", "--defined-only", str(arguments.library)).splitlines():
        _, kind, name = line.split()
        if kind.isupper() or kind in "iuvw":
            symbols[name] = kind
    return symbols


def same_functions(arguments):
    declared = {name for _, name, _ in generate_tables.parse(arguments.header)[3]}
    found = {name.split("@")[0] for name, kind in exported(arguments).items() if kind in "TWi"}
    findings = [f"{name} is declared and not exported" for name in sorted(declared - found)]
    return findings + [f"{name} is exported and not declared" for name in sorted(found - declared)]


def nothing_else_exported(arguments):
    return [
        f"{name} ({kind}) is exported"
        for name, kind in sorted(exported(arguments).items())
        if not re.fullmatch(r"blip_\w+@@BLIP_1\.0", name) and not re.fullmatch(r"BLIP_1\.0(@@BLIP_1\.0)?", name)
    ]


def dynamic_section(arguments):
    return output("readelf", "-d", "-W", str(arguments.library))


def needed(arguments):
    libraries = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section(arguments)))
    return [f"{name} is needed and may not be" for name in sorted(libraries - NEEDED)]


def soname_and_flags(arguments):
    section = dynamic_section(arguments)
    findings = []
    if "Library soname: [libblip.so.1]" not in section:
        findings.append("the soname is not libblip.so.1")
    if "NODELETE" not in section:
        findings.append("the library can be unloaded")
    if "BIND_NOW" not in section and "NOW" not in section:
        findings.append("symbols are bound late")
    paths = re.search(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", section)
    if paths:
        findings.append(f"the library looks for others in {paths[1]}, not where the system does")
    if "TEXTREL" in section:
        findings.append("text relocations")
    headers = output("readelf", "-l", "-W", str(arguments.library))
    stack = re.search(r"GNU_STACK.*", headers)
    if stack and "RWE" in stack[0]:
        findings.append("the stack is executable")
    if "GNU_RELRO" not in headers:
        findings.append("relocations stay writable")
    return findings


def no_dynamic_swift(arguments):
    listed = output("ldd", str(arguments.library.resolve()))
    return [line.strip() for line in listed.splitlines() if re.search(r"swift|Foundation|dispatch|not found", line)]


def stripped_size(arguments):
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "library")
        shutil.copy(arguments.library.resolve(), copy)
        subprocess.run(["strip", str(copy)], check=True)
        size = copy.stat().st_size
    print(f"# {size} bytes stripped")
    return [] if size < MAXIMUM_SIZE else [f"{size} bytes, more than {MAXIMUM_SIZE}"]


def programs_of_the_manual(arguments, here):
    """The programs in the page about C are whole and compile as they stand."""
    folder = here.parent.parent / "bindings" / "c"
    page = (folder / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```c\n(.*?)```", page, flags=re.S)
    findings = [] if programs else ["no programs found"]
    for program in programs:
        findings += compile_source(arguments, "cc", "gnu11", program, f"-I{folder}")
    return findings


def every_example_is_built(arguments, here):
    sources = sorted((here.parent.parent / "examples" / "c").glob("*.c"))
    missing = [path for path in sources if not (arguments.build / "examples" / path.stem).exists()]
    # Those of another library's loop are left out where that library is not.
    findings = [f"{path.name} was not built" for path in missing
                if not re.match("(libuv|glib)_", path.name) or subprocess.run(
                    ["pkg-config", "--exists", {"l": "libuv", "g": "glib-2.0"}[path.name[0]]]).returncode == 0]
    for path in sources:
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines >= 100:
            findings.append(f"{path.name} has {lines} lines; examples have fewer than 100")
    return findings if sources else ["there are no examples"]


def checks(arguments, here):
    return [
        ("blip.h compiles alone in every standard", lambda: header_alone(arguments)),
        ("blip_easy.h compiles alone in every standard", lambda: easy_header_alone(arguments, here)),
        ("the programs in the page about C compile", lambda: programs_of_the_manual(arguments, here)),
        ("every function can be used from C and C++", lambda: functions_from_both_languages(arguments)),
        ("declared functions are the exported ones", lambda: same_functions(arguments)),
        ("nothing but blip_* is exported, in version BLIP_1.0", lambda: nothing_else_exported(arguments)),
        ("the library needs what it may", lambda: needed(arguments)),
        ("soname, binding and protection", lambda: soname_and_flags(arguments)),
        ("no dynamic Swift runtime", lambda: no_dynamic_swift(arguments)),
        ("the stripped library is small", lambda: stripped_size(arguments)),
        ("the examples are built and short", lambda: every_example_is_built(arguments, here)),
    ]
