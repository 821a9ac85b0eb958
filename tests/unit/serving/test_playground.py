"""The playground and the API documentation in a browser."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from playwright.sync_api import expect

from bertwright.models.text_model import TextModel
from bertwright.serving.app import create_app
from bertwright.serving.page_files import PAGE_FILES
from bertwright.serving.server import DrainingServer, listen, server_address
from bertwright.serving.settings import API_KEY_VARIABLE, ServingSettings
from bertwright.tasks.conformal.calibration import labelled_scores
from small_tasks import classes, numbers
from web_pages import quiet_page, require_contrast

KEY = "a-key-that-is-long-enough"

# Quotes, a backslash, a tag and characters outside of the basic plane, for the copied requests.
ODD_TEXT = 'The old bird\'s "tree" \\ <b>$HOME</b> \U0001f426 red'

LANGUAGES = ("python", "curl") if shutil.which("curl") else ("python",)


@contextmanager
def serve(models: Mapping[str, TextModel], **settings: Any) -> Iterator[str]:
    """Serve models in a thread; return the URL."""
    app = create_app(models, ServingSettings(**settings))
    with listen("127.0.0.1", 0, 30) as listening:
        server = DrainingServer(app, 30)
        thread = threading.Thread(target=server.run, args=([listening],))
        url = server_address(listening)
        thread.start()
        yield url
        app.state.admission.close()
        thread.join(20)


@pytest.fixture(scope="module")
def address(encoder, task_models, translator, graph) -> Iterator[str]:
    """The URL of a server of models of every kind that requires a key."""
    models = {"encoder": encoder, **task_models, "translator": translator, "graph": graph}
    with serve(models, api_keys=frozenset({KEY})) as url:
        yield url


@pytest.fixture(scope="module")
def open_address(encoder) -> Iterator[str]:
    """The URL of a server of one model that requires no key."""
    with serve({"encoder": encoder}, max_text_tokens=16) as url:
        yield url


def call(address: str, endpoint: str, body: Mapping[str, Any]) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = Request(f"{address}/{endpoint}", json.dumps(body).encode(), headers)
    with urlopen(request) as response:
        return json.load(response)


def enter_key(page, address: str) -> None:
    page.goto(address)
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    page.locator("#models label").first.wait_for()


def run(page) -> None:
    page.click("#run")
    expect(page.locator("#status")).to_have_text("Done.")


def shown_numbers(page, selector: str = "#result td.number") -> list[float]:
    return [float(text) for text in page.locator(selector).all_inner_texts()]


def check_masks(page, result) -> None:
    tokens = page.locator("#result tbody td:first-child").all_inner_texts()
    assert tokens == [prediction["token"] for prediction in result[0][0] + result[0][1]]
    probabilities = [prediction["probability"] for prediction in result[0][0] + result[0][1]]
    np.testing.assert_allclose(shown_numbers(page), probabilities, atol=6e-5)


def check_labels(page, result) -> None:
    labels = page.locator("#result tbody td:first-child").all_inner_texts()
    assert labels == [score["label"] for score in result]
    np.testing.assert_allclose(shown_numbers(page), [s["score"] for s in result], atol=6e-5)
    widths = page.locator(".bar span").evaluate_all("all => all.map((one) => one.offsetWidth)")
    assert widths == sorted(widths, reverse=True)


def check_number(page, result) -> None:
    score = result[0]["score"]
    np.testing.assert_allclose(shown_numbers(page, "#result strong"), [score], atol=6e-5)


def check_ranks(page, result) -> None:
    texts = ODD_TEXT, "red tree", "a bird"
    shown = page.locator("#result tbody td:first-child").all_inner_texts()
    assert shown == [texts[rank["index"]] for rank in result]
    np.testing.assert_allclose(shown_numbers(page), [rank["score"] for rank in result], atol=6e-5)


def check_tags(page, result) -> None:
    words = page.locator("#result .words > span")
    assert words.evaluate_all("all => all.map((one) => one.firstChild.data)") == ODD_TEXT.split()
    assert page.locator("#result .words small").all_inner_texts() == [t["tag"] for t in result[0]]
    coloured = words.evaluate_all("all => all.map((one) => one.classList.contains('hued'))")
    assert coloured == [tag["tag"] != "O" for tag in result[0]]
    types = {tag["tag"][2:] for tag in result[0]} - {""}
    assert set(page.locator("#result .legend li").all_inner_texts()) == types


def check_answer(page, result) -> None:
    (answer,) = result
    text = f"\U0001f426 {ODD_TEXT}"
    assert page.locator("#result mark").all_inner_texts() == [answer["answer"]]
    parts = page.locator("#result blockquote").evaluate("one => one.firstChild.data")
    assert parts == text[: answer["start"]]
    assert page.locator("#result blockquote").inner_text() == text
    np.testing.assert_allclose(
        shown_numbers(page, "#result strong"), [answer["probability"]], atol=6e-5
    )


def check_generated(page, result) -> None:
    assert page.locator("#result blockquote").inner_text() == result[0]["prediction"]


def check_cosines(page, result) -> None:
    vectors = np.array(result)
    expected = (vectors @ vectors.T).ravel()
    np.testing.assert_allclose(shown_numbers(page), expected, atol=6e-4)
    assert page.locator("#result th[scope=row]").first.inner_text() == f"1. {ODD_TEXT}"
    assert page.locator("#result b").count() == 0


TEXTS = f"{ODD_TEXT}\n\n red tree \na bird"
TEXT_LIST = [ODD_TEXT, "red tree", "a bird"]

CASES = [
    (
        "encoder",
        "fill-mask",
        {"text": f"The [MASK] bird [MASK] {ODD_TEXT}", "top_k": "3"},
        {"inputs": f"The [MASK] bird [MASK] {ODD_TEXT}", "top_k": 3},
        check_masks,
    ),
    ("sentiment", "predict", {"text": ODD_TEXT}, {"inputs": ODD_TEXT}, check_labels),
    ("topics", "predict", {"text": ODD_TEXT}, {"inputs": ODD_TEXT}, check_labels),
    (
        "pairs",
        "predict",
        {"text": ODD_TEXT, "pair": "A tree"},
        {"inputs": [ODD_TEXT, "A tree"]},
        check_labels,
    ),
    ("number", "predict", {"text": ODD_TEXT}, {"inputs": ODD_TEXT}, check_number),
    (
        "similarity",
        "predict",
        {"text": ODD_TEXT, "pair": "A tree"},
        {"inputs": [ODD_TEXT, "A tree"]},
        check_number,
    ),
    (
        "rank",
        "rerank",
        {"query": "a bird", "texts": TEXTS},
        {"query": "a bird", "texts": TEXT_LIST},
        check_ranks,
    ),
    ("tagger", "tag", {"text": ODD_TEXT}, {"inputs": ODD_TEXT}, check_tags),
    (
        "reader",
        "answer",
        {"question": "a tree", "text": f"\U0001f426 {ODD_TEXT}"},
        {"inputs": [{"question": "a tree", "text": f"\U0001f426 {ODD_TEXT}"}]},
        check_answer,
    ),
    ("translator", "generate", {"text": ODD_TEXT}, {"inputs": ODD_TEXT}, check_generated),
    ("graph", "embed", {"texts": TEXTS}, {"inputs": TEXT_LIST}, check_cosines),
]


def test_every_capability_shows_the_values_of_the_api(address: str, browser) -> None:
    with quiet_page(browser, address, "401") as page:
        enter_key(page, address)
        listed = page.locator("#models input").evaluate_all("all => all.map((one) => one.value)")
        assert set(listed) == {"similarity", *(name for name, *_ in CASES)}
        for model, endpoint, fields, body, check in CASES:
            page.check(f'#models input[value="{model}"]')
            page.click(f"#tab-{endpoint}")
            for name, value in fields.items():
                page.fill(f"[name={name}]", value)
            run(page)
            check(page, call(address, endpoint, {**body, "model": model}))
        assert page.locator("#capabilities [role=tab]").all_inner_texts() == ["Compare texts"]


def test_a_calibrated_model_shows_its_sets_and_intervals(task_models, browser) -> None:
    models = {name: copy(task_models[name]) for name in ("sentiment", "number")}
    for model, examples in zip(models.values(), (classes(), numbers()), strict=True):
        model.conformal = labelled_scores(model, examples).calibrate()
    with serve(models) as url, quiet_page(browser, url) as page:
        page.goto(url)
        page.locator("#models label").first.wait_for()
        page.click("#tab-classify")
        page.fill("[name=text]", "red bird")
        page.fill("[name=coverage]", "0.8")
        run(page)
        result = call(url, "classify", {"inputs": "red bird", "coverage": 0.8})
        assert page.locator("#result strong").inner_text() == (
            ", ".join(result["set"]) or "none fits"
        )
        labels = page.locator("#result tbody td:first-child").all_inner_texts()
        assert labels == sorted(labels, key=lambda label: -result["probabilities"][label])
        page.check('#models input[value="number"]')
        page.fill("[name=text]", "red bird")
        run(page)
        body = {"inputs": "red bird", "coverage": 0.8, "model": "number"}
        result = call(url, "classify", body)
        expected = [result["prediction"], *result["interval"]]
        np.testing.assert_allclose(shown_numbers(page, "#result strong"), expected, atol=6e-4)


def test_copied_requests_run_and_get_the_same_answer(address: str, browser, tmp_path: Path) -> None:
    environment = {**os.environ, API_KEY_VARIABLE: KEY}
    with quiet_page(browser, address, "401") as page:
        enter_key(page, address)
        for model, endpoint, fields, body, _ in (CASES[0], CASES[6], CASES[8]):
            page.check(f'#models input[value="{model}"]')
            page.click(f"#tab-{endpoint}")
            for name, value in fields.items():
                page.fill(f"[name={name}]", value)
            expected = call(address, endpoint, {**body, "model": model})
            for language in LANGUAGES:
                page.click(f"#language-{language}")
                page.click("#copy")
                expect(page.locator("#copied")).to_have_text("Copied.")
                code = page.evaluate("navigator.clipboard.readText()")
                assert KEY not in code
                program = [sys.executable] if language == "python" else ["sh"]
                result = subprocess.run(
                    program, input=code, env=environment, capture_output=True, text=True, check=True
                )
                answer = json.loads(result.stdout) if language == "curl" else eval(result.stdout)
                assert answer == expected
        page.check('#models input[value="encoder"]')
        page.click("#tab-explore")
        for language in LANGUAGES:
            page.click(f"#language-{language}")
            code = page.locator("#code").inner_text()
            program = [sys.executable] if language == "python" else ["sh"]
            subprocess.run(
                program,
                input=code,
                env=environment,
                cwd=tmp_path,
                text=True,
                check=True,
                capture_output=True,
            )
            assert "encoder: attention" in (tmp_path / "view.html").read_text()
            (tmp_path / "view.html").unlink()


def test_everything_is_reached_by_keyboard(address: str, browser) -> None:
    with quiet_page(browser, address, "401") as page:
        focused = SimpleNamespace(
            id=lambda: page.evaluate("document.activeElement.id"),
            name=lambda: page.evaluate("document.activeElement.name ?? ''"),
            value=lambda: page.evaluate("document.activeElement.value ?? ''"),
        )
        press = page.keyboard.press
        page.goto(address)
        expect(page.locator("#server-status")).to_have_text("This server requires an API key.")
        assert focused.id() == "key"
        page.keyboard.type("wrong")
        press("Enter")
        expect(page.locator("#server-status")).to_have_text("The API key is wrong.")
        press("Control+a")
        page.keyboard.type(KEY)
        press("Enter")
        page.locator("#models label").first.wait_for()
        # Without a control that has the focus, the next one of the document gets it.
        press("Tab")
        while focused.name() != "model":
            press("Tab")
        assert focused.value() == "encoder"
        press("ArrowDown")
        expect(page.locator("#model-name")).to_have_text("sentiment")
        press("ArrowUp")
        expect(page.locator("#model-name")).to_have_text("encoder")
        press("Tab")
        assert focused.value() == "fill-mask"
        press("ArrowRight")
        assert focused.value() == "embed"
        press("ArrowLeft")
        press("Tab")
        assert focused.name() == "text"
        press("Control+a")
        page.keyboard.type("A [MASK] tree")
        press("Control+Enter")
        expect(page.locator("#status")).to_have_text("Done.")
        assert page.locator("#result table").count() == 1
        press("Tab")
        assert focused.name() == "top_k"
        press("Control+a")
        page.keyboard.type("2")
        press("Enter")
        expect(page.locator("#result tbody tr")).to_have_count(2)
        press("Tab")
        assert focused.id() == "run"
        press("Tab")
        press("Tab")
        assert focused.value() == "curl"
        press("ArrowRight")
        assert "import urllib.request" in page.locator("#code").inner_text()
        press("Tab")
        press("Space")
        expect(page.locator("#copied")).to_have_text("Copied.")
        assert '"A [MASK] tree"' in page.evaluate("navigator.clipboard.readText()")


def test_every_control_has_a_name_for_screen_readers(address: str, browser) -> None:
    with quiet_page(browser, address, "401") as page:
        enter_key(page, address)
        for model, endpoint, *_ in CASES:
            page.check(f'#models input[value="{model}"]')
            page.click(f"#tab-{endpoint}")
            snapshot = page.locator("body").aria_snapshot()
            assert not re.search(
                r"- (button|textbox|combobox|checkbox|radio|tab|link)(:| \[|$)",
                snapshot,
                re.MULTILINE,
            ), snapshot
            assert f'tabpanel "{page.locator(f"#tab-{endpoint}").inner_text()}"' in snapshot


def test_errors_are_shown_in_words(open_address: str, browser) -> None:
    with quiet_page(browser, open_address, "413", viewport={"width": 390, "height": 800}) as page:
        page.goto(open_address)
        page.locator("#models label").wait_for()
        assert page.locator("#key-form").is_hidden()
        run(page)
        page.fill("[name=text]", "bird [MASK] " * 20)
        page.click("#run")
        expect(page.locator("#status")).to_contain_text("tokens, the maximum is 16: shorten it")
        assert page.locator("#result").inner_text() == ""
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    with quiet_page(browser, open_address, "502") as page:
        page.goto(open_address)
        page.locator("#models label").wait_for()
        page.route("**/fill-mask", lambda route: route.fulfill(status=502, body="<html>"))
        page.click("#run")
        expect(page.locator("#status")).to_have_text("The server answered with status 502.")
    context = browser.new_context()
    page = context.new_page()
    page.route("**/v1/models", lambda route: route.abort())
    page.goto(open_address)
    expect(page.locator("#server-status")).to_have_text("The server cannot be reached.")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_both_themes(address: str, browser, scheme: str) -> None:
    with quiet_page(browser, address, "401", color_scheme=scheme) as page:
        enter_key(page, address)
        require_contrast(page)
        for model, endpoint, *_ in (*CASES[:2], *CASES[7:9], CASES[10]):
            page.check(f'#models input[value="{model}"]')
            page.click(f"#tab-{endpoint}")
            run(page)
            require_contrast(page)
        page.goto(f"{address}/docs")
        page.wait_for_selector("section")
        require_contrast(page)


def test_the_chosen_theme_stays_and_reaches_the_viewer(open_address: str, browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with quiet_page(browser, open_address, color_scheme="light") as page:
        page.goto(open_address)
        light = page.evaluate(background)
        page.select_option(".theme select", "dark")
        dark = page.evaluate(background)
        assert dark != light
        page.reload()
        assert page.evaluate(background) == dark
        page.click("#tab-explore")
        page.fill("[name=text]", "The red bird")
        run(page)
        frame = page.frame_locator("iframe")
        frame.locator("#from button", has_text="bird").wait_for()
        body = frame.locator("body")
        expect(body).to_have_css("background-color", dark)
        assert frame.locator(".theme").is_hidden()
        page.select_option(".theme select", "system")
        expect(body).to_have_css("background-color", light)


def test_the_viewer_has_no_access_to_the_page(open_address: str, browser) -> None:
    with quiet_page(browser, open_address) as page:
        page.goto(open_address)
        page.click("#tab-explore")
        page.fill("[name=text]", "The red bird")
        run(page)
        assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
        frame = page.frames[1]
        frame.locator("#from button").first.wait_for()
        assert frame.evaluate("origin") == "null"


def test_pages_may_load_only_files_of_the_server(serving) -> None:
    client = serving(api_keys=frozenset({KEY}))
    for path in PAGE_FILES:
        response = client.get(path)
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert not re.findall(r"(?:https?:)?//[a-z]|@import", response.text)
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "//" not in policy
        loaded = re.findall(r'(?:src|href)="([^"]+)"', response.text)
        assert all(f"/{name}" in PAGE_FILES for name in loaded if name.startswith("pages/"))
    assert client.get("/pages/other.js").status_code == 401
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/pages/page.js").headers["content-type"].startswith("text/javascript")


def test_the_documentation_shows_every_endpoint(open_address: str, browser) -> None:
    with quiet_page(browser, open_address) as page:
        page.goto(f"{open_address}/docs")
        page.wait_for_selector("section")
        headings = page.locator("h2").all_inner_texts()
        expected = {"POST /v1/embeddings", "POST /rerank", "GET /health", "ApiErrorBody"}
        assert expected <= set(headings)
        section = page.locator("section", has_text="POST /fill-mask").first
        assert "top_k" in section.inner_text()
