"""The functions of late-interaction-kernels 0.4.5, by their names, over `plaid_ir.torch`.

    import plaid_ir.lik

    plaid_ir.lik.install()     # before the first score is asked for
    from late_interaction_kernels import MaxSimScorer, maxsim, retrieve

`install()` answers `import late_interaction_kernels` with this package, so that libraries that look
for that name (PyLate, colpali-engine) score with plaid, whether or not the other package is there.
`uninstall()` takes it back. Without `install()` nothing outside this package changes. Types and
errors are those of `plaid_ir.torch`.

What differs: tensors of the processor are scored by plaid's own loops, not by plain PyTorch;
float32 is not rounded to float16; gradients are the same bits on every run, so `backward=` is
checked and then ignored; `patch_pylate` and its like do nothing; the Triton kernels (`forward`,
`backward`, `_autotune`) are not there.
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
# The modules of that package, and those here that have their names.
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
# The modules that install() replaced; importlib.reload keeps it.
_replaced: dict[str, ModuleType] | None = globals().get("_replaced")
_lock = threading.Lock()


def install() -> None:
    """Answers `import late_interaction_kernels` with this package until `uninstall()`.

    Names that a module has imported from the other package before keep what they are. PyLate and
    colpali-engine ask once whether the package is there, when they score for the first time.
    """
    global _replaced
    with _lock:
        if _replaced is not None:
            return
        _replaced = _remove_modules()
        root = sys.modules[_ROOT] = sys.modules[__name__]
        for name, module in _MODULES.items():
            sys.modules[f"{_ROOT}.{name}"] = module
            if not hasattr(root, name):  # of retrieve the function is there
                setattr(root, name, module)


def uninstall() -> None:
    """Takes `install()` back: the modules that were imported before are there again."""
    global _replaced
    with _lock:
        if _replaced is not None:
            _remove_modules()
            sys.modules.update(_replaced)
            _replaced = None


def _remove_modules() -> dict[str, ModuleType]:
    """Removes the package of that name from `sys.modules`, and returns its modules."""
    names = [name for name in sys.modules if name == _ROOT or name.startswith(_ROOT + ".")]
    return {name: sys.modules.pop(name) for name in names}
