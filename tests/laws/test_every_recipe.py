"""Properties of every recipe."""

import math

import pytest
import torch

from bertwright.encoder.bottleneck import BottleneckBlock
from bertwright.encoder.encoder import Encoder, get_blocks
from bertwright.models import Model
from bertwright.models.model import DeviceBatch
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.objective import combined_visibility
from bertwright.testing import check_recipe
from full_suite import full_except
from toy_recipes import (
    LENGTH,
    SYSTEMS,
    TYPICAL_SYSTEMS,
    VOCABULARY,
    every_encoder,
    marked_systems,
    published,
    sparse,
    toy,
    toy_batches,
)

every_system = pytest.mark.parametrize("system", SYSTEMS)


def build_model(system: str, *overrides: str) -> Model:
    return Model.build(toy(system, *overrides), VOCABULARY)


def total_loss(model: Model, phase: int, dropout_rng: DropoutRng | None = None) -> torch.Tensor:
    return loss_of(model, phase, toy_batches(model.recipe, phase), dropout_rng)


def loss_of(
    model: Model, phase: int, batches: list[DeviceBatch], dropout_rng: DropoutRng | None = None
) -> torch.Tensor:
    objectives, total = model.recipe.objectives_of(phase), torch.zeros(())
    for batch in batches:
        for name, loss in model.losses(batch, objectives, dropout_rng).items():
            weight = (
                1.0
                if objectives[name].capabilities.is_classification
                else objectives[name].weight.at(0.0)
            )
            total = total + weight * loss.sum / loss.count
    return total


