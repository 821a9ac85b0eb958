"""Sharpness: known eigenvalues, second derivatives by differences, and bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression import task_loss
from bertwright.compression.quantization import sharpness
from bertwright.compression.quantization.sharpness import (
    MixedPrecision,
    Sharpness,
    block_sharpness,
    top_eigenvalue,
)
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs.vectors.similarity import SimilarityOutput
from small_tasks import classes, numbers, similar, tagged

TASKS = {
    "class": (table_task("colours", Columns()), classes()),
    "tags": (tagging_task("colours"), tagged()),
    "number": (
        table_task("colours", Columns(), "number", ("negative-mean-squared-error",)),
        numbers(),
    ),
}
TASKS["similarity"] = (table_task("near", Columns(), SimilarityOutput(max_label=5)), similar())
QUICK = {"learning_rate": 3e-3, "dropout": 0.0, "compile": False, "batch_size": 8}


def fine_tuned(
    pretrained, kind: str = "class", system: str = "bert", epochs: int = 2
) -> FineTunedModel:
    task, examples = TASKS[kind]
    data = {"train": examples, "dev": examples}
    return finetune(pretrained(system), task, **data, epochs=epochs, **QUICK).model


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=6),
    st.sampled_from([-3.0, 2.0]),
    st.integers(0, 1000),
)
def test_power_iteration_returns_the_largest_eigenvalue(
    others: list[float], greatest: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.tensor([greatest, *others], dtype=torch.float64)
    size = len(spectrum)
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    matrix = basis @ torch.diag(spectrum) @ basis.T
    start = torch.randn(size, generator=generator, dtype=torch.float64)
    eigenvalue = top_eigenvalue(lambda vector: [matrix @ vector[0]], [start])
    assert eigenvalue == pytest.approx(greatest, rel=0.03)


def test_a_flat_loss_has_no_curvature() -> None:
    assert top_eigenvalue(lambda vector: [0 * vector[0]], [torch.ones(3)]) == 0


@pytest.mark.parametrize(
    ("system", "kind"),
    [("bert", "tags"), ("albert", "number"), ("elmo", "class")],
)
def test_second_derivatives_are_differences_of_gradients(
    pretrained, system: str, kind: str
) -> None:
    # The encoder in float64, the head in float32.
    model = fine_tuned(pretrained, kind, system, 1)
    model.task_model.double()
    batches = task_loss.example_batches(model, TASKS[kind][1], 16)
    blocks = sharpness._block_parameters(model)
    for block, parameters in blocks.items():
        generator = torch.Generator().manual_seed(block)
        vector = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]
        gradients = sharpness._block_gradients(batches, blocks)[block]
        product = sharpness._hessian_vector_product(gradients, parameters, vector)
        step, shifted = 1e-3, []
        for sign in (1, -1):
            with torch.no_grad():
                for parameter, direction in zip(parameters, vector, strict=True):
                    parameter.add_(direction, alpha=sign * step)
            shifted.append(sharpness._block_gradients(batches, blocks)[block])
            with torch.no_grad():
                for parameter, direction in zip(parameters, vector, strict=True):
                    parameter.add_(direction, alpha=-sign * step)
        ahead, behind, product = (
            torch.cat([part.detach().flatten() for part in parts]) for parts in (*shifted, product)
        )
        expected = (ahead - behind) / (2 * step)
        assert (product - expected).norm() < 2e-3 * expected.norm()


def test_gradients_are_those_of_the_mean_loss(pretrained) -> None:
    model = fine_tuned(pretrained, "tags", epochs=1)
    blocks = sharpness._block_parameters(model)
    (whole,) = task_loss.example_batches(model, TASKS["tags"][1], 1000)
    loss, count = whole.total()
    assert count > 1
    batches = task_loss.example_batches(model, TASKS["tags"][1], 3)
    for block, gradients in sharpness._block_gradients(batches, blocks).items():
        expected = torch.autograd.grad(loss / count, blocks[block], retain_graph=True)
        for gradient, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient.detach(), other, rtol=1e-3, atol=1e-6)


def test_losses_are_those_of_training(pretrained) -> None:
    model = fine_tuned(pretrained, "number")
    _, examples = TASKS["number"]
    batches = task_loss.example_batches(model, examples, 5)
    sums, counts = task_loss.losses_and_counts(batches)
    assert len(sums) == len(examples) == counts.sum()
    total = sum(float(batch.total()[0].detach()) for batch in batches)
    assert sums.sum() == pytest.approx(total, rel=1e-4)
    predictions = [float(prediction.value) for prediction in model.predict(examples)]
    labels = [float(example.label) for example in examples]
    deviation = torch.tensor(labels).std(correction=0)
    squares = torch.tensor([(a - b) ** 2 for a, b in zip(predictions, labels, strict=True)])
    torch.testing.assert_close(
        torch.from_numpy(sums).float(), squares / deviation**2, rtol=0.1, atol=0.05
    )


def test_sharpness_is_reproducible_and_changes_nothing(pretrained) -> None:
    model = fine_tuned(pretrained)
    before = {name: p.clone() for name, p in model.task_model.named_parameters()}
    first, second = (block_sharpness(model, classes(), 2) for _ in range(2))
    assert first == second
    assert [s.block for s in first] == [0, 1]
    assert all(s.deviation > 0 and s.gradient_norm > 0 for s in first)
    assert all(s.omega == abs(s.mean) + s.deviation for s in first)
    assert all(torch.equal(p, before[name]) for name, p in model.task_model.named_parameters())
    # Subsets take turns, and a single one has no deviation.
    halves = [block_sharpness(model, classes()[start::2], 1) for start in (0, 1)]
    for both, *single in zip(first, *halves, strict=True):
        mean = sum(s.gradient_norm for s in single) / 2
        assert both.gradient_norm == pytest.approx(mean, rel=1e-3)
        assert [s.deviation for s in single] == [0.0, 0.0]
        assert both.as_dict() == {
            "eigenvalue": both.mean,
            "deviation": both.deviation,
            "omega": both.omega,
            "gradient_norm": both.gradient_norm,
        }
    assert all(p.grad is None for p in model.task_model.parameters())
    assert len(block_sharpness(fine_tuned(pretrained, system="albert"), classes(), 1)) == 1
    assert {r.depth for r in get_parameter_roles(model.task_model.encoder).values()} >= {0, 1}


def test_subsets_are_of_the_encoded_task(pretrained) -> None:
    # The second of two subsets has no label that would do as a task of its own.
    model, (first, second) = fine_tuned(pretrained, "similarity", epochs=1), labels_apart()
    examples = [example for pair in zip(first, second, strict=True) for example in pair]
    assert [s.block for s in block_sharpness(model, examples, 2)] == [0, 1]


def labels_apart() -> tuple[list[Example], list[Example]]:
    """Return as many pairs with a high label as with a low one."""
    high = [example for example in similar() if example.label]
    low = [example for example in similar() if not example.label]
    size = min(len(high), len(low))
    return high[:size], low[:size]


def test_the_sharpest_blocks_have_more_bits() -> None:
    blocks = [Sharpness(n, mean, 0.1, 0.0) for n, mean in enumerate([-5.0, 1.0, 3.0, 2.0])]
    assert MixedPrecision().assign_bits(blocks, 4) == (3, 2, 3, 2)
    one_of_four = MixedPrecision(high_fraction=0.25, low_bits=4, high_bits=8)
    assert one_of_four.assign_bits(blocks, 4) == (8, 4, 4, 4)
    assert MixedPrecision(high_fraction=0).assign_bits(blocks, 4) == (2,) * 4
    # Blocks that share parameters share their bits.
    assert MixedPrecision(high_fraction=1).assign_bits(blocks[:1], 3) == (3, 3, 3)
    assert MixedPrecision(high_fraction=0.5).assign_bits([blocks[1], blocks[2]], 4) == (2, 2, 3, 3)
