"""Properties of the optimisers."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from transformers import Adafactor as StockAdafactor

from bertwright.modules.parameter_roles import ParameterRole
from bertwright.optimisers.adafactor import AdafactorConfig
from bertwright.optimisers.adam import AdamConfig, AdamWConfig
from bertwright.optimisers.gradient_descent import AdagradConfig, SGDConfig
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.muon import AdaMuonConfig, MuonConfig, orthogonalise
from bertwright.optimisers.optimiser import OptimiserConfig
from bertwright.optimisers.trust_ratio import LambConfig, StableAdamWConfig
from toy_training import Net, net_roles

ONE = torch.tensor(1.0)


def set_random_gradients(
    net: nn.Module, step: int, parameters: MasterParameters | None = None
) -> dict[str, Tensor]:
    """Set random gradients, seeded by the step, by a backward pass."""
    generator = torch.Generator().manual_seed(step)
    result = {
        name: torch.randn(p.shape, generator=generator).to(p.dtype)
        for name, p in net.named_parameters()
    }
    if parameters is None:
        net.zero_grad()
    else:
        parameters.zero_gradient()
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            (parameter * result[name]).sum().backward()
    return result


def parameters_after(
    config: OptimiserConfig, steps: int = 4, compiled: bool = False
) -> list[Tensor]:
    net = Net()
    parameters = MasterParameters(net, net_roles(net), "float32")
    optimiser = config.build(parameters)
    if compiled:
        optimiser.compile()
    for step in range(steps):
        set_random_gradients(net, step, parameters)
        optimiser.step(parameters.step_gradient(), 0.5, ONE)
    return [p.detach() for p in net.parameters()]


TORCH_ADAM = {"betas": (0.8, 0.95), "eps": 1e-6}


def parameters_after_torch(
    kind: type[torch.optim.Optimizer], steps: int = 4, **settings: object
) -> list[Tensor]:
    net = Net()
    matrices = [p for p in net.parameters() if p.ndim == 2]
    rest = [p for p in net.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    torch_optimiser = kind(groups, lr=0.02, **(settings or TORCH_ADAM))
    for step in range(steps):
        set_random_gradients(net, step)
        torch_optimiser.step()
    return [p.detach() for p in net.parameters()]


SETTINGS = {
    "learning_rate": 0.04,
    "beta_1": 0.8,
    "beta_2": 0.95,
    "epsilon": 1e-6,
    "weight_decay": 0.1,
}


@pytest.mark.parametrize(
    ("ours", "theirs"), [(AdamWConfig, torch.optim.AdamW), (AdamConfig, torch.optim.Adam)]
)
def test_adam_equals_torch(ours: type, theirs: type) -> None:
    for a, b in zip(
        parameters_after(ours(**SETTINGS)), parameters_after_torch(theirs), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "settings"),
    [
        (SGDConfig(learning_rate=0.04, weight_decay=0.1), torch.optim.SGD, {"momentum": 0.0}),
        (
            SGDConfig(learning_rate=0.04, weight_decay=0.1, momentum=0.8),
            torch.optim.SGD,
            {"momentum": 0.8},
        ),
        (
            AdagradConfig(learning_rate=0.04, weight_decay=0.1, start=1.0),
            torch.optim.Adagrad,
            {"initial_accumulator_value": 1.0},
        ),
    ],
)
def test_gradient_descent_equals_torch(ours: OptimiserConfig, theirs: type, settings: dict) -> None:
    for a, b in zip(
        parameters_after(ours), parameters_after_torch(theirs, **settings), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-6)


def test_first_step_without_bias_correction() -> None:
    net = Net()
    before = net.first.bias.detach().clone()
    parameters = MasterParameters(net, net_roles(net), "float32")
    optimiser = AdamWConfig(learning_rate=0.1, bias_correction=False).build(parameters)
    gradient = set_random_gradients(net, 0, parameters)["first.bias"]
    optimiser.step(parameters.step_gradient(), 1.0, ONE)
    step = 0.1 * gradient / ((0.001 * gradient.square()).sqrt() + 1e-8)
    assert torch.allclose(net.first.bias.detach(), before - 0.1 * step, atol=1e-6)


def reference_steps(parts: dict[str, int], corrected: bool, steps: int = 4) -> list[Tensor]:
    """Compute LAMB, or StableAdamW if ``corrected``, tensor by tensor as in the papers."""
    net = Net()
    moments = {
        name: (torch.zeros(p.shape), torch.zeros(p.shape)) for name, p in net.named_parameters()
    }
    for step in range(1, steps + 1):
        set_random_gradients(net, step - 1)
        for name, p in net.named_parameters():
            first, second = moments[name]
            first.mul_(0.8).add_(0.2 * p.grad)
            second.mul_(0.95).add_(0.05 * p.grad.square())
            full = (p.data, p.grad, first, second)
            for weight, gradient, m, v in zip(
                *(t.chunk(parts.get(name, 1)) for t in full), strict=True
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


@pytest.mark.parametrize(("kind", "corrected"), [(LambConfig, False), (StableAdamWConfig, True)])
def test_steps_are_scaled_per_canonical_tensor(kind: type, corrected: bool) -> None:
    parts = {name: role.num_parts for name, role in net_roles(Net()).items()}
    expected = reference_steps(parts, corrected)
    result = parameters_after(kind(**SETTINGS, bias_correction=corrected))
    for a, b in zip(result, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(("theirs", "decay"), [("transformers", 0.0), ("torch", 0.1)])
def test_adafactor_equals_other_implementations(theirs: str, decay: float) -> None:
    """With a learning rate below 1 / sqrt(t), where relative steps agree."""
    ours, other = Net(), Net()
    parameters = MasterParameters(ours, net_roles(ours), "float32")
    optimiser = AdafactorConfig(learning_rate=0.04, weight_decay=decay).build(parameters)
    matrices = {"params": [p for p in other.parameters() if p.ndim == 2], "weight_decay": decay}
    rest = {"params": [p for p in other.parameters() if p.ndim == 1], "weight_decay": 0.0}
    if theirs == "torch":
        torch_optimiser = torch.optim.Adafactor([matrices, rest], lr=0.02, eps=(1e-15, 1e-3))
    else:
        torch_optimiser = StockAdafactor([matrices, rest], lr=0.02, relative_step=False)
    for step in range(6):
        set_random_gradients(ours, step, parameters)
        set_random_gradients(other, step)
        optimiser.step(parameters.step_gradient(), 0.5, ONE)
        torch_optimiser.step()
        for a, b in zip(ours.parameters(), other.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-6)


def test_adafactor_equals_the_algorithm() -> None:
    """Algorithm 4 for each half of a fused projection, in float64, where the step is clipped."""
    linear = nn.Linear(3, 8, bias=False)
    parameters = MasterParameters(linear, {"weight": ParameterRole("matrix", 2)}, "float32")
    optimiser = AdafactorConfig(learning_rate=0.1, clip_at=0.5).build(parameters)
    halves = linear.weight.detach().double().chunk(2)
    moments = [(torch.zeros(4).double(), torch.zeros(3).double()) for _ in halves]
    for t in range(1, 6):
        half_gradients = set_random_gradients(linear, t, parameters)["weight"].double().chunk(2)
        optimiser.step(parameters.step_gradient(), 1.0, ONE)
        decay = 1 - t**-0.8
        for i, g in enumerate(half_gradients):
            r, c = moments[i]
            r = decay * r + (1 - decay) * (g**2 + 1e-30).mean(1)
            c = decay * c + (1 - decay) * (g**2 + 1e-30).mean(0)
            moments[i] = (r, c)
            u = g / (torch.outer(r, c) / r.mean()).sqrt()
            u = u / max(1.0, float(u.square().mean().sqrt()) / 0.5)
            halves[i].sub_(0.1 * max(1e-3, float(halves[i].square().mean().sqrt())) * u)
    assert torch.allclose(linear.weight.detach().double(), torch.cat(halves), atol=1e-6)


def test_adafactor_state_is_factored() -> None:
    linear = nn.Linear(30, 50)
    roles = {"weight": ParameterRole("matrix"), "bias": ParameterRole("bias")}
    optimiser = AdafactorConfig().build(MasterParameters(linear, roles, "float32"))
    assert sum(moment.numel() for moment in optimiser.state_dict().values()) == 50 + 30 + 50 + 1


CONFIGS = [
    *(
        kind(**SETTINGS)
        for kind in (
            AdamWConfig,
            AdamConfig,
            MuonConfig,
            AdaMuonConfig,
            LambConfig,
            StableAdamWConfig,
        )
    ),
    AdafactorConfig(learning_rate=0.04, weight_decay=0.1),
    SGDConfig(learning_rate=0.04, weight_decay=0.1, momentum=0.8),
    AdagradConfig(learning_rate=0.04, weight_decay=0.1, start=0.0),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda o: o.kind)
def test_traced_equals_eager(config: OptimiserConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    for a, b in zip(parameters_after(config), parameters_after(config, compiled=True), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.compiler
def test_compiled_equals_eager() -> None:
    # Compiling is slow: test one only.
    [muon] = [config for config in CONFIGS if type(config) is MuonConfig]
    for a, b in zip(parameters_after(muon), parameters_after(muon, compiled=True), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda o: o.kind)
def test_clipping_scales_the_gradient(config: OptimiserConfig) -> None:
    result: list[Tensor] = []
    for scale, clip in ((1.0, 0.25), (0.25, 1.0)):
        net = Net()
        parameters = MasterParameters(net, net_roles(net), "bf16")
        optimiser = config.build(parameters)
        set_random_gradients(net, 1, parameters)
        optimiser.step(parameters.step_gradient() * scale, 1.0, torch.tensor(clip))
        result.append(parameters.master.clone())
    assert torch.allclose(result[0], result[1], atol=1e-6)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda o: o.kind)
def test_compute_copy_follows_the_master(config: OptimiserConfig) -> None:
    net = Net()
    parameters = MasterParameters(net, net_roles(net), "bf16")
    before = parameters.master.clone()
    optimiser = config.build(parameters)
    set_random_gradients(net, 0, parameters)
    optimiser.step(parameters.step_gradient(), 1.0, ONE)
    assert torch.equal(parameters.compute, parameters.master.bfloat16())
    assert all(
        (s != before[v.start : v.stop].view(v.shape)).all()
        for v, s in zip(parameters.slots, parameters.state_dict().values(), strict=True)
    )


def test_frozen_parameters_do_not_change() -> None:
    net = Net()
    net.first.weight.requires_grad_(False)
    before = net.first.weight.detach().clone()
    parameters = MasterParameters(net, net_roles(net), "float32")
    optimiser = AdamWConfig(weight_decay=0.5).build(parameters)
    optimiser.step(torch.ones_like(parameters.gradient), 1.0, ONE)
    assert torch.equal(net.first.weight.detach(), before)


class Levels(nn.Module):
    """A table, two blocks with a matrix and a bias each, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.table = nn.Embedding(7, 5)
        self.blocks = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.head = nn.Linear(5, 3)


