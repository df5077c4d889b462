"""Settings of the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from hebbseg import __version__  # noqa: E402 - the package is found by the line above

project = "hebbseg"
author = "The hebbseg maintainers"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docs.site"]
exclude_patterns = ["_build"]
nitpicky = True
# Types of other packages in signatures: the site has no copy of their documentation, and loads nothing.
nitpick_ignore_regex = [("py:.*", ".*")]
default_role = "py:obj"  # `name` in docstrings: a link if the site has a page of it
highlight_language = "text"
smartquotes = False  # options and quoted values can be copied as they are

myst_enable_extensions = ["dollarmath", "attrs_inline"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "misc.highlighting_failure", "toc.empty_glob"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports: list[str] = []
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"hebbseg {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_search_summary = False  # excerpts would be loaded from a server
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
