"""Reads blip.h and writes the tables that the tests of handles and statuses are made of, so that nothing of the
header can be left out.

    generate_tables.py HANDLES_OUTPUT CONSTANTS_OUTPUT HEADER
    generate_tables.py --functions HEADER       the names of the declared functions, one a line
"""

import re
import sys
from pathlib import Path


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"//[^\n]*", " ", text)


def declarations(text):
    """The header's statements, each on one line, without preprocessor lines and the extern "C" brackets."""
    text = re.sub(r"\\\n", " ", without_comments(text))
    text = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
    text = text.replace('extern "C" {', " ")
    depth, statement = 0, ""
    for character in text:
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth < 0:
                depth = 0
                continue
        if character == ";" and depth == 0:
            yield " ".join(statement.split())
            statement = ""
        else:
            statement += character


def split_parameters(text):
    depth, start, parts = 0, 0, []
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return [] if parts == ["void"] else parts


def parse(header):
    text = Path(header).read_text(encoding="utf-8")
    opaque, callbacks, functions = [], {}, []
    for statement in declarations(text):
        match = re.fullmatch(r"typedef struct (blip_\w+) \1", statement)
        if match:
            opaque.append(match[1])
            continue
        match = re.fullmatch(r"typedef (.+?) ?\(\*(blip_\w+)\)\((.*)\)", statement)
        if match:
            callbacks[match[2]] = (match[1], split_parameters(match[3]))
            continue
        if statement.startswith("typedef"):
            continue
        match = re.fullmatch(r"(.+?[ *])(blip_\w+) ?\((.*)\)", statement)
        if match:
            functions.append((match[1].strip(), match[2], split_parameters(match[3])))
        elif statement:
            sys.exit(f"{header}: cannot read the declaration: {statement}")
    return text, opaque, callbacks, functions


def parameter_type(parameter):
    """A parameter without its name."""
    if "(*" in parameter:
        return "release"
    return re.sub(r"\s*\b\w+$", "", parameter).replace(" *", "*").strip()


def parameter_name(parameter):
    return re.search(r"\w+$", parameter)[0]


# Arguments that may be NULL: the call is then only required not to crash.
OPTIONAL = {
    ("blip_runtime_new", 0), ("blip_connection_new", 0), ("blip_connection_new", 2), ("blip_listener_new", 0),
    ("blip_listener_new", 1), ("blip_runtime_options_set_queue", 1), ("blip_connection_options_set_queue", 1),
    ("blip_listener_options_set_queue", 1), ("blip_runtime_counters", 0), ("blip_runtime_metrics_text", 0),
    ("blip_listener_options_set_queue", 1), ("blip_module_set_observer", 2), ("blip_reconnector_new", 0),
    ("blip_listener_serve_files", 3),
    ("blip_runtime_set_cookie", 0), ("blip_runtime_cookies", 0), ("blip_runtime_clear_cookies", 0),
    ("blip_reconnector_new", 2), ("blip_pool_new", 0), ("blip_pool_new", 1),
    ("blip_connection_from_transport", 0), ("blip_connection_from_transport", 2), ("blip_connection_pair", 0),
    ("blip_connection_pair", 1), ("blip_connection_pair", 2), ("blip_listener_connect", 1), ("blip_listener_connect", 2),
}
# Results that a caller may not be interested in.
OPTIONAL_RESULTS = {"blip_runtime_run_once", "blip_queue_dispatch"}


