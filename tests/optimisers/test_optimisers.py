"""Laws of the optimisers."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from toy import Net, net_roles
from transformers import Adafactor as StockAdafactor

from bertwright.encoder.roles import Role
from bertwright.optimisers.adafactor import Adafactor
from bertwright.optimisers.adam import Adam, AdamW
from bertwright.optimisers.descent import Adagrad, Sgd
from bertwright.optimisers.muon import Muon, orthogonal
from bertwright.optimisers.optimiser import Optimiser
from bertwright.optimisers.parameters import MasterParameters
from bertwright.optimisers.tensorwise import Lamb, StableAdamW

ONE = torch.tensor(1.0)


def gradients(
    net: nn.Module, step: int, parameters: MasterParameters | None = None
) -> dict[str, Tensor]:
    """Go back to random numbers of a step, which are the gradients then."""
    generator = torch.Generator().manual_seed(step)
    found = {
        name: torch.randn(p.shape, generator=generator).to(p.dtype)
        for name, p in net.named_parameters()
    }
    if parameters is None:
        net.zero_grad()
    else:
        parameters.clear_gradient()
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            (parameter * found[name]).sum().backward()
    return found


def after(optimiser: Optimiser, steps: int = 4, compiled: bool = False) -> list[Tensor]:
    net = Net()
    parameters = MasterParameters(net, net_roles(net), "float32")
    update = optimiser.build(parameters)
    if compiled:
        update.compile()
    for step in range(steps):
        gradients(net, step, parameters)
        update.step(parameters.step_gradient(), 0.5, ONE)
    return [p.detach() for p in net.parameters()]


TORCH_ADAM = {"betas": (0.8, 0.95), "eps": 1e-6}


def after_torch(
    kind: type[torch.optim.Optimizer], steps: int = 4, **settings: object
) -> list[Tensor]:
    net = Net()
    matrices = [p for p in net.parameters() if p.ndim == 2]
    rest = [p for p in net.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimiser = kind(groups, lr=0.02, **(settings or TORCH_ADAM))
    for step in range(steps):
        gradients(net, step)
        optimiser.step()
    return [p.detach() for p in net.parameters()]


SETTINGS = {"rate": 0.04, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-6, "decay": 0.1}


@pytest.mark.parametrize(("ours", "theirs"), [(AdamW, torch.optim.AdamW), (Adam, torch.optim.Adam)])
def test_adam_equals_the_one_of_torch(ours: type, theirs: type) -> None:
    for a, b in zip(after(ours(**SETTINGS)), after_torch(theirs), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "settings"),
    [
        (Sgd(rate=0.04, decay=0.1), torch.optim.SGD, {"momentum": 0.0}),
        (Sgd(rate=0.04, decay=0.1, momentum=0.8), torch.optim.SGD, {"momentum": 0.8}),
        (
            Adagrad(rate=0.04, decay=0.1, start=1.0),
            torch.optim.Adagrad,
            {"initial_accumulator_value": 1.0},
        ),
    ],
)
def test_descent_equals_that_of_torch(ours: Optimiser, theirs: type, settings: dict) -> None:
    for a, b in zip(after(ours), after_torch(theirs, **settings), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_without_bias_correction_the_first_step_is_what_bert_does() -> None:
    net = Net()
    before = net.enter.bias.detach().clone()
    parameters = MasterParameters(net, net_roles(net), "float32")
    update = AdamW(rate=0.1, bias_correction=False).build(parameters)
    gradient = gradients(net, 0, parameters)["enter.bias"]
    update.step(parameters.step_gradient(), 1.0, ONE)
    step = 0.1 * gradient / ((0.001 * gradient.square()).sqrt() + 1e-8)
    assert torch.allclose(net.enter.bias.detach(), before - 0.1 * step, atol=1e-6)


def written_out(parts: dict[str, int], corrected: bool, steps: int = 4) -> list[Tensor]:
    """LAMB, or StableAdamW where ``corrected``, tensor by tensor as the papers have them."""
    net = Net()
    moments = {
        name: (torch.zeros(p.shape), torch.zeros(p.shape)) for name, p in net.named_parameters()
    }
    for step in range(1, steps + 1):
        gradients(net, step - 1)
        for name, p in net.named_parameters():
            first, second = moments[name]
            first.mul_(0.8).add_(0.2 * p.grad)
            second.mul_(0.95).add_(0.05 * p.grad.square())
            whole = (p.data, p.grad, first, second)
            for weight, gradient, m, v in zip(
                *(t.chunk(parts.get(name, 1)) for t in whole), strict=True
            ):
                m_hat = m / (1 - 0.8**step) if corrected else m
                v_hat = v / (1 - 0.95**step) if corrected else v
                change = m_hat / (v_hat.sqrt() + 1e-6) + (0.1 * weight if p.ndim == 2 else 0)
                if corrected:
                    ratio = (gradient.square() / v_hat.clamp(min=1e-12)).mean().sqrt()
                    change = change / max(1.0, float(ratio))
                elif p.ndim == 2:
                    change = change * weight.norm() / change.norm()
                weight.sub_(0.02 * change)
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize(("kind", "corrected"), [(Lamb, False), (StableAdamW, True)])
def test_steps_are_scaled_by_canonical_tensor(kind: type, corrected: bool) -> None:
    parts = {name: role.parts for name, role in net_roles(Net()).items()}
    expected = written_out(parts, corrected)
    found = after(kind(**SETTINGS, bias_correction=corrected))
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(("theirs", "decay"), [("transformers", 0.0), ("torch", 0.1)])
def test_adafactor_equals_those_of_others_at_every_step(theirs: str, decay: float) -> None:
    """With a rate below 1 / sqrt(t), where the relative steps of all three are the same."""
    ours, other = Net(), Net()
    parameters = MasterParameters(ours, net_roles(ours), "float32")
    update = Adafactor(rate=0.04, decay=decay).build(parameters)
    matrices = {"params": [p for p in other.parameters() if p.ndim == 2], "weight_decay": decay}
    rest = {"params": [p for p in other.parameters() if p.ndim == 1], "weight_decay": 0.0}
    if theirs == "torch":
        optimiser = torch.optim.Adafactor([matrices, rest], lr=0.02, eps=(1e-15, 1e-3))
    else:
        optimiser = StockAdafactor([matrices, rest], lr=0.02, relative_step=False)
    for step in range(6):
        gradients(ours, step, parameters)
        gradients(other, step)
        update.step(parameters.step_gradient(), 0.5, ONE)
        optimiser.step()
        for a, b in zip(ours.parameters(), other.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-6)


def test_adafactor_as_it_is_written() -> None:
    """Algorithm 4 for each half of a fused projection, in float64, where the step is clipped."""
    linear = nn.Linear(3, 8, bias=False)
    parameters = MasterParameters(linear, {"weight": Role("matrix", 2)}, "float32")
    update = Adafactor(rate=0.1, clip_at=0.5).build(parameters)
    halves = linear.weight.detach().double().chunk(2)
    moments = [(torch.zeros(4).double(), torch.zeros(3).double()) for _ in halves]
    for t in range(1, 6):
        half_gradients = gradients(linear, t, parameters)["weight"].double().chunk(2)
        update.step(parameters.step_gradient(), 1.0, ONE)
        kept = 1 - t**-0.8
        for i, g in enumerate(half_gradients):
            r, c = moments[i]
            r = kept * r + (1 - kept) * (g**2 + 1e-30).mean(1)
            c = kept * c + (1 - kept) * (g**2 + 1e-30).mean(0)
            moments[i] = (r, c)
            u = g / (torch.outer(r, c) / r.mean()).sqrt()
            u = u / max(1.0, float(u.square().mean().sqrt()) / 0.5)
            halves[i].sub_(0.1 * max(1e-3, float(halves[i].square().mean().sqrt())) * u)
    assert torch.allclose(linear.weight.detach().double(), torch.cat(halves), atol=1e-6)


def test_adafactor_remembers_rows_and_columns_only() -> None:
    linear = nn.Linear(30, 50)
    roles = {"weight": Role("matrix"), "bias": Role("bias")}
    update = Adafactor().build(MasterParameters(linear, roles, "float32"))
    assert sum(moment.numel() for moment in update.state().values()) == 50 + 30 + 50 + 1


EVERY = [
    *(kind(**SETTINGS) for kind in (AdamW, Adam, Muon, Lamb, StableAdamW)),
    Adafactor(rate=0.04, decay=0.1),
    Sgd(rate=0.04, decay=0.1, momentum=0.8),
    Adagrad(rate=0.04, decay=0.1, start=0.0),
]


@pytest.mark.parametrize("optimiser", EVERY, ids=lambda o: o.kind)
def test_traced_equals_eager(optimiser: Optimiser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    for a, b in zip(after(optimiser), after(optimiser, compiled=True), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.compiler
def test_compiled_equals_eager() -> None:
    # Generating code takes long: it is done for one.
    [muon] = [optimiser for optimiser in EVERY if isinstance(optimiser, Muon)]
    for a, b in zip(after(muon), after(muon, compiled=True), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("optimiser", EVERY, ids=lambda o: o.kind)
def test_clipping_is_a_scale_of_the_gradient(optimiser: Optimiser) -> None:
    found: list[Tensor] = []
    for scale, clip in ((1.0, 0.25), (0.25, 1.0)):
        net = Net()
        parameters = MasterParameters(net, net_roles(net), "bf16")
        update = optimiser.build(parameters)
        gradients(net, 1, parameters)
        update.step(parameters.step_gradient() * scale, 1.0, torch.tensor(clip))
        found.append(parameters.master.clone())
    assert torch.allclose(found[0], found[1], atol=1e-6)


@pytest.mark.parametrize("optimiser", EVERY, ids=lambda o: o.kind)
def test_the_computing_copy_follows_the_master(optimiser: Optimiser) -> None:
    net = Net()
    parameters = MasterParameters(net, net_roles(net), "bf16")
    before = parameters.master.clone()
    update = optimiser.build(parameters)
    gradients(net, 0, parameters)
    update.step(parameters.step_gradient(), 1.0, ONE)
    assert torch.equal(parameters.compute, parameters.master.bfloat16())
    assert all(
        (s != before[v.start : v.stop].view(v.shape)).all()
        for v, s in zip(parameters.slots, parameters.state().values(), strict=True)
    )


def test_frozen_parameters_stay() -> None:
    net = Net()
    net.enter.weight.requires_grad_(False)
    before = net.enter.weight.detach().clone()
    parameters = MasterParameters(net, net_roles(net), "float32")
    update = AdamW(decay=0.5).build(parameters)
    update.step(torch.ones_like(parameters.gradient), 1.0, ONE)
    assert torch.equal(net.enter.weight.detach(), before)


class Levels(nn.Module):
    """A table, two blocks with a matrix and a bias each, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.table = nn.Embedding(7, 5)
        self.blocks = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.head = nn.Linear(5, 3)


