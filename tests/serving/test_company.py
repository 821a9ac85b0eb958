"""Who looks at the inside of an encoder is alone with it, however many threads its model has."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.serving import explorer
from bertwright.serving.company import Company

MOMENT_SECONDS = 0.3
"""In which whoever is not held back has long begun."""


@pytest.fixture
def threads() -> Any:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def entering(enter: Callable[[], Any], inside: Event, leave: Event) -> None:
    with enter():
        inside.set()
        assert leave.wait(20)


def test_many_are_together(threads: ThreadPoolExecutor) -> None:
    company, leave = Company(), Event()
    inside = [Event(), Event(), Event()]
    begun = [threads.submit(entering, company.together, own, leave) for own in inside]
    assert all(own.wait(20) for own in inside)
    leave.set()
    for own in begun:
        own.result(20)


def test_all_come_in_the_order_in_which_they_asked(threads: ThreadPoolExecutor) -> None:
    company = Company()
    names = ("first", "page", "other page", "late")
    inside, leave = ({name: Event() for name in names} for _ in range(2))

    def begin(name: str, enter: Callable[[], Any]) -> Any:
        return threads.submit(entering, enter, inside[name], leave[name])

    begun = [begin("first", company.together)]
    assert inside["first"].wait(20)
    begun.append(begin("page", company.alone))
    assert not inside["page"].wait(MOMENT_SECONDS)
    begun.append(begin("late", company.together))
    assert not inside["late"].wait(MOMENT_SECONDS)
    leave["first"].set()
    assert inside["page"].wait(20)
    begun.append(begin("other page", company.alone))
    assert not inside["late"].wait(MOMENT_SECONDS)
    assert not inside["other page"].is_set()
    leave["page"].set()
    assert inside["late"].wait(20)
    assert not inside["other page"].wait(MOMENT_SECONDS)
    for name in ("other page", "late"):
        leave[name].set()
    for own in begun:
        own.result(20)


def test_who_fails_leaves() -> None:
    company = Company()
    for enter in (company.alone, company.together, company.alone):
        with pytest.raises(ZeroDivisionError), enter():
            raise ZeroDivisionError


def test_a_page_sees_no_value_of_another_request(
    serving, encoder, threads: ThreadPoolExecutor, monkeypatch
) -> None:
    torch.set_num_threads(2)
    client, view_page = serving(), explorer.view_page
    alone = client.post("/explore", json={"text": "The red bird"}).text
    begun, passed = Event(), []

    def slowly(*given: Any) -> str:
        with encoder.record("*") as values:
            begun.set()
            time.sleep(MOMENT_SECONDS)
        passed.extend(values)
        return view_page(*given)

    monkeypatch.setattr(explorer, "view_page", slowly)
    page = threads.submit(client.post, "/explore", json={"text": "The red bird"})
    assert begun.wait(20)
    answer = client.post("/embed", json={"inputs": ["An old tree", "red"]})
    assert page.result(20).text == alone
    assert not passed
    expected = encoder.embed(["An old tree", "red"], normalise=True)
    np.testing.assert_allclose(np.array(answer.json()), expected, atol=1e-4)


def test_every_kind_of_batch_was_computed_before_by_a_thread_with_the_same_share(
    serving, encoder, monkeypatch
) -> None:
    torch.set_num_threads(2)
    kinds: list[tuple[int, bool, bool]] = []
    compute = encoder.states

    def noted(layers: Any, batch: Any, wanted: Any = None) -> Any:
        filled_up = batch.coordinates.document is not None
        kinds.append((torch.get_num_threads(), len(batch.lengths) > 1, filled_up))
        return compute(layers, batch, wanted)

    monkeypatch.setattr(encoder, "states", noted)
    client = serving()
    before = set(kinds)
    for texts in (["red"], ["red", "red"], ["red", "An old tree"]):
        assert client.post("/embed", json={"inputs": texts}).status_code == 200
    assert len(before) == 3
    assert set(kinds) == before
