"""Laws of the flat parameters."""

import pytest
import torch
from torch import nn

from bertwright.encoder.roles import Role
from bertwright.errors import UserError
from bertwright.optimisers.parameters import ALIGNMENT, MasterParameters


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
    "norm.weight": Role("norm"),
    "norm.bias": Role("bias"),
    "table.weight": Role("table"),
    "matrix.weight": Role("matrix"),
    "matrix.bias": Role("bias"),
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
        assert torch.equal(parameters.state()[name], before)
        assert torch.equal(parameter.detach(), before.to(parameter.dtype))
    parameters.compute.zero_()
    assert all((p == 0).all() for p in model.parameters())


def test_matrices_come_first_then_tables_then_the_rest(precision: str) -> None:
    parameters = MasterParameters(Small(), ROLES, precision)
    names = [slot.name for slot in parameters.slots]
    assert names[:2] == ["matrix.weight", "table.weight"]
    assert all(slot.start % ALIGNMENT == 0 for slot in parameters.slots)
    assert parameters.range("matrix").stop == parameters.range("table").start
    assert parameters.range("matrix", "table") == slice(0, 128)
    assert [slot.name for slot in parameters.slots_of("table")] == ["table.weight"]


def test_gradients_land_in_the_flat_buffer(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)
    for _ in range(2):
        parameters.clear_gradient()
        model(torch.arange(7)).float().square().sum().backward()
    plain = Small()
    plain.load_state_dict(
        parameters.state() | {"output.weight": parameters.state()["table.weight"]}
    )
    plain(torch.arange(7)).square().sum().backward()
    flat = parameters.views(parameters.gradient)
    for name, parameter in plain.named_parameters():
        difference = (flat[name].float() - parameter.grad).norm() / parameter.grad.norm()
        assert difference < {"float32": 1e-6, "bf16": 0.02}[precision]


def test_tied_parameters_are_one_storage(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)
    assert "output.weight" not in parameters.state()
    assert model.output.weight.data_ptr() == model.table.weight.data_ptr()


def test_frozen_parameters_are_laid_last_and_have_no_gradient(precision: str) -> None:
    model = Small()
    model.table.weight.requires_grad_(False)
    parameters = MasterParameters(model, ROLES, precision)
    assert parameters.slots[-1].name == "table.weight"
    assert len(parameters.gradient) == parameters.num_trainable < len(parameters.master)
    model(torch.arange(7)).float().sum().backward()
    assert model.table.weight.grad is None
    assert parameters.views(parameters.step_gradient())["matrix.weight"].any()


def test_state_and_load_are_inverse(precision: str) -> None:
    parameters = MasterParameters(Small(), ROLES, precision)
    saved = {name: tensor.clone() for name, tensor in parameters.state().items()}
    parameters.master.zero_()
    parameters.load(saved)
    assert all(torch.equal(t, saved[n]) for n, t in parameters.state().items())
    assert torch.equal(parameters.compute.float().bfloat16(), parameters.master.bfloat16())


def test_loading_what_does_not_fit_is_an_error() -> None:
    parameters = MasterParameters(Small(), ROLES, "float32")
    state = dict(parameters.state())
    with pytest.raises(UserError, match="shape"):
        parameters.load({**state, "norm.bias": torch.zeros(6)})
    del state["norm.bias"]
    with pytest.raises(UserError, match=r"norm\.bias"):
        parameters.load(state)


def test_released_parameters_are_plain_float32(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)
    parameters.release()
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is None
        assert torch.equal(parameter.detach(), parameters.state()[name])
    model(torch.arange(3)).sum().backward()


def back(model: "Small", slope: float) -> None:
    """A backward pass in which everything has this gradient."""
    sum((p * slope).sum() for p in model.parameters()).backward()


def test_micro_batches_are_summed_in_float32() -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, "bf16")
    parameters.clear_gradient()
    for _ in range(3):
        back(model, 1 + 2**-7)
        parameters.accumulate()
    found = parameters.step_gradient()
    assert found.dtype == torch.float32
    assert all((view == 3 + 3 * 2**-7).all() for view in parameters.views(found).values())
    parameters.clear_gradient()
    assert (parameters.step_gradient() == 0).all()


def test_a_step_of_one_micro_batch_keeps_its_gradient_after_one_of_several(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)

    def step(slopes: list[float]) -> set[float]:
        parameters.clear_gradient()
        for slope in slopes:
            back(model, slope)
            if len(slopes) > 1:
                parameters.accumulate()
        views = parameters.views(parameters.step_gradient()).values()
        return {float(number) for view in views for number in view.flatten()}

    assert step([1, 1]) == {2}
    assert step([3]) == {3}
    assert step([5, 2]) == {7}


def test_what_no_loss_comes_to_has_no_gradient(precision: str) -> None:
    model = Small()
    parameters = MasterParameters(model, ROLES, precision)
    parameters.clear_gradient()
    back(model, 1)
    parameters.step_gradient()
    parameters.clear_gradient()
    model.matrix.weight.sum().backward()
    views = parameters.views(parameters.step_gradient())
    assert {name for name, view in views.items() if view.any()} == {"matrix.weight"}
