#!/usr/bin/env python3
"""Model documents of known workloads, all data from generators.

    generate.py vit-small [--layers N]    the small vision transformer: 28 x 28, 46 operations
    generate.py vit-small-affine          the same with scales and biases that matter
    generate.py so400m [--layers N]       So400m/14 at 378 x 378: 729 tokens of width 1152
    generate.py mlp                       729 x 1152 x 4304 x 1152, Gelu between, no biases
    generate.py attention [--tokens N] [--heads N] [--head-size N]
                                          16 heads x 729 tokens x 72 with three projections
    generate.py gemm [--size N]           N x N x N, 4096 unless told; input of deviation 0.5

Any of them: --prefix NAME before all names, --first-seed N of the tensors. Prints model.json.
gemm-stream/model.json is `gemm --size 1024`: on 24 tiles its operands fit only in chunks. The stored
vit-small/model.json and vit-small-affine/model.json are made with

    for m in vit-small vit-small-affine; do ./generate.py $m > $m/model.json; done

One operation of the transformer is one node, but for the head split and merge: a Reshape and a
Transpose. Weights have the deviation sqrt(2 / (rows + columns)), the image 0.5, position and probe
1 / sqrt(width), biases 1e-6; scales are 1. In the other workloads the input has 0.25 and a weight
1 / sqrt(rows).
"""
import argparse
import json
import math


class Model:
    """Collects tensors and nodes; every tensor gets the next seed. `prefix` goes before all names
    when the model is printed, `first_seed` to the first tensor."""

    prefix, first_seed = "", 1

    def __init__(self):
        self.inputs, self.initializers, self.nodes = [], [], []
        self.shapes = {}

    def tensor(self, name, shape, scale, offset=0.0):
        if scale == 0:
            generator = {"kind": "constant", "value": offset}
        else:
            seed = len(self.inputs) + len(self.initializers) + self.first_seed
            generator = {"kind": "normal", "seed": seed, "scale": scale}
            if offset != 0:
                generator["offset"] = offset
        self.shapes[name] = shape
        return {"name": name, "dtype": "float16", "shape": shape, "generator": generator}

    def input(self, name, shape, scale):
        self.inputs.append(self.tensor(name, shape, scale))
        return name

    def parameter(self, name, shape, scale, offset=0.0):
        self.initializers.append(self.tensor(name, shape, scale, offset))
        return name

    def integers(self, name, values):
        if name not in self.shapes:
            self.shapes[name] = [len(values)]
            self.initializers.append(
                {"name": name, "dtype": "int64", "shape": [len(values)], "values": values})
        return name

    def node(self, op, inputs, output, shape, **attributes):
        node = {"name": output, "op_type": op, "inputs": inputs, "outputs": [output]}
        if attributes:
            node["attributes"] = attributes
        self.nodes.append(node)
        self.shapes[output] = shape
        return output

    def rename(self, name):
        return self.prefix + name if name else name

    def print(self, *outputs):
        for item in self.inputs + self.initializers + self.nodes:
            item["name"] = self.rename(item["name"])
        for node in self.nodes:
            for key in ("inputs", "outputs"):
                node[key] = [self.rename(name) for name in node[key]]
        lists = [("inputs", self.inputs), ("initializers", self.initializers),
                 ("nodes", self.nodes), ("outputs", [self.rename(name) for name in outputs])]
        print("{")
        for key, items in lists:
            body = ",\n".join("  " + json.dumps(item) for item in items)
            print(' "%s": [\n%s\n ]%s' % (key, body, "," if key != "outputs" else ""))
        print("}")