def random_tokens(num_sequences: int, length: int = LENGTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(5, VOCABULARY, (num_sequences, length), generator=generator)


@every_system
def test_laws_of_a_recipe(system):
    check_recipe(system, *sparse(system))


@every_encoder
def test_states_have_the_width_of_the_model(system):
    model = build_model(system)
    assert model(random_tokens(3)).shape == (3, LENGTH, model.recipe.encoder.width)


SUPPORTING_ANY_VISIBILITY = [
    s for s in SYSTEMS if published(s).encoder.mixer.supports_any_visibility
]
WITH_HEADS = [s for s in SYSTEMS if hasattr(published(s).encoder.mixer, "heads")]
WITH_KERNELS = [s for s in SYSTEMS if hasattr(published(s).encoder.mixer, "kernel")]


@pytest.mark.parametrize("system", marked_systems(SUPPORTING_ANY_VISIBILITY))
def test_packed_documents_equal_separate_documents(system):
    model = build_model(system, "encoder.visibility=document")
    token_ids = random_tokens(1)
    document_ids = torch.tensor([[0] * 10 + [1] * (LENGTH - 10)])
    position_ids = torch.tensor([[*range(10), *range(LENGTH - 10)]])
    packed = model(
        token_ids, TokenInfo(torch.arange(LENGTH)[None], position_ids, None, document_ids)
    )
    torch.testing.assert_close(packed[:, :10], model(token_ids[:, :10]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(packed[:, 10:], model(token_ids[:, 10:]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("system", marked_systems(WITH_KERNELS))
def test_fused_kernel_equals_the_reference(system):
    explicit = build_model(system, "encoder.mixer.kernel=explicit")
    fused = build_model(
        system, f"encoder.mixer.kernel={'sdpa' if system in WITH_HEADS else 'auto'}"
    )
    torch.testing.assert_close(
        explicit(random_tokens(2)), fused(random_tokens(2)), atol=1e-5, rtol=1e-5
    )


@every_encoder
def test_recording_changes_nothing(system):
    model = build_model(system)
    with model.record("*") as values:
        states = model(random_tokens(2))
    torch.testing.assert_close(states, model(random_tokens(2)), atol=1e-5, rtol=1e-5)
    assert torch.equal(values["output"], states)


@pytest.mark.parametrize("system", marked_systems(WITH_HEADS))
def test_attention_weights_can_be_recorded(system):
    model = build_model(system)
    with model.record("*.weights") as values:
        model(random_tokens(2))
    heads = model.recipe.encoder.width // 16
    assert values["blocks.1.attention.weights"].shape == (2, heads, LENGTH, LENGTH)


@pytest.mark.parametrize(
    "system", marked_systems(s for s in SUPPORTING_ANY_VISIBILITY if s in WITH_HEADS)
)
def test_masked_attention_is_zero(system):
    model = build_model(system)
    edges = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    edges[:, 3] = edges[5] = True
    with (
        model.record("blocks.1.attention.weights") as values,
        model.encoder.mask_attention(1, edges),
    ):
        model(random_tokens(2))
    weights = values["blocks.1.attention.weights"]
    assert not weights[..., edges].any()
    total = weights.sum(-1)
    other_positions = total[..., [position for position in range(LENGTH) if position != 5]]
    torch.testing.assert_close(other_positions, torch.ones_like(other_positions))


@pytest.mark.parametrize("system", marked_systems(WITH_HEADS))
def test_head_gates_and_their_gradients(system):
    model = build_model(system).double()
    name = "blocks.0.attention.context"
    open_gate = torch.ones(2, 1, 1, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(32, dtype=torch.float64)
    with model.encoder.gate({name: open_gate}):
        opened = model(random_tokens(2))
    torch.testing.assert_close(opened, model(random_tokens(2)))
    (gradient,) = torch.autograd.grad((opened @ weight).sum(), open_gate)
    step = 1e-6
    for head in range(2):
        moved = torch.ones(2, 1, 1, dtype=torch.float64)
        moved[head] += step
        with model.encoder.gate({name: moved}), torch.no_grad():
            change = (model(random_tokens(2)) @ weight).sum() - (opened @ weight).sum()
        assert float(change) / step == pytest.approx(float(gradient[head]), rel=1e-3, abs=1e-5)


@every_system
def test_every_parameter_has_a_gradient(system):
    # The last block computes only output positions: some of them must be global.
    rules = "[{kind: window, size: 3}, {kind: global, first: 12}]"
    model = build_model(
        system, *([f"encoder.visibility.rules={rules}"] if system == "longformer" else [])
    )
    for phase in range(len(model.recipe.phases)):
        total_loss(model, phase).backward()
    decoder = model.recipe.decoder
    reads_vector = decoder is not None and decoder.vector_pooling is not None
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # A softmax over a single vector is 1, whatever the query.
        is_unused = reads_vector and "cross_attention.projection" in name
        assert bool(parameter.grad.abs().sum() > 0) is not is_unused, name


@every_system
def test_untrained_loss_is_that_of_chance(system):
    model = build_model(system, "encoder.initialisation={kind: published, std: 0.01}")
    # With 40 token ids and no transform, hidden states reveal unchanged tokens.
    tolerance = 0.025 if getattr(model.recipe.output, "transform", True) else 0.03
    for phase in range(len(model.recipe.phases)):
        objectives = model.recipe.objectives_of(phase)
        for batch in toy_batches(model.recipe, phase):
            with torch.no_grad():
                losses = model.losses(batch, objectives)
            for name, loss in losses.items():
                if not objectives[name].capabilities.is_classification:
                    continue
                num_classes = objectives[name].num_classes(VOCABULARY)
                assert float(loss.sum) / loss.count == pytest.approx(
                    math.log(num_classes), rel=tolerance
                )


# The loss of word vectors has a positive minimum, as a word may be both a context and noise.
WITH_CLASSES = [
    s
    for s in SYSTEMS
    if any(o.capabilities.is_classification for o in published(s).objectives.values())
]


@pytest.mark.parametrize("system", full_except(WITH_CLASSES, TYPICAL_SYSTEMS))
def test_model_overfits_one_batch(system):
    model = build_model(system, "encoder.initialisation={kind: width-aware}", "output.smoothing=0")
    phase = len(model.recipe.phases) - 1
    # Bounded states need larger weights for the same logits.
    rate = 2e-2 if model.recipe.encoder.mixer.is_recurrent else 5e-3
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    batches = toy_batches(model.recipe, phase)
    loss, steps = math.inf, 0
    while loss >= 0.3:
        assert steps < 120, f"the loss is {loss} after {steps} steps"
        optimiser.zero_grad()
        total = loss_of(model, phase, batches)
        total.backward()
        optimiser.step()
        loss, steps = float(total.detach()), steps + 1


@every_encoder
def test_residual_outputs_are_scaled_by_their_number(system):
    model = build_model(system, "encoder.initialisation={kind: width-aware}")
    roles = get_parameter_roles(model)
    for prefix, stack in model.named_modules():
        if not isinstance(stack, Encoder):
            continue
        blocks = get_blocks(stack)
        for number, block in enumerate(blocks):
            for name, weight in block.named_parameters(prefix=f"{prefix}.blocks.{number}"):
                if name not in roles or not roles[name].writes_residual:
                    continue
                writers = blocks
                if isinstance(block, BottleneckBlock) and not name.endswith(
                    f"{number}.output_projection.weight"
                ):
                    writers = block.sublayers
                elif not isinstance(block, BottleneckBlock):
                    writers = [
                        sublayer for outer_block in blocks for sublayer in outer_block.sublayers
                    ]
                expected = (weight.shape[1] * len(writers)) ** -0.5
                assert float(weight.detach().std()) == pytest.approx(expected, rel=0.15), name


@every_system
def test_dropout_depends_on_the_step(system):
    model = build_model(system, "encoder.dropout=0.1")
    with torch.no_grad():
        first, repeated, later = (
            float(total_loss(model, 0, DropoutRng.for_step(0, step))) for step in (1, 1, 2)
        )
    assert first == repeated != later


@every_system
def test_objectives_of_a_step_agree_on_visibility(system):
    recipe = toy(system)
    for phase in range(len(recipe.phases)):
        for group in recipe.objective_schedule(phase):
            combined_visibility(list(group.objectives.values()))


@every_encoder
def test_output_positions_select_from_all_states(system):
    recipe = toy(system)
    model = Model.build(recipe, VOCABULARY).double()
    token_ids, positions = random_tokens(3), torch.tensor([3, 0, LENGTH + 5, 3 * LENGTH - 1])
    for dropout_rng in (None, DropoutRng.for_step(0, step=1, first_sequence=8)):
        all_states = model.encoder(token_ids, dropout_rng=dropout_rng)
        selected_states = model.encoder(
            token_ids, dropout_rng=dropout_rng, output_positions=positions
        )
        torch.testing.assert_close(selected_states, all_states.flatten(0, 1)[positions])


@every_system
def test_losses_do_not_depend_on_output_positions(system, monkeypatch):
    model = build_model(system).double()
    for phase in range(len(model.recipe.phases)):
        roles = total_loss(model, phase, DropoutRng.for_step(0, step=1))
        with monkeypatch.context() as patched:
            patched.setattr(
                "bertwright.models.model._output_positions", lambda batch, objectives: None
            )
            torch.testing.assert_close(
                roles, total_loss(model, phase, DropoutRng.for_step(0, step=1))
            )
