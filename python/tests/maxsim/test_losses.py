"""The losses of PyLate, sentence-transformers and colpali-engine with plaid's scores: the same loss, the same
gradients, and the same end of a training. Each part needs its package, and is skipped without it."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import plaid_ir.lik  # noqa: E402
from plaid_ir.torch import MaxSim, maxsim_inbatch, maxsim_kd  # noqa: E402

torch.set_num_threads(1)
WORDS, DIM = 60, 16
# The rounding of gradients that have the type of the vectors.
ROUNDING = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = list(ROUNDING)


class Encoder(torch.nn.Module):
    """Token vectors of length 1, all of whose products are positive: then it does not matter that a masked
    token has similarity 0 in PyLate, and -inf in plaid."""

    skiplist: list[int] = []
    do_query_expansion = False

    def __init__(self, dtype: Any = torch.float32, score_dtype: Any = None) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 24)
        self.head = torch.nn.Linear(24, DIM)
        with torch.no_grad():
            self.head.bias[0] = 3.0
        self.dtype, self.score_dtype = dtype, score_dtype or dtype

    def forward(self, features: dict[str, Any], task: str | None = None, **ignored: Any) -> dict[str, Any]:
        x = self.head(torch.tanh(self.words(features["input_ids"])))
        x = torch.nn.functional.normalize(x, dim=-1).to(self.dtype).to(self.score_dtype)
        return {"token_embeddings": x, "attention_mask": features["attention_mask"]}


def texts(generator: Any, count: int, longest: int) -> dict[str, Any]:
    """Random tokens; the last ones of a text are padding."""
    ids = torch.randint(1, WORDS, (count, longest), generator=generator)
    lengths = torch.randint(longest // 2, longest + 1, (count, 1), generator=generator)
    return {"input_ids": ids, "attention_mask": (torch.arange(longest) < lengths).long()}


def outcome(loss: Any, encoder: Any, *args: Any) -> tuple[float, dict[str, Any]]:
    encoder.zero_grad()
    value = loss([dict(x) for x in args[0]], *args[1:])
    value.backward()
    return value.item(), {name: x.grad.clone() for name, x in encoder.named_parameters()}


def check_same(make: Callable[[Any, bool], Any], dtype: Any, *args: Any) -> None:
    """plaid may not be further from the loss and the gradients in float64 than they are, but for rounding."""
    torch.manual_seed(0)
    encoder = Encoder(dtype)
    exact = Encoder(dtype, torch.float64)
    exact.load_state_dict(encoder.state_dict())
    true, true_gradients = outcome(make(exact, False), exact, *args)
    theirs, their_gradients = outcome(make(encoder, False), encoder, *args)
    ours, our_gradients = outcome(make(encoder, True), encoder, *args)
    assert abs(ours - true) <= 1.5 * abs(theirs - true) + ROUNDING[dtype] * max(1, abs(true))
    for name, right in true_gradients.items():
        their_error, our_error = (float((g[name] - right).norm() / right.norm()) for g in (their_gradients, our_gradients))
        assert our_error <= 1.5 * their_error + ROUNDING[dtype], f"{name}: {our_error}, theirs {their_error}"


def check_training(make: Callable[[Any, bool], Any], *args: Any, rate: float = 0.02) -> None:
    torch.manual_seed(0)
    first = Encoder()
    ends = []
    for ours in (False, True):
        encoder = copy.deepcopy(first)
        loss = make(encoder, ours)
        optimizer = torch.optim.SGD(encoder.parameters(), lr=rate)
        for _ in range(200):
            optimizer.zero_grad()
            value = loss([dict(x) for x in args[0]], *args[1:])
            value.backward()
            optimizer.step()
        ends.append(value.item())
    begin = make(first, False)([dict(x) for x in args[0]], *args[1:]).item()
    assert ends[0] < 0.99 * begin, "the loss does not fall"
    assert ends[1] == pytest.approx(ends[0], rel=1e-4)


def columns(count: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    return [texts(generator, 8, 10), *(texts(generator, 8, 24) for _ in range(count))]


def teacher(*shape: int) -> Any:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(2)) * 4


def pylate(name: str) -> tuple[Callable[[Any, bool], Any], tuple[Any, ...]]:
    losses = pytest.importorskip("pylate.losses")
    if name == "Distillation":
        generator = torch.Generator().manual_seed(1)
        args: tuple[Any, ...] = ([texts(generator, 8, 10), texts(generator, 24, 24)], teacher(8, 3))
        return lambda e, ours: losses.Distillation(e, **({"score_metric": MaxSim("own")} if ours else {})), args
    more = {"mini_batch_size": 3, "score_mini_batch_size": 5} if name == "CachedContrastive" else {}
    kind = getattr(losses, name)
    return lambda e, ours: kind(e, **more, **({"score_metric": MaxSim("all")} if ours else {})), (columns(2),)


PYLATE = ["Contrastive", "CachedContrastive", "Distillation"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PYLATE)
def test_pylate(name: str, dtype: Any) -> None:
    make, args = pylate(name)
    check_same(make, dtype, *args)


@pytest.mark.parametrize("name", PYLATE)
def test_pylate_training(name: str) -> None:
    make, args = pylate(name)
    check_training(make, *args)


def test_pylate_masks_differ() -> None:
    """A masked token has similarity 0 in PyLate, which wins where all others are negative."""
    scores = pytest.importorskip("pylate.scores")
    q, d = torch.ones(1, 2, 4), -torch.ones(1, 1, 3, 4)
    mask = torch.tensor([[[1, 1, 0]]])
    assert scores.ColBERTScores()(q, d, documents_mask=mask).item() == 0
    assert MaxSim("all")(q, d, documents_mask=mask).item() == -8


def test_pylate_rerank(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = pytest.importorskip("pylate.rank.rank")
    documents = [[torch.randn(n, DIM) for n in (6, 3, 5)] for _ in range(2)]
    args = [["a", "b", "c"], ["d", "e", "f"]], [torch.randn(4, DIM) for _ in range(2)], documents
    want = rank.rerank(*args)
    monkeypatch.setattr(rank, "colbert_scores", MaxSim())
    for ours, theirs in zip(rank.rerank(*args), want):
        assert [x["id"] for x in ours] == [x["id"] for x in theirs]
        assert [x["score"] for x in ours] == pytest.approx([x["score"] for x in theirs], rel=1e-5)


def sentence_transformers(name: str) -> tuple[Callable[[Any, bool], Any], tuple[Any, ...]]:
    losses = pytest.importorskip("sentence_transformers.multi_vector_encoder.losses")
    cached = "Cached" if name.startswith("Cached") else ""
    kind = getattr(losses, f"{cached}MultiVector{name.removeprefix('Cached')}Loss")
    what, more, args = {
        "MultipleNegativesRanking": ("all", {}, (columns(2),)),
        "CachedMultipleNegativesRanking": ("all", {"mini_batch_size": 3, "score_mini_batch_size": 5}, (columns(2),)),
        "DistillKLDiv": ("own", {}, (columns(3), teacher(8, 3))),
        "MarginMSE": ("pairs", {}, (columns(2), teacher(8))),
    }[name]
    return lambda e, ours: kind(e, **more, **({"similarity_fct": MaxSim(what)} if ours else {})), args


SENTENCE_TRANSFORMERS = ["MultipleNegativesRanking", "CachedMultipleNegativesRanking", "DistillKLDiv", "MarginMSE"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SENTENCE_TRANSFORMERS)
def test_sentence_transformers(name: str, dtype: Any) -> None:
    make, args = sentence_transformers(name)
    check_same(make, dtype, *args)
    assert "MaxSim" in make(Encoder(), True).get_config_dict()["similarity_fct"]


@pytest.mark.parametrize("name", SENTENCE_TRANSFORMERS)
def test_sentence_transformers_training(name: str) -> None:
    make, args = sentence_transformers(name)
    check_training(make, *args)


COLPALI = ["ColbertLoss", "ColbertPairwiseCELoss", "ColbertSigmoidLoss", "ColbertNegativeCELoss", "ColbertPairwiseNegativeCELoss"]


def colpali(name: str, encoder: Any, ours: bool) -> Callable[..., Any]:
    """The loss as a function of texts. colpali-engine takes vectors whose padding is zeros."""
    module = pytest.importorskip("colpali_engine.loss.late_interaction_losses")
    head = getattr(module, name)()

    def loss(features: list[dict[str, Any]]) -> Any:
        vectors = [encoder(x)["token_embeddings"] * x["attention_mask"].unsqueeze(-1) for x in features]
        if "Negative" in name:
            q, d, *negatives = vectors
            vectors = [q, d, torch.stack(negatives, dim=1)]
        else:
            vectors = vectors[:2]
        theirs = module.maxsim_inbatch, module.maxsim_kd
        if ours:
            module.maxsim_inbatch, module.maxsim_kd = maxsim_inbatch, maxsim_kd
        try:
            return head(*vectors)
        finally:
            module.maxsim_inbatch, module.maxsim_kd = theirs

    return loss


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", COLPALI)
def test_colpali_engine(name: str, dtype: Any) -> None:
    check_same(lambda e, ours: colpali(name, e, ours), dtype, columns(3))


@pytest.mark.parametrize("name", COLPALI)
def test_colpali_engine_training(name: str) -> None:
    # Their temperature is .02: larger steps make differences of rounding grow.
    rate = {"ColbertSigmoidLoss": 2e-4, "ColbertPairwiseCELoss": 0.1}.get(name, 2e-3)
    check_training(lambda e, ours: colpali(name, e, ours), columns(3), rate=rate)


def test_lik_is_found() -> None:
    """What PyLate and colpali-engine import of late-interaction-kernels is plaid's after install()."""
    plaid_ir.lik.install()
    try:
        autograd = importlib.import_module("late_interaction_kernels.autograd")
        assert autograd.maxsim is plaid_ir.lik.maxsim
        assert importlib.import_module("late_interaction_kernels") is plaid_ir.lik
        assert importlib.import_module("late_interaction_kernels.retrieve").retrieve is plaid_ir.lik.retrieve
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("late_interaction_kernels.forward")
    finally:
        plaid_ir.lik.uninstall()
