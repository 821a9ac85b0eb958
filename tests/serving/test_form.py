"""The page at /: a visitor types a text and sees what the model does with it."""

import threading
from collections.abc import Iterator

import pytest

from bertwright.model.text_model import TextModel
from bertwright.serving.application import application
from bertwright.serving.server import Draining, address_of, listen
from bertwright.serving.settings import Settings

KEY = "a-key-that-is-long-enough"


@pytest.fixture
def address(encoder: TextModel) -> Iterator[str]:
    """A server in a thread, which asks for a key."""
    app = application({"encoder": encoder}, Settings(api_keys=frozenset({KEY})))
    with listen("127.0.0.1", 0, 30) as listening:
        server = Draining(app, 30)
        thread = threading.Thread(target=server.run, args=([listening],))
        where = address_of(listening)
        thread.start()
        yield where
        app.state.gate.close()
        thread.join(20)


def test_what_can_be_asked_is_shown_and_comes_from_here(address: str, browser) -> None:
    page = browser.new_page()
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(f"{address}/docs")
    page.wait_for_selector("section")
    headings = page.locator("h2").all_inner_texts()
    assert {"POST /v1/embeddings", "POST /rerank", "GET /health", "Refused"} <= set(headings)
    assert "top_k" in page.locator("section", has_text="POST /fill-mask").first.inner_text()
    assert asked
    assert all(url.startswith(address) for url in asked)
    assert not errors
    page.close()


def test_a_text_is_looked_at(address: str, browser) -> None:
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(address)
    page.fill("[name=text]", "The red bird")
    page.click("button")
    page.wait_for_function("document.querySelector('[role=status]').textContent.includes('key')")
    page.fill("[name=key]", KEY)
    page.click("button")
    shown = page.frame_locator("iframe")
    shown.locator("#from button", has_text="bird").wait_for()
    assert page.locator("[role=status]").inner_text() == ""
    page.fill("[name=text]", "bird " * 100)
    page.click("button")
    page.wait_for_function("document.querySelector('[role=status]').textContent.includes('64')")
    assert page.locator("iframe").count() == 0
    assert not errors
    page.close()
