"""How sharp the loss is: eigenvalues that are known, derivatives that can be checked, and bits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.quantisation import losses
from bertwright.compression.quantisation import sharpness as room
from bertwright.compression.quantisation.mixed import BySharpness
from bertwright.compression.quantisation.sharpness import Sharpness, sharpness, top_eigenvalue
from bertwright.encoder.roles import roles
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes, numbers, tagged

TASKS = {
    "class": (table_task("colours", Columns()), classes()),
    "tags": (tagging_task("colours"), tagged()),
    "number": (
        table_task("colours", Columns(), "number", ("negative-mean-squared-error",)),
        numbers(),
    ),
}
QUICK = {"rate": 3e-3, "dropout": 0.0, "compile": False, "batch": 8}


def tuned(pretrained, kind: str = "class", system: str = "bert", epochs: int = 2) -> FineTuned:
    task, examples = TASKS[kind]
    given = {"train": examples, "dev": examples}
    return finetune(pretrained(system), task, **given, epochs=epochs, **QUICK).model


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=6),
    st.sampled_from([-3.0, 2.0]),
    st.integers(0, 1000),
)
def test_power_iteration_finds_the_eigenvalue_of_the_greatest_size(
    others: list[float], greatest: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.tensor([greatest, *others], dtype=torch.float64)
    size = len(spectrum)
    turned = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    matrix = turned @ torch.diag(spectrum) @ turned.T
    start = torch.randn(size, generator=generator, dtype=torch.float64)
    found = top_eigenvalue(lambda vector: [matrix @ vector[0]], [start])
    assert found == pytest.approx(greatest, rel=0.03)


def test_a_flat_loss_has_no_curvature() -> None:
    assert top_eigenvalue(lambda vector: [0 * vector[0]], [torch.ones(3)]) == 0


@pytest.mark.parametrize(
    ("system", "kind"),
    [("bert", "tags"), ("albert", "number"), ("elmo", "class")],
)
def test_second_derivatives_are_those_of_the_loss(pretrained, system: str, kind: str) -> None:
    """By differences of gradients; the encoder in float64, the head in float32."""
    model = tuned(pretrained, kind, system, 1)
    model.net.double()
    batches = losses.asked(model, TASKS[kind][1], 16)
    blocks = room._by_block(model)
    for block, parameters in blocks.items():
        generator = torch.Generator().manual_seed(block)
        drawn = (torch.randn(p.shape, generator=generator) for p in parameters)
        vector = [own.to(p) for own, p in zip(drawn, parameters, strict=True)]
        slopes = room._slopes(batches, blocks)[block]
        found = room._multiplied(slopes, parameters, vector)
        step, moved = 1e-3, []
        for sign in (1, -1):
            with torch.no_grad():
                for own, along in zip(parameters, vector, strict=True):
                    own.add_(along, alpha=sign * step)
            moved.append(room._slopes(batches, blocks)[block])
            with torch.no_grad():
                for own, along in zip(parameters, vector, strict=True):
                    own.add_(along, alpha=-sign * step)
        ahead, behind, found = (
            torch.cat([each.detach().flatten() for each in own]) for own in (*moved, found)
        )
        expected = (ahead - behind) / (2 * step)
        assert (found - expected).norm() < 2e-3 * expected.norm()


def test_losses_are_those_of_training(pretrained) -> None:
    """And those of items by themselves are those of all together."""
    model = tuned(pretrained, "number")
    _, examples = TASKS["number"]
    batches = losses.asked(model, examples, 5)
    sums, counts = losses.sums_and_counts(batches)
    assert len(sums) == len(examples) == counts.sum()
    of_all = sum(float(batch.total()[0].detach()) for batch in batches)
    assert sums.sum() == pytest.approx(of_all, rel=1e-4)
    said = [float(each.answer) for each in model.predict(examples)]
    right = [float(example.label) for example in examples]
    deviation = torch.tensor(right).std(correction=0)
    squares = torch.tensor([(a - b) ** 2 for a, b in zip(said, right, strict=True)])
    torch.testing.assert_close(
        torch.from_numpy(sums).float(), squares / deviation**2, rtol=0.1, atol=0.05
    )


def test_what_is_found_of_blocks_is_the_same_again(pretrained) -> None:
    model = tuned(pretrained)
    before = {name: p.clone() for name, p in model.net.named_parameters()}
    first, second = (sharpness(model, classes(), 2) for _ in range(2))
    assert first == second
    assert [each.block for each in first] == [0, 1]
    assert all(each.deviation > 0 and each.gradient > 0 for each in first)
    assert all(each.omega == abs(each.mean) + each.deviation for each in first)
    assert all(torch.equal(p, before[name]) for name, p in model.net.named_parameters())
    assert all(p.grad is None for p in model.net.parameters())
    assert len(sharpness(tuned(pretrained, system="albert"), classes(), 1)) == 1
    assert {r.depth for r in roles(model.net.encoder).values()} >= {0, 1}


def test_the_sharpest_have_more_bits() -> None:
    found = [Sharpness(n, mean, 0.1, 0.0) for n, mean in enumerate([-5.0, 1.0, 3.0, 2.0])]
    assert BySharpness().among(found, 4) == (3, 2, 3, 2)
    assert BySharpness(share=0.25, low=4, high=8).among(found, 4) == (8, 4, 4, 4)
    assert BySharpness(share=0).among(found, 4) == (2,) * 4
    # Blocks that share what another has share its bits.
    assert BySharpness(share=1).among(found[:1], 3) == (3, 3, 3)
    assert BySharpness(share=0.5).among([found[1], found[2]], 4) == (2, 2, 3, 3)
