"""Settings of the documentation: `make docs`."""

import re

from cce import __version__

project = "cce"
author = "The cce contributors"
copyright = "The cce contributors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"cce {version}"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures of the source are short; types are in the code

ARGUMENT = re.compile(r"(\w+(?:, \w+)*): (.*)")


def as_code(match: re.Match[str]) -> str:
    """`code` in single backticks becomes code; a star outside of it is no markup."""
    return "\\*" if match[0] == "*" else f"``{match[0].strip('`')}``"


def format_docstring(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text: show `code` as code, and lines `argument: meaning` as a list."""
    del app, what, name, obj, options
    formatted = []
    for line in lines:
        argument = ARGUMENT.fullmatch(line)
        text = f"- ``{argument[1]}``: {argument[2]}" if argument else re.sub(r"^ {3,}", "  ", line)
        formatted.append(re.sub(r"`+[^`]+`+|\*", as_code, text))
    lines[:] = formatted


def setup(app: object) -> None:
    """Connect the hook."""
    app.connect("autodoc-process-docstring", format_docstring)
