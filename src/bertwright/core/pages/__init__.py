"""The style and the script that all HTML pages share: colours, tables, tabs and the theme."""

from importlib import resources


def read_page_file(package: str, name: str) -> str:
    """Return the text of a page, style or script that lies in a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def shared_style() -> str:
    """Return the CSS of all pages: light and dark colours, tables, tabs and form controls."""
    return read_page_file(__name__, "page.css")


def shared_script() -> str:
    """Return the JavaScript of all interactive pages: elements, tables, tabs and the theme."""
    return read_page_file(__name__, "page.js")