LEVELS = {
    "table.weight": ParameterRole("table", depth=-1),
    **{f"blocks.{i}.weight": ParameterRole("matrix", depth=i) for i in range(2)},
    **{f"blocks.{i}.bias": ParameterRole("bias", depth=i) for i in range(2)},
    "head.weight": ParameterRole("matrix"),
    "head.bias": ParameterRole("bias"),
}


def first_change(
    config: OptimiserConfig,
    trained: int | None = None,
    rates: list[float] | None = None,
    scale: float = 1.0,
) -> dict[str, Tensor]:
    """Return the change of every parameter in the first step, in float64."""
    net = Levels()
    parameters = MasterParameters(net, LEVELS, "float32")
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimiser = config.build(parameters)
    if trained is not None:
        parameters.freeze_below(parameters.num_levels - trained)
    parameters.level_factors = rates
    generator = torch.Generator().manual_seed(0)
    gradient = scale * torch.randn(len(parameters.gradient), generator=generator)
    optimiser.step(gradient, 1.0, ONE)
    return {name: (p.detach() - before[name]).double() for name, p in net.named_parameters()}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda o: o.kind)
def test_layer_decay(config: OptimiserConfig) -> None:
    full = first_change(config)
    falling = first_change(config.model_copy(update={"layer_decay": 0.5}))
    below = {"table": 3, "blocks.0": 2, "blocks.1": 1, "head": 0}
    for name, change in falling.items():
        factor = 0.5 ** below[name.rpartition(".")[0]]
        assert torch.allclose(change, factor * full[name], atol=2e-7)
        assert change.any()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda o: o.kind)
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_level_factors(config: OptimiserConfig, decay: float) -> None:
    falling = config.model_copy(update={"layer_decay": decay})
    rates = {"table": 0.0, "blocks.0": 0.1, "blocks.1": 2.0, "head": 0.0}
    full = first_change(falling)
    for name, change in first_change(falling, rates=list(rates.values())).items():
        rate = rates[name.rpartition(".")[0]]
        assert torch.allclose(change, rate * full[name], atol=4e-7)
        assert change.any() == (rate > 0)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda o: o.kind)
