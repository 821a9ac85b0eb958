"""The pages of the server with their scripts and styles, and what they may load.

FastAPI's own pages are not used, since they load scripts from another server.
"""

import base64
import hashlib
from dataclasses import dataclass

from bertwright.analysis.viewer.page import viewer_script, viewer_style
from bertwright.core.pages import read_page_file, shared_script, shared_style


@dataclass(frozen=True)
class PageFile:
    """A file that browsers load."""

    content: str
    media_type: str


def _html(name: str) -> PageFile:
    return PageFile(read_page_file("bertwright.serving", f"pages/{name}.html"), "text/html")


def _script(name: str) -> PageFile:
    content = read_page_file("bertwright.serving", f"pages/{name}.js")
    return PageFile(content, "text/javascript")


def _style(name: str) -> PageFile:
    return PageFile(read_page_file("bertwright.serving", f"pages/{name}.css"), "text/css")


PAGE_FILES = {
    "/": _html("playground"),
    "/docs": _html("docs"),
    "/pages/page.css": PageFile(shared_style(), "text/css"),
    "/pages/page.js": PageFile(shared_script(), "text/javascript"),
    "/pages/playground.css": _style("playground"),
    **{
        f"/pages/{name}.js": _script(name)
        for name in ("results", "capabilities", "snippets", "playground", "docs")
    },
}
"""All files by path."""


def _sha256(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "connect-src 'self'",
        "img-src data:",
        # A frame with the attention viewer inherits the policy; its script and style are inline.
        f"script-src 'self' {_sha256(viewer_script())}",
        f"style-src 'self' {_sha256(viewer_style())}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""Pages load only files of this server, and run only the scripts of this package."""

PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Response headers of all files."""
