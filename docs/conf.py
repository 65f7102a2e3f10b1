"""How the documentation is built; ./dev docs."""

from probcalc import __version__

project = "probcalc"
copyright = "the authors of probcalc, Apache License 2.0"
release = __version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"probcalc {release}"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
numpydoc_show_class_members = False
default_role = "code"
