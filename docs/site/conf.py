"""Configuration of the site, which Sphinx builds from the pages in docs/: `cargo xtask book`."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

MANIFEST = tomllib.loads((HERE.parents[1] / "Cargo.toml").read_text())

project = "Crossdock"
release = version = MANIFEST["workspace"]["package"]["version"]
language = "en"
extensions = ["myst_parser", "sphinx_copybutton", "pages"]
root_doc = "index"
exclude_patterns = ["site"]

myst_enable_extensions = ["colon_fence", "fieldlist", "attrs_inline"]
myst_heading_anchors = 4
# These fences have no lexer, or contain more than one language.
suppress_warnings = ["misc.highlighting_failure"]

nitpicky = True
# Types of other libraries in signatures. The site has no inventories of other sites.
nitpick_ignore_regex = [("py:.*", r"(?!crossdock\.).*")]
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_here_doc_delimiter = "EOF"

html_theme = "furo"
html_title = f"Crossdock {version}"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0a5c9e",
        "color-brand-content": "#0a5c9e",
        "color-brand-visited": "#6b3fa0",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7cc0ff",
        "color-brand-content": "#7cc0ff",
        "color-brand-visited": "#c8a8ff",
    },
}
