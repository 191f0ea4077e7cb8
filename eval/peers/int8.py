#!/usr/bin/env python3
"""Writes model_int8.onnx beside a model.onnx, as exporters make it: quantize_dynamic with its defaults and signed
bytes. Weights that are stored as float16 become float32 first, as they are in exports. Needs onnxruntime and onnx.

  python int8.py FOLDER
"""
import os
import sys

import numpy as np
import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

folder = sys.argv[1]
plain = os.path.join(folder, "model_f32.onnx")
model = onnx.load(os.path.join(folder, "model.onnx"))
del model.graph.value_info[:]
for tensor in model.graph.initializer:
    if tensor.data_type == onnx.TensorProto.FLOAT16:
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
# What only made float32 of a weight goes, so that products are seen to have constant weights.
constants = {t.name for t in model.graph.initializer}
same = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "Cast" and n.input[0] in constants}
kept = [n for n in model.graph.node if n.output[0] not in same]
for node in kept:
    node.input[:] = [same.get(i, i) for i in node.input]
del model.graph.node[:]
model.graph.node.extend(kept)
onnx.save(model, plain)
quantize_dynamic(plain, os.path.join(folder, "model_int8.onnx"), weight_type=QuantType.QInt8)
os.remove(plain)
