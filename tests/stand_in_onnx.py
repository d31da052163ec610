"""Stand-ins for the two ONNX models of a checkpoint: inputs and outputs of the official ones, and simple arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write_model(path: Path, nodes: list, inputs: list, outputs: list, constants: dict) -> None:
    graph = helper.make_graph(nodes, "stand_in", inputs, outputs,
                              [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))


def write_speaker(path: Path, width: int = 192) -> None:
    """Mean over time of the first filter bank band squared, in all places of the vector."""
    write_model(
        path,
        [helper.make_node("Mul", ["fb", "fb"], ["square"]),
         helper.make_node("ReduceMean", ["square"], ["mean"], axes=[1], keepdims=0),
         helper.make_node("Gather", ["mean", "first"], ["embedding"], axis=1)],
        [helper.make_tensor_value_info("fb", TensorProto.FLOAT, [1, "T", 80])],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, width])],
        {"first": np.zeros(width, np.int64)})


def write_tokenizer(path: Path, every: int = 4) -> None:
    """Every fourth value of band 0 times 100, as an id, up to the given length."""
    write_model(
        path,
        [helper.make_node("Cast", ["how_long"], ["length"], to=TensorProto.INT64),
         helper.make_node("Slice", ["mel", "zero", "length", "two", "every"], ["thinned"]),
         helper.make_node("Gather", ["thinned", "band"], ["row"], axis=1),
         helper.make_node("Abs", ["row"], ["positive"]),
         helper.make_node("Mul", ["positive", "hundred"], ["scaled"]),
         helper.make_node("Cast", ["scaled"], ["ids"], to=TensorProto.INT64)],
        [helper.make_tensor_value_info("mel", TensorProto.FLOAT, [1, 128, "T"]),
         helper.make_tensor_value_info("how_long", TensorProto.INT32, [1])],
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "N"])],
        {"zero": np.array([0]), "two": np.array([2]), "every": np.array([every]),
         "band": np.array(0), "hundred": np.float32(100)})
