"""Settings of Sphinx for `make docs`, which lays the sources out in build/docs/source and copies this file there."""

import os
import sys

sys.path.insert(0, os.path.join(os.environ["BLIP_ROOT"], "bindings", "python", "src"))

project = "libblip"
author = "libblip developers"
copyright = "libblip developers, Apache License 2.0"
version = release = os.environ["BLIP_VERSION"]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
primary_domain = "c"
default_role = "literal"
highlight_language = "none"

html_theme = "furo"
html_title = f"libblip {version}"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None
