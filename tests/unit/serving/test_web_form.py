"""The explorer page and the API documentation in a browser."""

import threading
from collections.abc import Iterator

import pytest

from bertwright.models.text_model import TextModel
from bertwright.serving.app import create_app
from bertwright.serving.server import DrainingServer, listen, server_address
from bertwright.serving.settings import ServingSettings

KEY = "a-key-that-is-long-enough"


@pytest.fixture
def address(encoder: TextModel) -> Iterator[str]:
    """The URL of a server in a thread that requires a key."""
    app = create_app({"encoder": encoder}, ServingSettings(api_keys=frozenset({KEY})))
    with listen("127.0.0.1", 0, 30) as listening:
        server = DrainingServer(app, 30)
        thread = threading.Thread(target=server.run, args=([listening],))
        url = server_address(listening)
        thread.start()
        yield url
        app.state.admission.close()
        thread.join(20)


def test_the_documentation_is_self_contained(address: str, browser) -> None:
    page = browser.new_page()
    urls, errors = [], []
    page.on("request", lambda request: urls.append(request.url))
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(f"{address}/docs")
    page.wait_for_selector("section")
    headings = page.locator("h2").all_inner_texts()
    assert {"POST /v1/embeddings", "POST /rerank", "GET /health", "ApiErrorBody"} <= set(headings)
    assert "top_k" in page.locator("section", has_text="POST /fill-mask").first.inner_text()
    assert urls
    assert all(url.startswith(address) for url in urls)
    assert not errors
    page.close()


def test_a_text_is_explored(address: str, browser) -> None:
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto(address)
    page.fill("[name=text]", "The red bird")
    page.click("button")
    page.wait_for_function("document.querySelector('[role=status]').textContent.includes('key')")
    page.fill("[name=key]", KEY)
    page.click("button")
    frame = page.frame_locator("iframe")
    frame.locator("#from button", has_text="bird").wait_for()
    assert page.locator("[role=status]").inner_text() == ""
    page.fill("[name=text]", "bird " * 100)
    page.click("button")
    page.wait_for_function("document.querySelector('[role=status]').textContent.includes('64')")
    assert page.locator("iframe").count() == 0
    assert not errors
    page.close()