@pytest.mark.parametrize("trained", [1, 2, 4])
def test_frozen_levels_do_not_change(config: OptimiserConfig, trained: int) -> None:
    """Frozen levels ignore their gradient; the others change as before."""
    levels = ["head", "blocks.1", "blocks.0", "table"][:trained]
    full = first_change(config)
    for name, change in first_change(config, trained).items():
        if name.rpartition(".")[0] in levels:
            assert torch.equal(change, full[name])
        else:
            assert not change.any()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda o: o.kind)
@pytest.mark.parametrize("by_rate", [False, True])
def test_frozen_levels_have_no_optimiser_state(config: OptimiserConfig, by_rate: bool) -> None:
    net = Levels()
    parameters = MasterParameters(net, LEVELS, "float32")
    optimiser = config.build(parameters)
    if by_rate:
        parameters.level_factors = [0.0, 0.0, 0.1, 1.0]
    else:
        parameters.freeze_below(2)
    optimiser.step(torch.ones_like(parameters.gradient), 1.0, ONE)
    for name, moment in optimiser.state_dict().items():
        frozen = name.endswith(("table.weight", "blocks.0.weight", "blocks.0.bias"))
        assert moment.any() != frozen, name


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 40), (2, 40, 16)])
def test_orthogonalised_singular_values_are_near_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    result = orthogonalise(matrices.bfloat16()).float()
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.4
    assert values.max() < 1.4
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    assert (result * (u @ v)).sum() / result.norm() / (u @ v).norm() > 0.95


