"""Preparation on a Ray cluster of two nodes, with one killed, equals that of one machine."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertwright.core.errors import MissingExtra, UserError
from bertwright.core.files import file_digests
from bertwright.core.ray_cluster import map_on_ray
from bertwright.data import preparation
from bertwright.data.preparation import _DocumentEncoder, prepare
from bertwright.data.shards.dataset import REPORT_FILE
from bertwright.data.tokenization.tokenizer import Tokenizer
from small_text import stories

NODE: dict[str, Any] = {
    "num_cpus": 1,
    "object_store_memory": 80 << 20,
    "include_log_monitor": False,
}
HEAD: dict[str, Any] = {
    **NODE,
    "include_dashboard": False,
    "_system_config": {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500},
}


class Slow:
    """A function that returns its item and the node that computed it; it refuses one item."""

    def __call__(self, item: int) -> tuple[int, int]:
        if item == 1000:
            raise UserError("item 1000 is wrong")
        time.sleep(0.02)
        return item, os.getppid()


class SlowEncoder(_DocumentEncoder):
    """An encoder slow enough for a node to be busy when it is killed."""

    def __call__(self, item: Any) -> Any:
        time.sleep(0.2)
        return super().__call__(item)


def digests(folder: Path) -> dict[str, str]:
    return {Path(name).name: digest for name, digest in file_digests(folder).items()}


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_shards_are_the_same_after_a_node_is_killed(
    tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Importing it takes a while.
    import ray
    from ray.cluster_utils import Cluster

    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Story {n}. {story}" for n, story in enumerate(stories(600))))
    monkeypatch.setattr(preparation, "CHUNK_CHARACTERS", 1 << 12)
    prepare(text, tmp_path / "one", wordpiece, num_workers=1)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for this module
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    second = cluster.add_node(**NODE)
    busy: list[bool] = []

    def chunks_with_a_kill(documents: Any) -> Iterator[Any]:
        for number, chunk in enumerate(chunks(documents)):
            yield chunk
            if number > 6 and not any(busy):
                free = ray._private.state.available_resources_per_node()[second.node_id]
                busy.append(not free.get("CPU"))
                if busy[-1]:  # so it has a task, and perhaps results, that are lost
                    cluster.remove_node(second, allow_graceful=False)

    chunks = preparation._chunk_by_split
    monkeypatch.setattr(preparation, "_chunk_by_split", chunks_with_a_kill)
    monkeypatch.setattr(preparation, "_DocumentEncoder", SlowEncoder)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        nodes: set[int] = set()
        while len(nodes) < 2:
            results = list(map_on_ray(Slow, (), range(20)))
            assert [item for item, _ in results] == [*range(20)]
            nodes |= {node for _, node in results}
        prepare(text, tmp_path / "two", wordpiece, backend="ray")
        assert any(busy)
        assert sum(node["Alive"] for node in ray.nodes()) == 1
        with pytest.raises(UserError, match=r"^item 1000 is wrong$"):
            list(map_on_ray(Slow, (), [0, 1000, 1]))
    finally:
        ray.shutdown()
        cluster.shutdown()
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    assert one.pop(REPORT_FILE) != two.pop(REPORT_FILE), "a report has the seconds"
    assert one == two
    assert len(one) > 10


def test_missing_library_is_named(
    tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(stories(3)))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bertwright\[ray\]'"):
        prepare(text, tmp_path / "data", wordpiece, backend="ray")
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
