"""As users train Gaussian processes: a few steps, and every parameter has a finite gradient."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
gpytorch = pytest.importorskip("gpytorch")
variational = pytest.importorskip("gpytorch.variational")


class Approximate(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    def __init__(self, strategy: Any, distribution: Any, kernel: Any) -> None:
        inducing = torch.linspace(0, 1, 5).unsqueeze(-1)
        super().__init__(strategy(self, inducing, distribution(5), learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


PAIRS = {
    "whitened": (variational.VariationalStrategy, variational.CholeskyVariationalDistribution),
    "natural": (variational.VariationalStrategy, variational.NaturalVariationalDistribution),
    "triangular": (variational.VariationalStrategy, variational.TrilNaturalVariationalDistribution),
    "large_batch": (variational.LargeBatchVariationalStrategy, variational.CholeskyVariationalDistribution),
    "contour_integral": (variational.CiqVariationalStrategy, variational.NaturalVariationalDistribution),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("kernel", [gpytorch.kernels.RBFKernel, gpytorch.kernels.MaternKernel])
def test_every_parameter_has_a_finite_gradient(name: str, kernel: Any) -> None:
    torch.manual_seed(0)
    model = Approximate(*PAIRS[name], kernel())
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=12)
    x = torch.linspace(0, 1, 12).unsqueeze(-1)
    for _ in range(2):
        model.zero_grad()
        loss = -objective(model(x), torch.sin(6 * x.squeeze(-1)))
        loss.backward()
    assert all(each.grad is None or bool(each.grad.isfinite().all()) for each in model.parameters())


def test_classes_are_told_apart() -> None:
    torch.manual_seed(0)
    model = Approximate(*PAIRS["whitened"], gpytorch.kernels.RBFKernel())
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=12)
    x = torch.linspace(0, 1, 12).unsqueeze(-1)
    (-objective(model(x), (x.squeeze(-1) > 0.5).float())).backward()
    assert all(bool(each.grad.isfinite().all()) for each in model.parameters() if each.grad is not None)


def test_the_logarithm_of_the_normal_distribution_function() -> None:
    z = torch.linspace(-3, 3, 8, dtype=torch.float64, requires_grad=True)
    found = gpytorch.log_normal_cdf(z)
    assert torch.allclose(found, torch.special.log_ndtr(z), atol=1e-2)
    found.sum().backward()
    assert bool((z.grad > 0).all())


def test_variances_of_a_fixed_predictive_distribution_train() -> None:
    torch.manual_seed(0)
    model = Approximate(*PAIRS["whitened"], gpytorch.kernels.MaternKernel(nu=1.5))
    model.eval()
    found = model(torch.rand(4, 1, requires_grad=True))
    (found.mean.sum() + found.variance.sum()).backward()
    assert all(bool(each.grad.isfinite().all()) for each in model.parameters() if each.grad is not None)
