"""Properties of the flat parameters."""

import pytest
import torch
from torch import nn

from bertwright.core.errors import UserError
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.optimisers.master_parameters import ALIGNMENT, MasterParameters


class Small(nn.Module):
    """A table tied to an output, a matrix, a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(5)
        self.table = nn.Embedding(7, 5)
        self.matrix = nn.Linear(5, 5)
        self.output = nn.Linear(5, 7, bias=False)
        self.output.weight = self.table.weight

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.output(self.norm(self.matrix(self.table(index))))


ROLES = {
    "norm.weight": ParameterRole("norm"),
    "norm.bias": ParameterRole("bias"),
    "table.weight": ParameterRole("table"),
    "matrix.weight": ParameterRole("matrix"),
    "matrix.bias": ParameterRole("bias"),
}


@pytest.fixture(params=["float32", "bf16"])
def precision(request: pytest.FixtureRequest) -> str:
    return request.param


def test_parameters_keep_their_values_and_become_views(precision: str) -> None:
    model, plain = Small(), Small()
    plain.load_state_dict(model.state_dict())
    parameters = MasterParameters(model, ROLES, precision)
    for name, parameter in model.named_parameters():
        before = dict(plain.named_parameters())[name].detach()
        assert torch.equal(parameters.state_dict()[name], before)
        assert torch.equal(parameter.detach(), before.to(parameter.dtype))
    parameters.compute.zero_()
    assert all((p == 0).all() for p in model.parameters())


def test_order_of_groups(precision: str) -> None:
    parameters = MasterParameters(Small(), ROLES, precision)
    names = [slot.name for slot in parameters.slots]
    assert names[:2] == ["matrix.weight", "table.weight"]
    assert all(slot.start % ALIGNMENT == 0 for slot in parameters.slots)
    assert parameters.range("matrix").stop == parameters.range("table").start
    assert parameters.range("matrix", "table") == slice(0, 128)
    assert [slot.name for slot in parameters.trained_slots("table")] == ["table.weight"]


def test_gradients_are_in_the_flat_buffer(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)
    for _ in range(2):
        parameters.zero_gradient()
        model(torch.arange(7)).float().square().sum().backward()
    plain = Small()
    plain.load_state_dict(
        parameters.state_dict() | {"output.weight": parameters.state_dict()["table.weight"]}
    )
    plain(torch.arange(7)).square().sum().backward()
    flat = parameters.views(parameters.gradient)
    for name, parameter in plain.named_parameters():
        difference = (flat[name].float() - parameter.grad).norm() / parameter.grad.norm()
        assert difference < {"float32": 1e-6, "bf16": 0.02}[precision]


def test_tied_parameters_are_one_storage(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)
    assert "output.weight" not in parameters.state_dict()
    assert model.output.weight.data_ptr() == model.table.weight.data_ptr()


def test_frozen_parameters_are_last_without_gradient(precision: str) -> None:
    model = Small()
    model.table.weight.requires_grad_(False)
    parameters = MasterParameters(model, ROLES, precision)
    assert parameters.slots[-1].name == "table.weight"
    assert len(parameters.gradient) == parameters.num_trainable < len(parameters.master)
    model(torch.arange(7)).float().sum().backward()
    assert model.table.weight.grad is None
    assert parameters.views(parameters.step_gradient())["matrix.weight"].any()


def test_state_dict_round_trip(precision: str) -> None:
    parameters = MasterParameters(Small(), ROLES, precision)
    saved = {name: tensor.clone() for name, tensor in parameters.state_dict().items()}
    parameters.master.zero_()
    parameters.load_state_dict(saved)
    assert all(torch.equal(t, saved[n]) for n, t in parameters.state_dict().items())
    assert torch.equal(parameters.compute.float().bfloat16(), parameters.master.bfloat16())


def test_loading_mismatched_state_is_an_error() -> None:
    parameters = MasterParameters(Small(), ROLES, "float32")
    state = dict(parameters.state_dict())
    with pytest.raises(UserError, match="shape"):
        parameters.load_state_dict({**state, "norm.bias": torch.zeros(6)})
    del state["norm.bias"]
    with pytest.raises(UserError, match=r"norm\.bias"):
        parameters.load_state_dict(state)


def test_released_parameters_are_plain_float32(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)
    parameters.release()
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is None
        assert torch.equal(parameter.detach(), parameters.state_dict()[name])
    model(torch.arange(3)).sum().backward()


def backward_with_gradient(model: "Small", slope: float) -> None:
    """Backpropagate the same gradient to all parameters."""
    sum((p * slope).sum() for p in model.parameters()).backward()


def test_micro_batches_are_summed_in_float32() -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, "bf16")
    parameters.zero_gradient()
    for _ in range(3):
        backward_with_gradient(model, 1 + 2**-7)
        parameters.accumulate_gradient()
    result = parameters.step_gradient()
    assert result.dtype == torch.float32
    assert all((view == 3 + 3 * 2**-7).all() for view in parameters.views(result).values())
    parameters.zero_gradient()
    assert (parameters.step_gradient() == 0).all()


def test_single_micro_batch_after_several(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)

    def step(slopes: list[float]) -> set[float]:
        parameters.zero_gradient()
        for slope in slopes:
            backward_with_gradient(model, slope)
            if len(slopes) > 1:
                parameters.accumulate_gradient()
        views = parameters.views(parameters.step_gradient()).values()
        return {float(number) for view in views for number in view.flatten()}

    assert step([1, 1]) == {2}
    assert step([3]) == {3}
    assert step([5, 2]) == {7}


def test_unreached_parameters_have_no_gradient(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)
    parameters.zero_gradient()
    backward_with_gradient(model, 1)
    parameters.step_gradient()
    parameters.zero_gradient()
    model.matrix.weight.sum().backward()
    views = parameters.views(parameters.step_gradient())
    assert {name for name, view in views.items() if view.any()} == {"matrix.weight"}
