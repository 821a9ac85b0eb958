"""The viewer: what the page holds is what the model does; in a browser every view shows it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Case
from bertwright.analysis.planted.attention import pointing
from bertwright.analysis.planted.models import SENTENCES, WORDS, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.analysis.viewer.page import packed, unpacked, write_view
from bertwright.analysis.viewer.values import guesses, set_neighbours, text_values
from bertwright.compression.static_table import static_table
from bertwright.errors import UserError
from bertwright.tasks.formats.examples import Example


def case(system: str = "bert", *changes: str) -> Case:
    subject = small_subject(system, *changes)
    return Case(subject, read_texts(subject, [Example(text) for text in SENTENCES]))


def held(page: Path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found is not None
    return json.loads(found[1])


def test_a_model_without_blocks_has_nothing_to_show(tmp_path: Path) -> None:
    whole = case()
    table = Subject("table", static_table(whole.subject.text_model, 4))
    with pytest.raises(UserError, match="table has no blocks"):
        write_view(Case(table, whole.texts), tmp_path / "page.html", "")
    assert table.lacks("blocks.*.attention.weights") == "a model without blocks"
    assert table.size == "no layers"


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_numbers_come_back_to_a_millionth(size: float) -> None:
    values = size * np.random.default_rng(0).normal(size=(3, 4, 5))
    found = unpacked(packed(values))
    np.testing.assert_allclose(found, values, rtol=0, atol=1e-6)
    assert found.min() == values.min()
    assert (unpacked(packed(np.ones((2, 2)))) == 1).all()


def test_numbers_that_span_much_come_back_as_32_bits() -> None:
    values = np.array([-1e7, 1.5, 1e7])
    np.testing.assert_allclose(unpacked(packed(values)), values, rtol=0, atol=2e7 / 2**32)


@pytest.mark.parametrize("system", ["bert", "gpt-2", "albert", "xlnet"])
@pytest.mark.processor
def test_what_is_shown_is_what_the_model_does(system: str) -> None:
    own = case(system)
    found = text_values(own, neurons=True)
    for text, values in zip(own.texts, found, strict=True):
        with own.subject.encoder.record("blocks.*.attention.weights") as weights, torch.no_grad():
            own.subject.encoder(torch.tensor([text.pieces]))
        for layer in range(2):
            expected = weights[f"blocks.{layer}.attention.weights"][0]
            np.testing.assert_allclose(values.arrays["weights"][layer], expected, atol=1e-6)
        size = len(text)
        if size <= 7:
            # The values of a head of eight numbers tell each of so few places.
            assert "effective" not in values.arrays
        assert values.arrays["rollout"].shape == (2, size, size)
        assert values.arrays["query"].shape == values.arrays["key"].shape == (2, 4, size, 8)
        assert values.arrays["lengths"].shape == (2, 4, size)


def test_guesses_are_those_of_the_place_alone() -> None:
    own = case()
    text = own.texts[0]
    found = guesses(own.subject, text)
    assert [each is None for each in found] == (text.word < 0).tolist()
    words = SENTENCES[0].split()
    asked = " ".join([*words[:2], "[MASK]", *words[3:]])
    expected = own.subject.text_model.fill_mask(asked)[0]
    assert found[3] is not None
    assert found[3].pieces == [guess.piece for guess in expected]
    assert found[3].chances == pytest.approx([g.probability for g in expected], rel=1e-5)


def test_nearest_words_are_the_same_words_before_the_blocks() -> None:
    own = case("bert", "encoder.positions={kind: none}")
    shown = text_values(own, neurons=False)
    words = set_neighbours(own, shown)
    for number, text in enumerate(shown):
        near, cosines = text.neighbours
        for word, spelled in enumerate(text.words):
            assert all(words[other][0] != number for other in near[:, word].ravel())
            if any(spelled == other and of != number for of, other in words):
                assert words[near[0, word, 0]][1] == spelled
                assert cosines[0, word, 0] == pytest.approx(1)


def test_a_page_holds_everything_and_asks_for_nothing(tmp_path: Path) -> None:
    own = case()
    write_view(replace(own, other=small_subject()), tmp_path / "view.html", "here", num_shown=2)
    page = (tmp_path / "view.html").read_text()
    assert not re.search(r'(src|href)\s*=\s*"(?!#)', page)
    data = held(tmp_path / "view.html")
    assert len(data["texts"]) == 2
    assert data["lacking"] == {"attention": None, "guesses": None, "neurons": None}
    arrays = text_values(own, neurons=True)[1].arrays
    for name, values in arrays.items():
        shown = unpacked(data["texts"][1]["arrays"][name])
        np.testing.assert_allclose(shown, values, rtol=0, atol=1e-6)


def test_texts_cannot_break_the_page(tmp_path: Path) -> None:
    subject = small_subject(words=(*WORDS, "</script>"))
    own = Case(subject, read_texts(subject, [Example("a </script> <b>")]))
    write_view(own, tmp_path / "view.html", "<i>")
    page = (tmp_path / "view.html").read_text()
    assert page.count("</script>") == 2
    assert "&lt;i&gt;" in page
    assert held(tmp_path / "view.html")["texts"]


def test_a_model_that_fills_no_places_says_so(tmp_path: Path) -> None:
    subject = small_subject("gpt-2")
    own = Case(subject, read_texts(subject, [Example(SENTENCES[0])]))
    write_view(own, tmp_path / "view.html", "")
    assert "comes next" in held(tmp_path / "view.html")["lacking"]["guesses"]


def test_lengths_are_shown_where_what_places_bring_adds_up(tmp_path: Path) -> None:
    gated = small_subject("bert", "encoder.mixer.gate=gelu")
    for own, shown in (
        (case(), True),
        (case("gpt-bert"), False),
        (replace(case(), other=gated), False),
    ):
        write_view(own, tmp_path / "view.html", "", num_shown=1)
        assert ("weights times length" in (tmp_path / "view.html").read_text()) == shown


def test_models_of_other_sizes_or_pieces_are_not_compared(tmp_path: Path) -> None:
    for other, words in (
        (small_subject("bert", "encoder.depth.layers=3"), "compare models of one size"),
        (small_subject(words=WORDS[:12]), "compare models with one vocabulary"),
    ):
        with pytest.raises(UserError, match=words):
            write_view(replace(case(), other=other), tmp_path / "view.html", "")
        assert not (tmp_path / "view.html").exists()


def test_twenty_sentences_of_six_layers_weigh_little(tmp_path: Path) -> None:
    subject = small_subject(
        "bert",
        "encoder.depth.layers=6",
        "encoder.width=384",
        "encoder.mixer.heads=12",
    )
    generator = np.random.default_rng(0)
    texts = [Example(" ".join(generator.choice(WORDS, 23))) for _ in range(20)]
    write_view(Case(subject, read_texts(subject, texts)), tmp_path / "view.html", "", num_shown=20)
    assert (tmp_path / "view.html").stat().st_size < 3_000_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_drawn_in_a_browser(tmp_path: Path, browser, scheme: str) -> None:
    own = case()
    with pointing(own.subject, {1: ("previous", "opening", "self", "end")}):
        write_view(own, tmp_path / "view.html", "made here", num_shown=3)
        values = text_values(own, neurons=True)[1].arrays
    page = browser.new_page(color_scheme=scheme)
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(error))
    page.goto((tmp_path / "view.html").as_uri())

    def state() -> dict:
        page.wait_for_function("document.body.dataset.drawn")
        return json.loads(page.evaluate("document.body.dataset.drawn"))

    assert state()["tab"] == "heads"
    page.select_option("#text", index=1)
    page.select_option("#layer", index=1)
    page.click('#from button[data-place="2"]')
    page.wait_for_function("JSON.parse(document.body.dataset.drawn).place === 2")
    cells = page.locator("#looked-at tbody td").all_text_contents()
    # Head 1 of layer 2 looks at the place before.
    assert cells[1:3] == ["1", "1.000"]
    for keyed, name, expected in (("ArrowRight", "place", 3), ("PageDown", "head", 1)):
        page.keyboard.press(keyed)
        page.wait_for_function(f"JSON.parse(document.body.dataset.drawn).{name} === {expected}")
    assert page.locator("#looked-at tbody td").all_text_contents()[1:3] == ["0", "1.000"]
    weights = values["weights"][1, 1]
    lengths = values["lengths"][1, 1]
    # A product is off by as much as each of its two numbers, times the other.
    for kind, expected, apart in (
        ("weights", weights, 1),
        ("effective", values.get("effective", values["weights"])[1, 1], 1),
        ("lengths", weights * lengths, 1 + lengths.max()),
        ("rollout", values["rollout"][1], 1),
    ):
        page.select_option("#kind", value=kind)
        shown = page.evaluate(
            "async (kind) => [...matrix((await arraysOf(1)).own, kind, 1, 1)]", kind
        )
        np.testing.assert_allclose(shown, expected.ravel(), rtol=0, atol=1e-6 * apart)
    page.click("#tab-model")
    page.select_option("#kind", value="weights")
    assert page.locator("#grid canvas").count() == 8
    page.click('#grid button[aria-label="layer 2, head 4"]')
    page.wait_for_function("JSON.parse(document.body.dataset.drawn).head === 3")
    assert state()["tab"] == "heads"
    page.click("#tab-neurons")
    scores = page.locator("#strips table:nth-of-type(2) td.number").all_text_contents()
    query, key = (values[name][1, 3] for name in ("query", "key"))
    expected = query[state()["place"]] @ key.T / 8**0.5
    np.testing.assert_allclose([float(score) for score in scores], expected, atol=2e-3)
    page.click("#tab-words")
    page.click('#sentence button[data-place="1"]')
    page.wait_for_selector("#of-word table")
    assert "what stands here" in page.locator("#of-word").inner_text()
    assert len(page.screenshot()) > 5_000
    assert asked == [(tmp_path / "view.html").as_uri()]
    assert not errors
    page.close()
