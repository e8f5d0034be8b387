"""python -m tools.train_scorer.neural_graph: write the graphs of `neural` without weights.

Needs `pip install onnx`, which the scorer does not. Run it again only if the shape of a network changes. A graph
maps the `vectors` of tokens, one row per piece of text, all of one length, to their last states. Its weights are
external data, which `evenhand.scorers.neural` passes to onnxruntime.

Weights of the layers are integers with a scale per output, and what goes into them is rounded to integers, too. Its
range is fixed, so that the rounding of a piece does not depend on the other pieces of its run. Normalisations are
written out, since onnxruntime's own operator takes twice as long. Its FastGelu would be quicker than Gelu, but changes
scores by up to 0.1.
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, helper

from evenhand.scorers.neural.weights import ALL, FEW, HEADS, graph_file

SIZE = 384
WIDTH = {FEW: 1024, ALL: 1536}
EPSILON = "epsilon"

_CONTRIB = "com.microsoft"


class Graph:
    """Collects nodes and the names of weights."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, inputs: list[str], *, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node and return the name of its output, or their names."""
        names = [f"{kind}{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, name: str, kind: int, *shape: int) -> str:
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights")
        self.weights.append(tensor)
        return name

    def linear(self, x: str, name: str, size: int, width: int) -> str:
        """The product of rounded inputs and integer weights, in floating point, plus a bias."""
        step = self.weight(f"{name}.step", TensorProto.FLOAT)
        zero = self.weight(f"{name}.zero", TensorProto.UINT8)
        levels = self.weight(f"{name}.weight", TensorProto.INT8, size, width)
        scale, bias = (self.weight(f"{name}.{part}", TensorProto.FLOAT, width) for part in ("scale", "bias"))
        rounded = self.add("QuantizeLinear", [x, step, zero])
        return self.add("MatMulIntegerToFloat", [rounded, levels, step, scale, zero, "", bias], domain=_CONTRIB)

    def norm(self, x: str, name: str) -> str:
        weight, bias = (self.weight(f"{name}.{part}", TensorProto.FLOAT, SIZE) for part in ("weight", "bias"))
        centred = self.add("Sub", [x, self._mean(x)])
        variance = self.add("Add", [self._mean(self.add("Mul", [centred, centred])), EPSILON])
        scaled = self.add("Mul", [self.add("Div", [centred, self.add("Sqrt", [variance])]), weight])
        return self.add("Add", [scaled, bias])

    def _mean(self, x: str) -> str:
        return self.add("ReduceMean", [x], axes=[-1], keepdims=1)

    def layer(self, x: str, name: str) -> str:
        parts = self.add("Split", [self.linear(x, f"{name}.read", SIZE, 3 * SIZE)], outputs=3, axis=-1)
        seen = self.add("MultiHeadAttention", parts, domain=_CONTRIB, num_heads=HEADS)
        x = self.norm(self.add("Add", [self.linear(seen, f"{name}.merge", SIZE, SIZE), x]), f"{name}.norm")
        wide = self.add("Gelu", [self.linear(x, f"{name}.up", SIZE, self.width)], domain=_CONTRIB)
        return self.norm(self.add("Add", [self.linear(wide, f"{name}.down", self.width, SIZE), x]), f"{name}.last")


def main() -> None:
    for layers, width in WIDTH.items():
        graph_file(layers).write_bytes(_graph(layers, width))


def _graph(layers: int, width: int) -> bytes:
    graph = Graph(width)
    x = graph.norm("vectors", "norm")
    for number in range(layers):
        x = graph.layer(x, str(number))
    graph.nodes.append(helper.make_node("Identity", [x], ["states"]))
    shape = ["pieces", "length", SIZE]
    inputs = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("states", TensorProto.FLOAT, shape)]
    epsilon = helper.make_tensor(EPSILON, TensorProto.FLOAT, [], [1e-12])
    made = helper.make_graph(graph.nodes, "neural", inputs, outputs, [*graph.weights, epsilon])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_CONTRIB, 1)]
    return helper.make_model(made, ir_version=8, opset_imports=opsets).SerializeToString()


if __name__ == "__main__":
    main()
