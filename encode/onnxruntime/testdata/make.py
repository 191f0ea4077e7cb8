#!/usr/bin/env python3
"""Write the small graphs of this folder. Needs numpy and onnx."""

import os

import numpy as np
from onnx import TensorProto as T, checker, helper, numpy_helper, save

HERE = os.path.dirname(os.path.abspath(__file__))
DIM, VOCAB = 4, 10


def table():
    # Row i is (i + 1, i·i mod 7, 1, −i): all of different direction.
    return np.array([[i + 1, i * i % 7, 1, -i] for i in range(VOCAB)], np.float32)


def graph(name, ids=T.INT64, shape=("texts", "ids"), types=False, kind=T.FLOAT, unit=True, second=None, inputs=None, out=None, rank=3):
    """An id's vector is its row of the table plus the number of ids attended to in the first component."""
    inputs = inputs or ["input_ids", "attention_mask"] + (["token_type_ids"] if types else [])
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=T.FLOAT),
        helper.make_node("ReduceSum", ["mask", "axis"], ["counts"], keepdims=1),
        helper.make_node("Unsqueeze", ["counts", "last"], ["counts3"]),
        helper.make_node("Mul", ["counts3", "first"], ["shift"]),
        helper.make_node("Add", ["rows", "shift"], ["sum"]),
    ]
    value = "sum"
    if types:
        nodes += [
            helper.make_node("Cast", ["token_type_ids"], ["types"], to=T.FLOAT),
            helper.make_node("Unsqueeze", ["types", "last"], ["types3"]),
            helper.make_node("Add", [value, "types3"], ["typed"]),
        ]
        value = "typed"
    if unit:
        nodes.append(helper.make_node("LpNormalization", [value], ["unit"], axis=2, p=2))
        value = "unit"
    if rank == 2:
        nodes.append(helper.make_node("ReduceMax", [value, "axis"], ["pooled"], keepdims=0))
        value = "pooled"
    out = out or "embeddings"
    nodes.append(helper.make_node("Cast", [value], [out], to=kind))
    dims = [*shape, DIM] if rank == 3 else [shape[0], DIM]
    outputs = [helper.make_tensor_value_info(out, kind, dims)]
    if second:
        nodes.append(helper.make_node("Identity", ["sum"], [second]))
        outputs.append(helper.make_tensor_value_info(second, T.FLOAT, [*shape, DIM]))
    constants = {
        "table": table(), "axis": np.array([1], np.int64), "last": np.array([2], np.int64), "first": np.array([1, 0, 0, 0], np.float32),
    }
    g = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info(i, ids, list(shape)) for i in inputs], outputs,
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 18)], ir_version=8, producer_name="")
    checker.check_model(m)
    save(m, os.path.join(HERE, name + ".onnx"))


graph("plain")
graph("types32half", ids=T.INT32, types=True, kind=T.FLOAT16)
graph("fixed", shape=(1, 8))
graph("long", unit=False)
graph("two", second="last_hidden_state")
graph("ambiguous", second="b", out="a")
graph("extra", inputs=["input_ids", "attention_mask", "pixels"])
graph("sentence", rank=2)