def test_fused_projection_is_orthogonalised_by_part() -> None:
    first_change: list[Tensor] = []
    for parts in (1, 2):
        linear = nn.Linear(8, 16, bias=False)
        with torch.no_grad():
            linear.weight.zero_()
        parameters = MasterParameters(linear, {"weight": ParameterRole("matrix", parts)}, "float32")
        optimiser = MuonConfig(matrix_learning_rate=1.0, weight_decay=0).build(parameters)
        set_random_gradients(linear, 5, parameters)
        optimiser.step(parameters.step_gradient(), 1.0, ONE)
        first_change.append(linear.weight.detach().clone())
    halves = first_change[1].chunk(2)
    for half in halves:
        assert torch.linalg.svdvals(half).min() > 0.4
    assert not torch.allclose(first_change[0], first_change[1], atol=0.1)


def adamuon_weight(steps: int, momentum: float, rate: float, decay: float) -> Tensor:
    """Compute AdaMuon on the two halves of a fused 12 x 4 matrix, as in the paper, in float64."""
    linear = nn.Linear(4, 12, bias=False)
    halves = list(linear.weight.detach().double().zero_().chunk(2))
    first, second = [0.0, 0.0], [0.0, 0.0]
    for step in range(steps):
        gradients = set_random_gradients(linear, step)["weight"].double().chunk(2)
        for i, gradient in enumerate(gradients):
            first[i] = momentum * first[i] + gradient
            x = first[i].sign()
            x = x / x.norm()
            for _ in range(5):
                x = 3.4445 * x - 4.7750 * (x @ x.T @ x) + 2.0315 * (x @ x.T @ x @ x.T @ x)
            second[i] = momentum * second[i] + (1 - momentum) * x**2
            adapted = x / (second[i].sqrt() + 1e-8)
            adapted = adapted * 0.2 * (6 * 4) ** 0.5 / adapted.norm()
            halves[i] = halves[i] - rate * (adapted + decay * halves[i])
    return torch.cat(halves)


def test_adamuon_equals_the_algorithm() -> None:
    linear = nn.Linear(4, 12, bias=False)
    with torch.no_grad():
        linear.weight.zero_()
    parameters = MasterParameters(linear, {"weight": ParameterRole("matrix", 2)}, "float32")
    config = AdaMuonConfig(matrix_learning_rate=0.1, momentum=0.8, weight_decay=0.3)
    optimiser = config.build(parameters)
    for step in range(6):
        set_random_gradients(linear, step, parameters)
        optimiser.step(parameters.step_gradient(), 0.5, ONE)
    expected = adamuon_weight(6, 0.8, 0.05, 0.3)
    torch.testing.assert_close(linear.weight.detach().double(), expected, atol=1e-6, rtol=1e-4)


def test_adamuon_does_not_depend_on_the_scale_of_gradients() -> None:
    changes = [
        first_change(AdaMuonConfig(weight_decay=0.0, epsilon=1e-30), scale=scale)["blocks.0.weight"]
        for scale in (1.0, 1e-6)
    ]
    assert torch.equal(*changes)
    rms = changes[0].square().mean().sqrt()
    assert float(rms) == pytest.approx(0.2 * AdaMuonConfig().matrix_learning_rate, rel=1e-5)
