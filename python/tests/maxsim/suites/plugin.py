"""The plugin of pytest that run.py uses: plaid's functions under the names of the two packages, and,
on the processor, a device cuda that is the processor."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import plaid_ir.lik

SUITE = os.environ["PLAID_SUITE"]
ON_CPU = os.environ["PLAID_SUITE_DEVICE"] == "cpu"


def pytest_configure(config: pytest.Config) -> None:
    root = Path(config.rootpath)
    if SUITE == "lik":
        plaid_ir.lik.install()
        if os.environ["PLAID_SUITE_REFERENCE"] == "theirs":
            judge_by(load("theirs", root / "late_interaction_kernels/reference.py"))
    else:
        import flash_names

        flash_names.install(load("theirs", root / "flash_maxsim/naive.py"))
        allclose = torch.allclose
        # They compare float16 with float32, which torch refuses, whoever made the scores.
        torch.allclose = lambda a, b, **kwargs: allclose(a.float(), b.float(), **kwargs)
    if ON_CPU:
        for name, answer in ANSWERS.items():
            setattr(torch.cuda, name, lambda *args, answer=answer, **kwargs: answer)


def load(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judge_by(theirs: Any) -> None:
    """Takes reference functions from their package, so that plaid is not its own judge."""
    sys.modules["late_interaction_kernels.reference"] = theirs
    for module in (plaid_ir.lik, plaid_ir.lik.plaid):
        for name in ("reference", "maxsim_residual_reference", "plaid_approx_score_reference"):
            if hasattr(module, name) and (module is plaid_ir.lik or name != "reference"):
                setattr(module, name, theirs if name == "reference" else getattr(theirs, name))


# What torch.cuda says where there is no GPU and tests ask for one.
ANSWERS: dict[str, Any] = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_capability": (9, 0),
    "get_device_name": "the processor",
    "manual_seed": None,
    "manual_seed_all": None,
    "synchronize": None,
    "empty_cache": None,
    "reset_peak_memory_stats": None,
}


@contextlib.contextmanager
def replaced(owner: Any, values: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


TRUTH = {name: getattr(torch.cuda, name) for name in ANSWERS}
GENERATOR, COMPILE = torch.Generator, torch.compile


def generator(device: Any = "cpu") -> torch.Generator:
    return GENERATOR("cpu" if means_cuda(device) else device)


def compiled(*args: Any, **kwargs: Any) -> Any:
    """torch.compile, for the processor: the compiler must not believe in a GPU."""
    function = COMPILE(*args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        torch_is = {"Generator": GENERATOR, "compile": COMPILE}
        with replaced(torch.cuda, TRUTH), replaced(torch, torch_is), torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return call


def means_cuda(x: Any) -> bool:
    return (isinstance(x, str) and x.split(":")[0] == "cuda") or (isinstance(x, torch.device) and x.type == "cuda")


class CudaIsProcessor(TorchFunctionMode):
    """Functions of torch get cpu where they were given cuda."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        args = tuple("cpu" if means_cuda(x) else x for x in args)
        kwargs = {key: "cpu" if means_cuda(x) else x for key, x in (kwargs or {}).items()}
        return func(*args, **kwargs)


@contextlib.contextmanager
def processor() -> Iterator[None]:
    with replaced(torch, {"Generator": generator, "compile": compiled}), CudaIsProcessor():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with processor() if ON_CPU else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
    with processor() if ON_CPU else contextlib.nullcontext():
        return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Of setup and teardown nothing but their failures, and skips, count.
    if report.when == "call" or report.outcome != "passed":
        write(report, "passed" if hasattr(report, "wasxfail") else report.outcome)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != "passed":
        write(report, report.outcome)


def write(report: Any, outcome: str) -> None:
    """A line at once, so that what ends the process takes no outcome along."""
    with open(os.environ["PLAID_SUITE_RESULTS"], "a") as out:
        print(json.dumps((report.nodeid, outcome, last_line(report))), file=out)


def last_line(report: Any) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr or "").strip().splitlines()
    return lines[0 if crash else -1] if lines else ""
