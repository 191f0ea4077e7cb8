"""The functions by which late-interaction-kernels patches other packages. They do nothing, as with new versions."""

from __future__ import annotations

import warnings

__all__ = ["patch_colpali_engine", "patch_pylate", "unpatch_colpali_engine", "unpatch_pylate"]


def patch_pylate() -> None:
    _warn("patch_pylate", "pass score_metric=plaid_ir.torch.MaxSim() to PyLate's losses")


def unpatch_pylate() -> None:
    """Does nothing."""


def patch_colpali_engine() -> None:
    _warn("patch_colpali_engine", "assign plaid_ir.torch.maxsim_inbatch and maxsim_kd to its loss module")


def unpatch_colpali_engine() -> None:
    """Does nothing."""


def _warn(name: str, cure: str) -> None:
    warnings.warn(
        f"{name}() does nothing: {cure}, or set its backend to lik after plaid_ir.lik.install()",
        DeprecationWarning,
        stacklevel=3,
    )
