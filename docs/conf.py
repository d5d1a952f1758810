"""Configuration of Sphinx for the documentation site."""

import os
import sys
from importlib.metadata import version as _version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "pyops"
author = "the pyops developers"
copyright = author
version = release = _version("pyops-kernels")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "operators",
    "front_ends",
]
exclude_patterns = ["_ext"]

default_role = "py:obj"  # as in docstrings: a link if the object has a page, otherwise code
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 80
python_trailing_comma_in_multi_line_signatures = False
autodoc_typehints = "none"
numpydoc_show_class_members = False
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The build needs no network: a failed download of an inventory would be a warning, hence an
# error. PYOPS_INTERSPHINX=1 adds links to the pages of NumPy and Python.
intersphinx_mapping = (
    {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
    }
    if os.environ.get("PYOPS_INTERSPHINX")
    else {}
)

html_theme = "pydata_sphinx_theme"
html_title = "pyops"
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "pyops"},
    "navbar_align": "left",
    "show_nav_level": 1,
    "navigation_depth": 3,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_static_path = ["_static"]
html_css_files = ["pyops.css"]
