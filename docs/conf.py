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
    "sphinx-mathjax-offline",
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "operators",
    "c_header",
    "front_ends",
    "measurements",
]
exclude_patterns = ["_ext", "tutorials"]
plot_formats, plot_html_show_formats, plot_html_show_source_link = ["svg"], False, False

default_role = "py:obj"  # as in docstrings: a link if the object has a page, otherwise code
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 80
c_maximum_signature_line_length = 10_000  # kernels have dozens of parameters: they wrap
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

# Every tutorial runs in each build of the site; one that fails, fails the build.
os.environ.setdefault("TQDM_DISABLE", "1")  # what a tutorial writes is on its page
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",
    "copyfile_regex": r".*\.f90",
    "within_subsection_order": "FileNameSortKey",
    "image_srcset": ["2x"],
    "write_computation_times": False,
    "min_reported_time": 1_000,
    "show_signature": False,
    "remove_config_comments": True,
    "download_all_examples": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"pyops {version}"
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": f"pyops {version}"},
    "navbar_align": "left",
    "show_nav_level": 1,
    "navigation_depth": 3,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    # Tutorials have no contents beside them: their code and pictures need the width.
    "secondary_sidebar_items": {"gallery/**": []},
}
# Where the published site lists its versions, and the name of this one there.
if versions := os.environ.get("PYOPS_VERSIONS"):
    html_theme_options |= {
        "switcher": {"json_url": versions, "version_match": os.environ["PYOPS_VERSION"]},
        "check_switcher": False,
        "navbar_start": ["navbar-logo", "version-switcher"],
    }
html_static_path = ["_static"]
html_css_files = ["pyops.css"]
