"""Sphinx's configuration of the site; `make docs` builds it into docs/_build/html."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE / "_ext"), str(HERE.parent / "benchmarks")]

project = "pairsift"
author = "the pairsift authors"
copyright = author
version = release = version_of("pairsift")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "pairsift_site"]
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore = [  # of packages whose pages are not at hand
    ("py:class", "sklearn.base.BaseEstimator"),
    ("py:exc", "NotFittedError"),
    ("py:class", "contextlib.AbstractContextManager"),
]
default_role = "code"
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"

autodoc_default_options = {"members": True, "show-inheritance": True, "exclude-members": "model_post_init"}
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False

html_theme = "furo"
html_title = "pairsift"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
