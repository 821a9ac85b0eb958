"""The viewer: the page holds the values of the model, and shows every view in a browser."""

import base64
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.viewer.page import pack_array, write_view
from bertwright.analysis.viewer.text_values import (
    compute_text_values,
    find_neighbours,
    predict_positions,
)
from bertwright.compression.vocabulary.static_embeddings import static_embedding_model
from bertwright.core.errors import UserError
from bertwright.tasks.formats.examples import Example
from experiments.analyses.attention import plant_attention
from experiments.analyses.models import SENTENCES, WORDS, small_model
from web_pages import quiet_page, require_contrast


def make_inputs(system: str = "bert", *changes: str) -> AnalysisInput:
    model = small_model(system, *changes)
    return AnalysisInput(model, encode_texts(model, [Example(text) for text in SENTENCES]))


def unpack_array(packed: Mapping[str, Any]) -> np.ndarray:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["values"])), np.uint8)
    planes = planes.reshape(-1, prod(packed["shape"]))
    steps = 256.0 ** np.arange(len(planes)) @ planes
    return (packed["low"] + steps * packed["step"]).reshape(packed["shape"])


def page_data(page: Path) -> dict:
    pattern = r'<script type="application/json" id="data">(.*?)</script>'
    match = re.search(pattern, page.read_text())
    assert match is not None
    return json.loads(match[1])


def test_a_model_without_blocks_is_refused(tmp_path: Path) -> None:
    inputs = make_inputs()
    table = AnalysedModel("table", static_embedding_model(inputs.model.text_model, 4))
    with pytest.raises(UserError, match="table has no blocks"):
        write_view(AnalysisInput(table, inputs.texts), tmp_path / "page.html", "")
    assert table.missing_taps("blocks.*.attention.weights") == "a model without blocks"
    assert table.size_description == "no layers"


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_arrays_are_restored_to_a_millionth(size: float) -> None:
    values = size * np.random.default_rng(0).normal(size=(3, 4, 5))
    restored = unpack_array(pack_array(values))
    np.testing.assert_allclose(restored, values, rtol=0, atol=1e-6)
    assert restored.min() == values.min()
    assert (unpack_array(pack_array(np.ones((2, 2)))) == 1).all()


def test_arrays_with_a_large_range_are_restored_to_32_bits() -> None:
    values = np.array([-1e7, 1.5, 1e7])
    np.testing.assert_allclose(unpack_array(pack_array(values)), values, rtol=0, atol=2e7 / 2**32)


@pytest.mark.parametrize("system", ["bert", "gpt-2", "albert", "xlnet"])
@pytest.mark.processor
def test_values_are_the_activations_of_the_model(system: str) -> None:
    inputs = make_inputs(system)
    by_text = compute_text_values(inputs, neurons=True)
    for text, values in zip(inputs.texts, by_text, strict=True):
        with inputs.model.encoder.record("blocks.*.attention.weights") as weights, torch.no_grad():
            inputs.model.encoder(torch.tensor([text.token_ids]))
        for layer in range(2):
            expected = weights[f"blocks.{layer}.attention.weights"][0]
            np.testing.assert_allclose(values.arrays["weights"][layer], expected, atol=1e-6)
        size = len(text)
        if size <= 7:
            # A head of eight dimensions determines the weights of so few keys.
            assert "effective" not in values.arrays
        assert values.arrays["rollout"].shape == (2, size, size)
        assert values.arrays["query"].shape == values.arrays["key"].shape == (2, 4, size, 8)
        assert values.arrays["norms"].shape == (2, 4, size)


def test_predictions_mask_their_position_only() -> None:
    inputs = make_inputs()
    text = inputs.texts[0]
    predictions = predict_positions(inputs.model, text)
    assert [p is None for p in predictions] == (text.word_ids < 0).tolist()
    words = SENTENCES[0].split()
    masked = " ".join([*words[:2], "[MASK]", *words[3:]])
    expected = inputs.model.text_model.fill_mask(masked)[0]
    third = predictions[3]
    assert third is not None
    assert third.tokens == [prediction.token for prediction in expected]
    probabilities = [prediction.probability for prediction in expected]
    assert third.probabilities == pytest.approx(probabilities, rel=1e-5)


