"""What every numerical method works on: a function of real strided tensors, and where it is looked at.

Complex tensors enter as real ones with a trailing dimension of two, sparse ones as their values, modules as functions
of their parameters (`prepare` does this), so that a Jacobian is always a real matrix and Wirtinger derivatives need no
formula of their own: with real pairs in and out, torch's convention for complex gradients is the plain vjp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd import forward_ad


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A function and a point.

    `func(*inputs)` returns the differentiable outputs, always in the same order. `inputs` are leaves that require
    grad, real and strided. Everything else that the function needs is closed over.

    `grad_mode`: numerics run with grad mode on, for functions that return other values without it.
    `in_place`: the function captures its inputs by closure, so that steps are taken in the inputs' own memory.
    `seed`: random functions are replayed under this seed at every evaluation.
    `stacked`: a batched form of `func` where there is a better one than vmap: inputs and outputs with one more leading
    dimension.
    """

    func: Callable[..., tuple[Tensor, ...]]
    inputs: tuple[Tensor, ...]
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    grad_mode: bool = False
    in_place: bool = False
    seed: int | None = None
    devices: tuple[torch.device, ...] = field(default=())
    stacked: Callable[..., tuple[Tensor, ...]] | None = None

    def evaluate(self, inputs: Sequence[Tensor], *, copy: bool = True) -> tuple[Tensor, ...]:
        """The outputs' values at `inputs`, detached, never sharing memory with the inputs.

        Without `copy` the function gets `inputs` themselves, and outputs may share their memory.
        """
        with torch.set_grad_enabled(self.grad_mode):
            if self.seed is None and not self.in_place:  # without a context of its own, which costs as much as an op
                return self._outputs_at(inputs, copy)
            with self._replayed():
                if not self.in_place:
                    return self._outputs_at(inputs, copy)
                with _moved(self.inputs, inputs):
                    return tuple(output.detach().clone() for output in self.func(*self.inputs))

    def _outputs_at(self, inputs: Sequence[Tensor], copy: bool) -> tuple[Tensor, ...]:
        arguments = [twin(each) for each in inputs] if copy else inputs
        if self.grad_mode:
            arguments = [each.requires_grad_() for each in arguments]
        return tuple([output.detach() for output in self.func(*arguments)])

    def evaluate_stack(self, stacks: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """As `evaluate`, at many points at once: inputs and outputs have one more leading dimension.

        Raises what vmap raises where the function cannot be batched.
        """
        if self.stacked is not None:
            return tuple(output.detach() for output in self.stacked(*stacks))
        if self.in_place:
            raise RuntimeError("a function that reads its inputs by closure cannot be batched")
        with torch.set_grad_enabled(self.grad_mode), self._replayed():
            outputs = torch.func.vmap(self.func, randomness="error" if self.seed is None else "same")(*stacks)
            return tuple(output.detach() for output in outputs)

    def linearize(self) -> Linearization:
        """The function with its graph at `inputs`."""
        with torch.enable_grad(), self._replayed():
            return Linearization(inputs=self.inputs, outputs=self.func(*self.inputs))

    def jvp(self, tangents: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """One tangent an output, detached; zeros where the output has none."""
        with torch.set_grad_enabled(self.grad_mode), self._replayed(), forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(  # type: ignore[no-untyped-call]
                    twin(each).requires_grad_(self.grad_mode), tangent
                )
                for each, tangent in zip(self.inputs, tangents, strict=True)
            ]
            pairs = [forward_ad.unpack_dual(each) for each in self.func(*duals)]  # type: ignore[no-untyped-call]
            return tuple(
                torch.zeros_like(pair.primal).detach() if pair.tangent is None else pair.tangent.detach()
                for pair in pairs
            )

    @contextlib.contextmanager
    def _replayed(self) -> Iterator[None]:
        if self.seed is None:
            yield
            return
        with torch.random.fork_rng(devices=[each for each in self.devices if each.type == "cuda"]):
            torch.manual_seed(self.seed)
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Linearization:
    """Outputs on a graph that is kept."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def vjp(self, cotangents: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """One gradient an input, each of the input's shape; None where the graph has no path to it.

        Outputs that hang on no graph take no part.
        """
        live = [at for at, output in enumerate(self.outputs) if output.requires_grad]
        if not live:
            return (None,) * len(self.inputs)
        return torch.autograd.grad(
            [self.outputs[at] for at in live],
            self.inputs,
            [cotangents[at] for at in live],
            retain_graph=True,
            allow_unused=True,
        )


@contextlib.contextmanager
def _moved(inputs: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    kept = [each.detach().clone() for each in inputs]
    try:
        with torch.no_grad():
            for each, value in zip(inputs, values, strict=True):
                each.data.copy_(value)
        yield
    finally:
        with torch.no_grad():
            for each, value in zip(inputs, kept, strict=True):
                each.data.copy_(value)


def is_part(tensor: Tensor) -> bool:
    """Whether a tensor is a view into a larger memory, of which a function may read more (`as_strided` does)."""
    return tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()


def twin(tensor: Tensor) -> Tensor:
    """A detached tensor of the same values and strides in memory of its own, as large as the tensor's where that is
    not far larger."""
    tensor = tensor.detach()
    storage = tensor.untyped_storage()
    if not is_part(tensor) or storage.nbytes() > max(1 << 16, 4 * tensor.numel() * tensor.element_size()):
        return tensor.clone()
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    whole = storage.clone()  # type: ignore[no-untyped-call]
    made: Tensor = empty.set_(whole, tensor.storage_offset(), tensor.size(), tensor.stride())
    # memory alone does not say that a view stands for the negated or conjugated values
    return made.copy_(tensor) if tensor.is_neg() or tensor.is_conj() else made
