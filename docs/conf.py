"""How the site is made of docs/: `make site` runs Sphinx with this file. Pages are MyST Markdown that stands alone."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "src"), str(ROOT)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
# What notebooks and commands of the site run with: one thread each, and no weights or data fetched.
os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}

# Nor does a person's own IPython have a say in them. That each kernel begins, and listens on this machine, is not told.
KERNELS = ROOT / "build" / "ipython" / "profile_default" / "ipython_kernel_config.py"
KERNELS.parent.mkdir(parents=True, exist_ok=True)
KERNELS.write_text("c.IPKernelApp.log_level = 40\n", encoding="utf-8")
os.environ["IPYTHONDIR"] = str(KERNELS.parents[1])
logging.getLogger("traitlets").setLevel(logging.WARNING)

import cutaway  # noqa: E402

project, author, copyright = "Cutaway", "the Cutaway authors", "the Cutaway authors. Apache-2.0"
version = release = cutaway.__version__
root_doc, language = "index", "en"
exclude_patterns = ["extensions", "cluster", "gallery/notebooks", "comparison.md"]

extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinxcontrib.katex",
    "extensions.sources",
    "extensions.console",
    "extensions.drawings",
    "extensions.notebooks",
    "extensions.pictures",
    "extensions.index",
    "extensions.search",
    "extensions.reference",
]
highlight_language = "text"
# Quotes and dashes stay as they are typed: options such as --out are copied from the pages.
smartquotes = False

# Markdown as GitHub shows it, and mathematics between dollars.
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline", "attrs_block", "fieldlist"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
myst_dmath_allow_digits = False
myst_url_schemes = ["http", "https", "mailto", "source"]
myst_links_external_new_tab = False

# Notebooks run once: what they gave is kept until their code changes. An error ends the making of the site.
# CUTAWAY_DRAFT=1 runs nothing: for who writes a page and wants to see it.
nb_execution_mode = "off" if os.environ.get("CUTAWAY_DRAFT") else "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_render_text_lexer = "text"
nb_code_prompt_show, nb_code_prompt_hide = "Show the code", "Hide the code"

# Nothing comes from another host. KaTeX 0.16.22: its script is the package's, style and fonts are ours.
katex_css_path = "katex/katex.min.css"
katex_options = "throwOnError: true, strict: 'error'"

html_theme = "furo"
html_title = f"Cutaway {release}"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = True
html_show_sourcelink = False
html_last_updated_fmt = None
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1f66ad",
        "color-brand-content": "#1f66ad",
        "color-brand-visited": "#1f66ad",
        "color-background-primary": "#fdfdfc",
        "color-background-secondary": "#f4f5f5",
        "color-foreground-primary": "#16191d",
        "color-foreground-secondary": "#59616b",
        "color-foreground-muted": "#59616b",
        "font-stack": '-apple-system, "Segoe UI", Inter, Roboto, "Noto Sans", "Helvetica Neue", "Liberation Sans", '
        "Arial, sans-serif",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6db1f2",
        "color-brand-content": "#6db1f2",
        "color-brand-visited": "#6db1f2",
        "color-background-primary": "#13161a",
        "color-background-secondary": "#1c2026",
        "color-foreground-primary": "#eceff2",
        "color-foreground-secondary": "#a3abb5",
        "color-foreground-muted": "#a3abb5",
    },
    "navigation_with_keys": True,
}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .go"
