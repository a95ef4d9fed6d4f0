"""Configure Sphinx, which builds the documents as one site: `make docs`.

The source folder is the root of the checkout, so that the documents can link to each other and to source files by the
paths that they have there.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "hack"))

project = "A kubelet in Python"
author = "the authors of this kubelet"
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "examples/**.md",
    "hack/**.md",
    "kubelet/**.md",
    "test/**.md",
]
exclude_patterns = [".*", "**/.*", "hack/dist-testing/build/**"]

extensions = ["myst_parser", "sidebyside.extension"]
# A link can name headings down to this level.
myst_heading_anchors = 4
# The extension gives links to source files the scheme `code`.
myst_url_schemes = {"http": None, "https": None, "mailto": None, "code": None}

html_title = project
html_theme = "furo"
html_static_path = [str(ROOT / "hack/sidebyside/static")]
templates_path = [str(ROOT / "hack/sidebyside/templates")]
html_css_files = ["side_by_side.css"]
html_js_files = ["side_by_side.js"]
html_show_sphinx = False
html_copy_source = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "names.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
