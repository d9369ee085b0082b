"""Settings of the documentation: `make docs`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from cce import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

project = "cce"
author = "The cce contributors"
copyright = "The cce contributors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"cce {version}"
html_static_path = ["static"]
html_css_files = ["cce.css"]
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88  # longer ones have a line for each argument

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


def as_mathml(formula: nodes.Element, *, as_block: bool) -> str:
    """MathML of a formula: browsers draw it by themselves, so a page needs neither a script nor a network."""
    tex = formula.astext()
    try:
        return tex2mathml(tex, as_block=as_block)
    except MathError as error:  # a warning stops `make docs`
        logging.getLogger(__name__).warning("cannot convert %r to MathML: %s", tex, error, location=formula)
        return tex


def visit_math(translator: HTML5Translator, node: nodes.Element) -> None:
    """A formula in a line of text."""
    translator.body.append(as_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_math_block(translator: HTML5Translator, node: nodes.Element) -> None:
    """A formula on lines of its own, which scrolls where it is too wide."""
    translator.body.append(f'<div class="math">{as_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def help_of(*words: str) -> str:
    """What `cce … --help` prints."""
    command = [sys.executable, "-m", *words, "--help"]
    environment = os.environ | {"COLUMNS": "90", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


class CommandLine(SphinxDirective):
    """A section for each verb of a command, with its help."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Ask the command for its verbs, and each verb for its help."""
        command = self.arguments[0]
        overview = help_of(command)
        verbs = re.findall(r"^    (\w+)  ", overview, re.MULTILINE)
        if not verbs:
            raise self.error(f"{command} --help names no verbs")
        return [literal(overview), *(verb_section(command, verb) for verb in verbs)]


def literal(text: str) -> nodes.literal_block:
    """Text as it is printed."""
    return nodes.literal_block(text, text, language="text")


def verb_section(command: str, verb: str) -> nodes.section:
    """The help of one verb."""
    title = nodes.title("", "", nodes.literal("", f"{command} {verb}"))
    return nodes.section("", title, literal(help_of(command, verb)), ids=[f"{command}-{verb}"], names=[verb])


def setup(app: Sphinx) -> None:
    """Connect the hooks."""
    app.add_directive("command-line", CommandLine)
    app.connect("autodoc-process-docstring", format_docstring)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