def write_handles(output, opaque, callbacks, functions):
    lines = ["/* Made by generate_tables.py from blip.h. */", ""]
    kinds = {name + "*": name[len("blip_"):] for name in opaque}
    lines += ["enum kind {"] + [f"    KIND_{kind.upper()}," for kind in kinds.values()] + ["    KINDS", "};", ""]
    lines += ["static const char *const kind_names[] = {"]
    lines += [f'    "{kind}",' for kind in kinds.values()] + ["};", ""]
    for name, (result, parameters) in callbacks.items():
        lines += [f"static {result} no_{name}({', '.join(parameters)})", "{"]
        lines += [f"    (void){parameter_name(parameter)};" for parameter in parameters]
        lines += [] if result == "void" else ["    return 0;"]
        lines += ["}", ""]
    table = []
    for result, name, parameters in functions:
        types = [parameter_type(p) for p in parameters]
        handles = [i for i, t in enumerate(types) if t in kinds]
        outputs = [i for i, t in enumerate(types)
                   if t.endswith("*") and t not in kinds and not t.startswith("const") and t != "void*"]
        if not handles and not outputs:
            continue
        has_release = "release" in types
        lines += [f"static int32_t call_{name}(void **h, bool null_results)", "{"]
        lines += ["    (void)h;", "    (void)null_results;"]
        arguments = []
        for index, (kind, parameter) in enumerate(zip(types, parameters)):
            if index in handles:
                arguments.append(f"h[{handles.index(index)}]")
            elif kind == "release":
                arguments.append("count_one_release")
            elif kind in callbacks:
                arguments.append(f"no_{kind}")
            elif index in outputs:
                arguments.append(f"null_results ? NULL : (void *)results[{outputs.index(index)}]")
            elif kind == "blip_slice":
                arguments.append('S("x")')
            elif kind == "void*":
                arguments.append("scratch")
            elif kind == "const int32_t*":
                arguments.append("some_counters")
            elif kind == "const char*":
                arguments.append('"x"')
            elif kind == "int" and parameter.endswith(" fd"):
                arguments.append("-1")
            elif kind == "bool":
                arguments.append("false")
            elif kind == "size_t":
                arguments.append("1")
            elif kind == "double":
                arguments.append("50")
            elif re.fullmatch(r"u?int\d+_t|int|blip_status", kind):
                arguments.append("0")
            else:
                sys.exit(f"{name}: no argument known for {parameter}")
        call = f"{name}({', '.join(arguments)})"
        if result == "blip_status":
            lines += [f"    return {call};"]
        elif result == "void":
            lines += [f"    {call};", "    return BLIP_ERROR_HANDLE;"]
        elif result.replace(" ", "") in kinds:
            lines += [f"    return {call} == NULL ? BLIP_ERROR_HANDLE : BLIP_OK;"]
        else:
            sys.exit(f"{name}: result {result} is not handled")
        lines += ["}", ""]
        optional = [handles.index(i) for i in handles if (name, i) in OPTIONAL]
        mask = sum(1 << i for i in optional)
        shown = ", ".join(f"KIND_{kinds[types[i]].upper()}" for i in handles) or "0"
        flags = [
            len(handles), len(outputs), mask,
            "true" if has_release else "false",
            "true" if result == "void" else "false",
            "true" if name in OPTIONAL_RESULTS else "false",
        ]
        table.append(f"    {{\"{name}\", call_{name}, {{{shown}}}, {', '.join(map(str, flags))}}},")
    lines += ["static const struct function functions[] = {"] + table + ["};", ""]
    Path(output).write_text("\n".join(lines), encoding="utf-8")


def write_constants(output, text):
    lines = ["/* Made by generate_tables.py from blip.h. */", "", "static const struct constant constants[] = {"]
    for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(BLIP_\w+)[ \t]+\S", without_comments(text), flags=re.M):
        lines.append(f'    {{"{match[1]}", (int64_t)({match[1]})}},')
    lines += ["};", ""]
    Path(output).write_text("\n".join(lines), encoding="utf-8")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--functions":
        print("\n".join(name for _, name, _ in parse(sys.argv[2])[3]))
        return
    handles, constants, header = sys.argv[1:]
    text, opaque, callbacks, functions = parse(header)
    write_handles(handles, opaque, callbacks, functions)
    write_constants(constants, text)


if __name__ == "__main__":
    main()