def test_nearest_words_in_the_embeddings_are_the_same_words() -> None:
    inputs = make_inputs("bert", "encoder.positions={kind: none}")
    by_text = compute_text_values(inputs, neurons=False)
    words = find_neighbours(inputs, by_text)
    for number, text in enumerate(by_text):
        indices, cosines = text.neighbours
        for word, name in enumerate(text.words):
            assert all(words[other][0] != number for other in indices[:, word].ravel())
            if any(name == other and index != number for index, other in words):
                assert words[indices[0, word, 0]][1] == name
                assert cosines[0, word, 0] == pytest.approx(1)


def test_few_words_in_other_texts_are_all_neighbours() -> None:
    model = small_model()
    texts = [Example(" ".join(WORDS[:4])), Example(" ".join(WORDS[:2]))]
    inputs = AnalysisInput(model, encode_texts(model, texts))
    by_text = compute_text_values(inputs, neurons=False)
    find_neighbours(inputs, by_text)
    shapes = [text.neighbours[0].shape for text in by_text]
    assert shapes == [(3, 4, 2), (3, 2, 3)]
    assert all(np.isfinite(text.neighbours[1]).all() for text in by_text)


def test_a_page_is_complete_and_loads_nothing(tmp_path: Path) -> None:
    inputs = make_inputs()
    both = replace(inputs, other_model=small_model())
    write_view(both, tmp_path / "view.html", "here", max_texts=2)
    page = (tmp_path / "view.html").read_text()
    assert not re.search(r'(src|href)\s*=\s*"(?!#)', page)
    data = page_data(tmp_path / "view.html")
    assert len(data["texts"]) == 2
    assert data["unavailable"] == {"attention": None, "predictions": None, "neurons": None}
    arrays = compute_text_values(inputs, neurons=True)[1].arrays
    for name, values in arrays.items():
        restored = unpack_array(data["texts"][1]["arrays"][name])
        np.testing.assert_allclose(restored, values, rtol=0, atol=1e-6)


def test_texts_cannot_break_the_page(tmp_path: Path) -> None:
    model = small_model(words=(*WORDS, "</script>"))
    inputs = AnalysisInput(model, encode_texts(model, [Example("a </script> <b>")]))
    write_view(inputs, tmp_path / "view.html", "<i>")
    page = (tmp_path / "view.html").read_text()
    assert page.count("</script>") == 2
    assert "&lt;i&gt;" in page
    assert page_data(tmp_path / "view.html")["texts"]


def test_a_causal_model_has_no_masked_predictions(tmp_path: Path) -> None:
    model = small_model("gpt-2")
    inputs = AnalysisInput(model, encode_texts(model, [Example(SENTENCES[0])]))
    write_view(inputs, tmp_path / "view.html", "")
    assert "next token" in page_data(tmp_path / "view.html")["unavailable"]["predictions"]


def test_norms_are_shown_where_head_outputs_add_up(tmp_path: Path) -> None:
    gated = small_model("bert", "encoder.mixer.gate=gelu")
    for inputs, has_norms in (
        (make_inputs(), True),
        (make_inputs("gpt-bert"), False),
        (replace(make_inputs(), other_model=gated), False),
    ):
        write_view(inputs, tmp_path / "view.html", "", max_texts=1)
        assert ("weights times value norm" in (tmp_path / "view.html").read_text()) == has_norms


def test_models_of_other_sizes_or_vocabularies_are_not_compared(tmp_path: Path) -> None:
    for other, message in (
        (small_model("bert", "encoder.depth.layers=3"), "compare models of the same size"),
        (small_model(words=WORDS[:12]), "compare models with the same vocabulary"),
    ):
        with pytest.raises(UserError, match=message):
            write_view(replace(make_inputs(), other_model=other), tmp_path / "view.html", "")
        assert not (tmp_path / "view.html").exists()


@pytest.mark.full
def test_twenty_sentences_in_six_layers_make_a_small_page(tmp_path: Path) -> None:
    model = small_model(
        "bert",
        "encoder.depth.layers=6",
        "encoder.width=384",
        "encoder.mixer.heads=12",
    )
    generator = np.random.default_rng(0)
    texts = [Example(" ".join(generator.choice(WORDS, 23))) for _ in range(20)]
    write_view(
        AnalysisInput(model, encode_texts(model, texts)),
        tmp_path / "view.html",
        "",
        max_texts=20,
    )
    assert (tmp_path / "view.html").stat().st_size < 3_000_000