class Transformer(Model):
    """The layers of a vision transformer; `affine` has scales N(1, 0.3) and biases N(0, 0.1)."""

    def __init__(self, tokens, width, heads, hidden, affine):
        super().__init__()
        self.tokens, self.width = tokens, width
        self.heads, self.hidden, self.affine = heads, hidden, affine

    def weight(self, name, rows, columns):
        return self.parameter(name, [rows, columns], math.sqrt(2 / (rows + columns)))

    def bias(self, name, columns):
        return self.parameter(name, [1, 1, columns], 0.1 if self.affine else 1e-6)

    def linear(self, x, name, columns):
        shape = self.shapes[x][:-1] + [columns]
        w = self.weight(name + ".weight", self.shapes[x][-1], columns)
        b = self.bias(name + ".bias", columns)
        y = self.node("MatMul", [x, w], name + ".product", shape)
        return self.node("Add", [y, b], name, shape)

    def norm(self, x, name):
        scale = self.parameter(name + ".scale", [1, 1, self.width], 0.3 if self.affine else 0, 1)
        bias = self.bias(name + ".bias", self.width)
        return self.node("LayerNormalization", [x, scale, bias], name, self.shapes[x],
                         axis=-1, epsilon=1e-6)

    def split(self, x):
        """[batch, rows, width] -> [batch, heads, rows, size]"""
        batch, rows, width = self.shapes[x]
        size = width // self.heads
        parts = self.integers("heads", [0, 0, self.heads, size])
        y = self.node("Reshape", [x, parts], x + ".heads", [batch, rows, self.heads, size])
        return self.node("Transpose", [y], x + ".split", [batch, self.heads, rows, size],
                         perm=[0, 2, 1, 3])

    def merge(self, x, name):
        batch, heads, rows, size = self.shapes[x]
        y = self.node("Transpose", [x], name + ".rows", [batch, rows, heads, size],
                      perm=[0, 2, 1, 3])
        whole = self.integers("merged", [0, 0, heads * size])
        return self.node("Reshape", [y, whole], name, [batch, rows, heads * size])

    def attend(self, query, key, value, name):
        q, k, v = self.split(query), self.split(key), self.split(value)
        y = self.node("Attention", [q, k, v], name + ".heads", self.shapes[q])
        return self.merge(y, name + ".merged")

    def projected(self, x, name):
        query, key, value = (self.linear(x, name + "." + part, self.width)
                             for part in ("query", "key", "value"))
        y = self.attend(query, key, value, name)
        return self.linear(y, name + ".output", self.width)

    def mlp(self, x, name):
        y = self.linear(x, name + ".up", self.hidden)
        y = self.node("Gelu", [y], name + ".gelu", self.shapes[y], approximate="tanh")
        return self.linear(y, name + ".down", self.width)

    def add(self, a, b, name):
        return self.node("Add", [a, b], name, self.shapes[a])

    def stem(self, patch):
        x = self.input("image.patches", [1, self.tokens, patch], 0.5)
        x = self.linear(x, "embedding", self.width)
        position = self.parameter("position", [1, self.tokens, self.width],
                                  1 / math.sqrt(self.width))
        return self.add(x, position, "stem")

    def layer(self, x, name):
        y = self.projected(self.norm(x, name + ".attention_norm"), name + ".attention")
        x = self.add(x, y, name + ".attended")
        y = self.mlp(self.norm(x, name + ".mlp_norm"), name + ".mlp")
        return self.add(x, y, name + ".result")

    def pool(self, x):
        """One learnt query attends to all tokens."""
        probe = self.parameter("map.probe", [1, 1, self.width], 1 / math.sqrt(self.width))
        query = self.linear(probe, "map.attention.query", self.width)
        key = self.linear(x, "map.attention.key", self.width)
        value = self.linear(x, "map.attention.value", self.width)
        y = self.attend(query, key, value, "map.attention")
        y = self.linear(y, "map.attention.output", self.width)
        return self.add(y, self.mlp(self.norm(y, "map.norm"), "map.mlp"), "embedding.pooled")


def vit(tokens, width, heads, hidden, layers, affine=False):
    m = Transformer(tokens, width, heads, hidden, affine)
    x = m.stem(588)
    for i in range(layers):
        x = m.layer(x, "encoder" if layers == 1 else "encoder.layer%d" % i)
    m.print(m.pool(m.norm(x, "encoder.final_norm")))


def mlp():
    m = Model()
    x = m.input("x", [1, 729, 1152], 0.25)
    up = m.parameter("up", [1152, 4304], 1 / math.sqrt(1152))
    down = m.parameter("down", [4304, 1152], 1 / math.sqrt(4304))
    x = m.node("MatMul", [x, up], "hidden", [1, 729, 4304])
    x = m.node("Gelu", [x], "gelu", [1, 729, 4304], approximate="tanh")
    m.print(m.node("MatMul", [x, down], "y", [1, 729, 1152]))


def attention(tokens, heads, size):
    width = heads * size
    m = Transformer(tokens, width, heads, 0, False)
    x = m.input("x", [1, tokens, width], 0.25)
    parts = []
    for name in ("query", "key", "value"):
        w = m.parameter(name + ".weight", [width, width], 1 / math.sqrt(width))
        parts.append(m.node("MatMul", [x, w], name, [1, tokens, width]))
    m.print(m.attend(*parts, "attention"))


def gemm(size):
    m = Model()
    x = m.input("x", [size, size], 0.5)
    w = m.parameter("w", [size, size], 1 / math.sqrt(size))
    m.print(m.node("MatMul", [x, w], "y", [size, size]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = ("vit-small", "vit-small-affine", "so400m", "mlp", "attention", "gemm")
    parser.add_argument("workload", choices=kinds)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=729)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--head-size", type=int, default=72)
    parser.add_argument("--prefix", default="", help="goes before all names")
    parser.add_argument("--first-seed", type=int, default=1, help="of the tensors")
    args = parser.parse_args()
    Model.prefix, Model.first_seed = args.prefix, args.first_seed
    if args.workload == "so400m":
        vit(729, 1152, 16, 4304, args.layers)
    elif args.workload.startswith("vit-small"):
        vit(4, 144, 2, 288, args.layers, args.workload.endswith("affine"))
    elif args.workload == "gemm":
        gemm(args.size)
    elif args.workload == "attention":
        attention(args.tokens, args.heads, args.head_size)
    else:
        mlp()


if __name__ == "__main__":
    main()