LEVELS = {
    "table.weight": Role("table", depth=-1),
    **{f"blocks.{i}.weight": Role("matrix", depth=i) for i in range(2)},
    **{f"blocks.{i}.bias": Role("bias", depth=i) for i in range(2)},
    "head.weight": Role("matrix"),
    "head.bias": Role("bias"),
}


def moved(
    optimiser: Optimiser, trained: int | None = None, rates: list[float] | None = None
) -> dict[str, Tensor]:
    """By how much every parameter moves in the first step, at float64."""
    net = Levels()
    parameters = MasterParameters(net, LEVELS, "float32")
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    update = optimiser.build(parameters)
    if trained is not None:
        parameters.train_from(parameters.num_levels - trained)
    parameters.level_rates = rates
    generator = torch.Generator().manual_seed(0)
    update.step(torch.randn(len(parameters.gradient), generator=generator), 1.0, ONE)
    return {name: (p.detach() - before[name]).double() for name, p in net.named_parameters()}


@pytest.mark.parametrize("optimiser", EVERY, ids=lambda o: o.kind)
def test_rates_fall_from_level_to_level(optimiser: Optimiser) -> None:
    whole = moved(optimiser)
    falling = moved(optimiser.model_copy(update={"layer_decay": 0.5}))
    below = {"table": 3, "blocks.0": 2, "blocks.1": 1, "head": 0}
    for name, change in falling.items():
        factor = 0.5 ** below[name.rpartition(".")[0]]
        assert torch.allclose(change, factor * whole[name], atol=2e-7)
        assert change.any()