def drawn(page, **expected) -> dict:
    """Wait until the page shows the expected state; return the state."""
    shown = "Object.entries(expected).every(([name, value]) => state[name] === value)"
    page.wait_for_function(
        f"""(expected) => {{
            const state = JSON.parse(document.body.dataset.drawn ?? "null");
            return state !== null && {shown};
        }}""",
        arg=expected,
    )
    return json.loads(page.evaluate("document.body.dataset.drawn"))


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A page, and the values of its second text; layer 2 attends to known tokens."""
    file, inputs = tmp_path_factory.mktemp("view") / "view.html", make_inputs()
    with plant_attention(inputs.model, {1: ("previous", "opening", "self", "end")}):
        write_view(inputs, file, "made here", max_texts=3)
        values = compute_text_values(inputs, neurons=True)[1]
    return SimpleNamespace(url=file.as_uri(), arrays=values.arrays, tokens=values.tokens)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_shown_in_a_browser(view, browser, scheme: str) -> None:
    with quiet_page(browser, view.url, color_scheme=scheme) as page:
        page.goto(view.url)
        assert drawn(page)["tab"] == "heads"
        require_contrast(page)
        page.select_option("#text", index=1)
        page.select_option("#layer", index=1)
        page.click('#from button[data-position="2"]')
        drawn(page, position=2)
        # Head 1 attends to the previous token, head 2 to the first one, head 3 to the token itself.
        header = page.locator("#attention-of th").all_text_contents()
        assert header == ["number", "key", "head 1", "head 2", "head 3", "head 4"]
        rows = [
            row.split("\t")
            for row in page.locator("#attention-of tbody").inner_text().strip().split("\n")
        ]
        weights = {int(row[0]): [float(value) for value in row[2:]] for row in rows}
        for head, key in ((0, 2), (1, 1), (2, 3), (3, len(view.tokens))):
            assert weights[key][head] == 1.0
        norms = view.arrays["norms"][1, 1]
        # The error of a product is the error of each factor times the other one.
        for kind, expected, scale in (
            ("weights", view.arrays["weights"][1, 1], 1),
            ("effective", view.arrays.get("effective", view.arrays["weights"])[1, 1], 1),
            ("norms", view.arrays["weights"][1, 1] * norms, 1 + norms.max()),
            ("rollout", view.arrays["rollout"][1], 1),
        ):
            page.select_option("#kind", value=kind)
            shown = page.evaluate(
                "async (kind) => [...matrix((await arraysOf(1)).model, kind, 1, 1)]", kind
            )
            np.testing.assert_allclose(shown, expected.ravel(), rtol=0, atol=1e-6 * scale)
        page.click("#tab-model")
        page.select_option("#kind", value="weights")
        drawn(page, tab="model", kind="weights")
        require_contrast(page)
        assert page.locator("#grid canvas").count() == 8
        assert page.locator("#grid > span").all_text_contents() == [
            "layer, head", "1", "2", "3", "4", "1", "2",
        ]  # fmt: skip
        page.click('#grid button[aria-label="layer 2, head 4"]')
        state = drawn(page, tab="heads", layer=1, head=3)
        assert state["heads"] == [3]
        page.click("#tab-neurons")
        drawn(page, tab="neurons")
        require_contrast(page)
        scores = page.locator("#strips > :nth-child(2) td.number").all_text_contents()
        query, key = (view.arrays[name][1, 3] for name in ("query", "key"))
        expected = query[state["position"]] @ key.T / 8**0.5
        np.testing.assert_allclose([float(score) for score in scores], expected, atol=2e-3)
        page.click("#tab-words")
        page.click('#sentence button[data-position="1"]')
        page.wait_for_selector("#of-word table")
        require_contrast(page)
        assert "the actual token" in page.locator("#of-word").inner_text()


def test_heads_are_toggled_in_a_legend(view, browser) -> None:
    with quiet_page(browser, view.url) as page:
        page.goto(view.url)
        assert drawn(page)["heads"] == [0, 1, 2, 3]
        chips = page.locator("#legend [aria-pressed]")
        assert chips.all_text_contents() == ["head 1", "head 2", "head 3", "head 4"]
        colours = chips.evaluate_all(
            "all => all.map((chip) => getComputedStyle(chip, '::before').backgroundColor)"
        )
        assert len(set(colours)) == 4
        # A square has the colour of its head.
        assert page.locator("#to li").first.locator(".cell").count() == 4
        lines = page.evaluate("byId('lines').toDataURL()")
        chips.nth(1).press("Enter")
        drawn(page, head=1)
        assert page.evaluate("document.activeElement.textContent") == "head 2"
        assert drawn(page)["heads"] == [0, 2, 3]
        assert chips.nth(1).get_attribute("aria-pressed") == "false"
        assert page.evaluate("byId('lines').toDataURL()") != lines
        assert page.locator("#to-head .cell-number").all_text_contents() == ["1", "3", "4"]
        page.click("#legend button:text-is('none')")
        page.wait_for_function("byId('scale').textContent.startsWith('No head')")
        assert page.locator("#attention-of table").count() == 0
        page.click("#legend button:text-is('all')")
        page.wait_for_selector("#attention-of table")
        assert page.evaluate("byId('lines').toDataURL()") == lines


def test_pointing_shows_the_exact_weight(view, browser) -> None:
    with quiet_page(browser, view.url) as page:
        page.goto(view.url)
        page.select_option("#text", index=1)
        drawn(page, text=1)
        page.click('#from button[data-position="2"]')
        drawn(page, position=2)
        page.locator("#to li").nth(3).hover()
        tip = page.locator("#tip").inner_text().split("\n")
        assert tip[0] == "Layer 1, weights"
        assert tip[1] == f"query 3 “{view.tokens[2]}” to key 4 “{view.tokens[3]}”"
        expected = view.arrays["weights"][0, :, 2, 3]
        shown = [float(line.split(": ")[1]) for line in tip[2:]]
        np.testing.assert_allclose(shown, expected, atol=2e-6)
        box = page.locator("#lines").bounding_box()
        page.mouse.move(box["x"] + 2, box["y"] + 2.5 * 24)
        assert "query 3" in page.locator("#tip").inner_text()
        page.click("#tab-model")
        drawn(page, tab="model")
        canvas = page.locator('#grid button[aria-label="layer 2, head 2"] canvas')
        box, size = canvas.bounding_box(), len(view.tokens)
        page.mouse.move(box["x"] + box["width"] * 0.5 / size, box["y"] + box["height"] * 4.5 / size)
        assert "query 5" in page.locator("#tip").inner_text()
        assert f"key 1 “{view.tokens[0]}”: 1.000000" in page.locator("#tip").inner_text()


def test_arrow_keys_follow_the_text(browser, tmp_path: Path) -> None:
    model = small_model(words=(*WORDS, "ציפור", "אדומה"))
    texts = [Example(" ".join(WORDS[:3])), Example("ציפור אדומה")]
    write_view(AnalysisInput(model, encode_texts(model, texts)), tmp_path / "view.html", "")
    url = (tmp_path / "view.html").as_uri()
    with quiet_page(browser, url) as page:
        page.goto(url)
        drawn(page, position=0)
        for key, expected in (
            ("ArrowRight", {"position": 1}),
            ("ArrowDown", {"position": 2}),
            ("ArrowLeft", {"position": 1}),
            ("ArrowUp", {"position": 0}),
            ("ArrowUp", {"position": 0}),
            ("End", {"position": 4}),
            ("Home", {"position": 0}),
            ("Shift+ArrowDown", {"layer": 1}),
            ("Shift+ArrowRight", {"head": 1}),
            ("Shift+ArrowLeft", {"head": 0}),
            ("Shift+ArrowUp", {"layer": 0}),
        ):
            page.keyboard.press(key)
            drawn(page, **expected)
        page.select_option("#text", index=1)
        drawn(page, text=1)
        page.click("#tab-words")
        drawn(page, tab="words")
        assert page.locator("#sentence").get_attribute("dir") == "rtl"
        first, second = (
            page.locator(f'#sentence button[data-position="{n}"]').bounding_box()["x"]
            for n in (0, 1)
        )
        assert second < first
        page.focus('#sentence button[data-position="0"]')
        for key, expected in (("ArrowLeft", 1), ("ArrowDown", 2), ("ArrowRight", 1)):
            page.keyboard.press(key)
            drawn(page, position=expected)
        assert page.evaluate("document.activeElement.dataset.position") == "1"
        label = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label == "token 2 of 4: ציפור"


def test_differences_are_dashed(browser, tmp_path: Path) -> None:
    inputs = replace(make_inputs(), other_model=small_model("bert", "seed=3"))
    write_view(inputs, tmp_path / "view.html", "", max_texts=1)
    url = (tmp_path / "view.html").as_uri()
    with quiet_page(browser, url) as page:
        page.goto(url)
        page.select_option("#which", value="difference")
        drawn(page, which="difference")
        shown, both = page.locator("#to .cell.negative").count(), page.locator("#to .cell").count()
        assert 0 <= shown < both
        assert "Dashed is negative" in page.locator("#scale").inner_text()
