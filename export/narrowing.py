"""A model -> the same with fewer neurons in its feed-forward layers.

Structured pruning by the optimal brain surgeon (Hassibi and Stork 1993; for whole neurons: Kurtic
et al. 2023, arXiv 2302.04089). A layer gives h W + b for its neurons' activations h. With the
Gram matrix G of [h 1] over real views, dropping neuron j and letting the others take over its
work costs |w_j|^2 / (G^-1)_jj. The cheapest goes, one after the other; W and b of those left are
the least-squares fit to what the whole layer gave. Later layers are fitted to the activations
that narrowed earlier ones leave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from export.training_model import forward, layer_stack
from runtime.errors import UsageError

RIDGE = 1e-6  # added to G's diagonal, as a share of it: neurons may be copies of each other
RIDGE_FLOOR = 1e-9  # the least that is added, as a share of the mean: neurons may be silent
WIDTH_NAMES = ("intermediate_size", "hidden_dim")  # hidden_dim: DistilBERT

Feeds = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _FeedForward:
    """One layer's two matrices: the neurons' own, and the one that sums them up."""

    layer: Any
    into_name: str
    out_name: str

    @property
    def into(self) -> torch.nn.Linear:
        return self.layer.get_submodule(self.into_name)

    @property
    def out(self) -> torch.nn.Linear:
        return self.layer.get_submodule(self.out_name)

    def replace(self, into: torch.nn.Linear, out: torch.nn.Linear) -> None:
        self.layer.set_submodule(self.into_name, into)
        self.layer.set_submodule(self.out_name, out)


def feed_forward_width(model: Any) -> int:
    """How many neurons each feed-forward layer has."""
    return int(getattr(model.config, _width_name(model)))


def narrow(model: Any, width: int, views: Sequence[Feeds]) -> list[float]:
    """Leave `width` neurons in each feed-forward layer of `model`, in place.

    Args:
        views: batches to read; the activations at their tokens decide.

    Returns:
        For each layer the squared error of its output over `views`, as a share of the output.

    Raises:
        UsageError: the layers have not more than `width` neurons, or are built otherwise.
    """
    widest = feed_forward_width(model)
    if not 0 < width < widest:
        raise UsageError(
            f"The student's feed-forward layers have {widest} neurons",
            where=f"--intermediate-size {width}",
            fix="Choose a number below that",
        )
    errors = []
    for layer in _feed_forward_layers(model, widest):
        gram = _gram(layer, model, views)
        errors.append(_narrow_layer(layer, width, gram))
    setattr(model.config, _width_name(model), width)
    return errors


def _width_name(model: Any) -> str:
    for name in WIDTH_NAMES:
        if hasattr(model.config, name):
            return name
    raise _unknown(model)


def _unknown(model: Any) -> UsageError:
    return UsageError(
        f"The feed-forward layers of the architecture {model.config.model_type} are not known",
        where="--intermediate-size",
        fix="Leave it out; choose fewer --layers instead",
    )


def _feed_forward_layers(model: Any, width: int) -> list[_FeedForward]:
    """By shape: the matrix of a layer that gives `width` values and the one that takes them; both
    have a bias, and there is one of each."""
    found = []
    for layer in layer_stack(model)[1]:
        linear = [
            (name, module)
            for name, module in layer.named_modules()
            if isinstance(module, torch.nn.Linear) and module.bias is not None
        ]
        into = [name for name, module in linear if module.out_features == width]
        out = [name for name, module in linear if module.in_features == width]
        if len(into) != 1 or len(out) != 1:
            raise _unknown(model)
        found.append(_FeedForward(layer, into[0], out[0]))
    return found


def _gram(layer: _FeedForward, model: Any, views: Sequence[Feeds]) -> torch.Tensor:
    """Mean of [h 1]^T [h 1] over the tokens of `views`, (width + 1, width + 1), float64."""
    size = layer.out.in_features + 1
    total, inputs = torch.zeros((size, size), dtype=torch.float64), []
    hook = layer.out.register_forward_pre_hook(lambda _module, given: inputs.append(given[0]))
    try:
        for feeds in views:
            with torch.no_grad():
                forward(model, feeds, hidden=False)
            rows = inputs.pop()[feeds["attention_mask"].bool()].float()
            rows = torch.cat([rows, torch.ones((len(rows), 1))], dim=1)
            total += (rows.T @ rows).double()
    finally:
        hook.remove()
    return total / total[-1, -1]  # its last element counts the tokens


def _narrow_layer(layer: _FeedForward, width: int, gram: torch.Tensor) -> float:
    into, out = layer.into, layer.out
    wanted = torch.cat([out.weight.T, out.bias[None]]).detach().double()  # (neurons + 1, hidden)
    power = gram.diagonal()
    gram = gram + torch.maximum(RIDGE * power, RIDGE_FLOOR * power.mean()).diag()
    products, inverse = gram @ wanted, torch.linalg.inv(gram)
    weights, gone = wanted.clone(), torch.zeros(len(gram), dtype=torch.bool)
    for _ in range(len(gram) - 1 - width):
        cost = (weights**2).sum(dim=1) / inverse.diagonal()
        cost[gone], cost[-1] = torch.inf, torch.inf  # the last row is the bias, which stays
        least = int(cost.argmin())
        share = inverse[:, least] / inverse[least, least]  # of its work, to each of the others
        weights.addr_(share, weights[least].clone(), alpha=-1)
        inverse.addr_(share, inverse[least].clone(), alpha=-1)
        gone[least] = True
    kept = (~gone).nonzero()[:, 0]
    fitted = torch.linalg.solve(gram[kept][:, kept], products[kept])
    neurons = kept[:-1]
    layer.replace(
        _linear(into.weight[neurons], into.bias[neurons]), _linear(fitted[:-1].T, fitted[-1])
    )
    whole = (wanted * products).sum()  # the output's mean square; the fit explains its share
    return float(1 - (fitted * products[kept]).sum() / whole)


def _linear(weight: torch.Tensor, bias: torch.Tensor) -> torch.nn.Linear:
    made = torch.nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(bias)
    return made