@pytest.mark.parametrize("optimiser", EVERY, ids=lambda o: o.kind)
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_a_level_may_have_a_rate_of_its_own(optimiser: Optimiser, decay: float) -> None:
    falling = optimiser.model_copy(update={"layer_decay": decay})
    rates = {"table": 0.0, "blocks.0": 0.1, "blocks.1": 2.0, "head": 0.0}
    whole = moved(falling)
    for name, change in moved(falling, rates=list(rates.values())).items():
        rate = rates[name.rpartition(".")[0]]
        assert torch.allclose(change, rate * whole[name], atol=4e-7)
        assert change.any() == (rate > 0)


@pytest.mark.parametrize("optimiser", EVERY, ids=lambda o: o.kind)
@pytest.mark.parametrize("trained", [1, 2, 4])
def test_levels_that_are_not_trained_are_not_touched(optimiser: Optimiser, trained: int) -> None:
    """Whatever stands in their gradient; the others move as they would have."""
    levels = ["head", "blocks.1", "blocks.0", "table"][:trained]
    whole = moved(optimiser)
    for name, change in moved(optimiser, trained).items():
        if name.rpartition(".")[0] in levels:
            assert torch.equal(change, whole[name])
        else:
            assert not change.any()


@pytest.mark.parametrize("optimiser", EVERY, ids=lambda o: o.kind)
@pytest.mark.parametrize("by_rate", [False, True])
def test_what_is_not_trained_leaves_no_trace_in_the_optimiser(
    optimiser: Optimiser, by_rate: bool
) -> None:
    net = Levels()
    parameters = MasterParameters(net, LEVELS, "float32")
    update = optimiser.build(parameters)
    if by_rate:
        parameters.level_rates = [0.0, 0.0, 0.1, 1.0]
    else:
        parameters.train_from(2)
    update.step(torch.ones_like(parameters.gradient), 1.0, ONE)
    for name, moment in update.state().items():
        frozen = name.endswith(("table.weight", "blocks.0.weight", "blocks.0.bias"))
        assert moment.any() != frozen, name


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 40), (2, 40, 16)])
def test_orthogonal_matrices_have_singular_values_near_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    found = orthogonal(matrices.bfloat16()).float()
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.4
    assert values.max() < 1.4
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    assert (found * (u @ v)).sum() / found.norm() / (u @ v).norm() > 0.95


def test_a_fused_projection_is_orthogonalised_part_by_part() -> None:
    moved: list[Tensor] = []
    for parts in (1, 2):
        linear = nn.Linear(8, 16, bias=False)
        with torch.no_grad():
            linear.weight.zero_()
        parameters = MasterParameters(linear, {"weight": Role("matrix", parts)}, "float32")
        update = Muon(matrix_rate=1.0, decay=0).build(parameters)
        gradients(linear, 5, parameters)
        update.step(parameters.step_gradient(), 1.0, ONE)
        moved.append(linear.weight.detach().clone())
    halves = moved[1].chunk(2)
    for half in halves:
        assert torch.linalg.svdvals(half).min() > 0.4
    assert not torch.allclose(moved[0], moved[1], atol=0.1)
