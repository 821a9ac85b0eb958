"""Configuration of Sphinx: ``make docs``."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generate_reference import write_reference

from bertwright import __version__

project = "bertwright"
author = "the bertwright authors"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", ".jupyter_cache", "jupyter_execute", "examples", "ipython"]
templates_path: list[str] = []

html_theme = "furo"
html_title = f"bertwright {__version__}"
html_static_path = ["pictures"]
html_theme_options = {"navigation_with_keys": True}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]

nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
os.environ["IPYTHONDIR"] = str(Path(__file__).parent / "ipython")
# Kernels force colours; pages show plain text.
os.environ["TTY_COMPATIBLE"] = "0"

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_custom_sections = [("Errors", "returns_style")]
copybutton_prompt_text = r"\$ "

write_reference(Path(__file__).parent / "reference")
