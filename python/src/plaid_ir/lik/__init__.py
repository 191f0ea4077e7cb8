"""The functions of late-interaction-kernels 0.4.5, implemented by `plaid_ir.torch`.

    import plaid_ir.lik

    plaid_ir.lik.install()     # before the first score is computed
    from late_interaction_kernels import MaxSimScorer, maxsim, retrieve

After `install()`, `import late_interaction_kernels` returns this package. Libraries that use that
package (PyLate, colpali-engine) then score with plaid, even if it is not installed. `uninstall()`
undoes this. Without `install()` nothing outside this package changes. Types and errors are those
of `plaid_ir.torch`.

Differences from late-interaction-kernels:

- Tensors on the processor are scored by plaid's own loops, not by plain PyTorch.
- float32 is not rounded to float16.
- Gradients are identical on every run, so `backward=` is checked and then ignored.
- `patch_pylate` and similar functions do nothing.
- The Triton kernels (`forward`, `backward`, `_autotune`) are missing.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType

from . import autograd, fp8, padded, patches, plaid, reference, retrieval
from .autograd import maxsim, maxsim_pairs, maxsim_varlen
from .padded import maxsim_padded
from .patches import patch_colpali_engine, patch_pylate, unpatch_colpali_engine, unpatch_pylate
from .retrieval import MaxSimScorer, retrieve

__version__ = "0.4.5"
__all__ = [
    "MaxSimScorer",
    "__version__",
    "maxsim",
    "maxsim_padded",
    "maxsim_pairs",
    "maxsim_varlen",
    "patch_colpali_engine",
    "patch_pylate",
    "reference",
    "retrieve",
    "unpatch_colpali_engine",
    "unpatch_pylate",
]

_ROOT = "late_interaction_kernels"
# The modules of that package, and the modules here that replace them.
_MODULES: dict[str, ModuleType] = {
    "autograd": autograd,
    "colpali_compat": patches,
    "fp8": fp8,
    "fused_head": autograd,
    "mps": autograd,
    "mps.compile_dispatch": autograd,
    "padded": padded,
    "plaid": plaid,
    "pylate_compat": patches,
    "reference": reference,
    "retrieve": retrieval,
    "score_pairs": autograd,
    "topk": retrieval,
    "varlen": autograd,
}
# The modules that install() replaced. importlib.reload does not reset it.
_replaced: dict[str, ModuleType] | None = globals().get("_replaced")
_lock = threading.Lock()


def install() -> None:
    """Makes `import late_interaction_kernels` return this package, until `uninstall()`.

    Names that a module imported from the other package earlier do not change. PyLate and
    colpali-engine check only once whether the package is installed, when they first score.
    """
    global _replaced
    with _lock:
        if _replaced is not None:
            return
        _replaced = _remove_modules()
        root = sys.modules[_ROOT] = sys.modules[__name__]
        for name, module in _MODULES.items():
            sys.modules[f"{_ROOT}.{name}"] = module
            if not hasattr(root, name):  # retrieve is a function here, too, which stays
                setattr(root, name, module)


def uninstall() -> None:
    """Undoes `install()`: restores the modules that were imported before."""
    global _replaced
    with _lock:
        if _replaced is not None:
            _remove_modules()
            sys.modules.update(_replaced)
            _replaced = None


def _remove_modules() -> dict[str, ModuleType]:
    """Removes the package late_interaction_kernels from `sys.modules`, and returns its modules."""
    names = [name for name in sys.modules if name == _ROOT or name.startswith(_ROOT + ".")]
    return {name: sys.modules.pop(name) for name in names}
