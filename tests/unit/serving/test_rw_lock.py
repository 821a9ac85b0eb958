"""Requests of several threads on one model, and the warm-up."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.serving.api import explorer

MOMENT_SECONDS = 0.3
"""Time in which another request is computed."""


@pytest.fixture
def threads() -> Any:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_a_page_records_no_activations_of_other_requests(
    serving, encoder, threads: ThreadPoolExecutor, monkeypatch
) -> None:
    torch.set_num_threads(2)
    client, render_view = serving(), explorer.render_view
    expected_page = client.post("/explore", json={"text": "The red bird"}).text
    has_started, recorded = Event(), []

    def render_slowly(*args: Any) -> str:
        with encoder.record("*") as values:
            has_started.set()
            time.sleep(MOMENT_SECONDS)
        recorded.extend(values)
        return render_view(*args)

    monkeypatch.setattr(explorer, "render_view", render_slowly)
    page = threads.submit(client.post, "/explore", json={"text": "The red bird"})
    assert has_started.wait(20)
    response = client.post("/embed", json={"inputs": ["An old tree", "red"]})
    assert page.result(20).text == expected_page
    assert not recorded
    expected = encoder.embed(["An old tree", "red"], normalise=True)
    np.testing.assert_allclose(np.array(response.json()), expected, atol=1e-4)


def test_the_warm_up_covers_every_kind_of_batch(serving, encoder, monkeypatch) -> None:
    torch.set_num_threads(2)
    kinds: list[tuple[int, bool, bool]] = []
    hidden_states = encoder.hidden_states

    def record(layers: Any, batch: Any, output_positions: Any = None) -> Any:
        is_padded = batch.token_info.document_ids is not None
        kinds.append((torch.get_num_threads(), len(batch.lengths) > 1, is_padded))
        return hidden_states(layers, batch, output_positions)

    monkeypatch.setattr(encoder, "hidden_states", record)
    client = serving()
    warmed_up = set(kinds)
    for texts in (["red"], ["red", "red"], ["red", "An old tree"]):
        assert client.post("/embed", json={"inputs": texts}).status_code == 200
    assert len(warmed_up) == 3
    assert set(kinds) == warmed_up
