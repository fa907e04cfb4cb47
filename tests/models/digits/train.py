#!/usr/bin/python3
"""Trains the digits network once; its products (weights.safetensors, model.json) are committed.

The data are the UCI handwritten digits as Debian's python3-sklearn carries them: 1,797 images of
8x8 pixels with values 0..16. Images whose index mod 5 is 0 are the test set (360), the rest train.
Usage: /usr/bin/python3 tests/models/digits/train.py FOLDER
"""
import json
import struct
import sys
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

LAYERS = (512, 128)
BATCH = 8


def save_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array, dtype="<f2").tobytes()
        header[name] = {
            "dtype": "F16",
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def model(tensors):
    initializers = [
        {"name": name, "dtype": "float16", "shape": list(array.shape),
         "file": "weights.safetensors", "tensor": name}
        for name, array in tensors.items()
    ]
    nodes, value = [], "pixels"
    for i in range(len(LAYERS) + 1):
        last = i == len(LAYERS)
        nodes.append({"op_type": "Gemm", "inputs": [value, f"w{i}", f"b{i}"], "outputs": [f"z{i}"]})
        activation = ("Softmax", "probabilities") if last else ("Relu", f"h{i}")
        nodes.append({"op_type": activation[0], "inputs": [f"z{i}"], "outputs": [activation[1]]})
        value = activation[1]
    return {
        "inputs": [{"name": "pixels", "dtype": "float16", "shape": [BATCH, 64]}],
        "initializers": initializers,
        "nodes": nodes,
        "outputs": ["probabilities"],
    }


def main(folder):
    x, labels = load_digits(return_X_y=True)
    x = x / 16.0
    is_test = np.arange(len(x)) % 5 == 0
    network = MLPClassifier(hidden_layer_sizes=LAYERS, alpha=1e-3, max_iter=60, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.fit(x[~is_test], labels[~is_test])
    tensors = {}
    for i, (w, b) in enumerate(zip(network.coefs_, network.intercepts_)):
        tensors[f"w{i}"] = w.astype("<f2")
        tensors[f"b{i}"] = b.astype("<f2")
    save_safetensors(f"{folder}/weights.safetensors", tensors)
    with open(f"{folder}/model.json", "w", encoding="ascii") as out:
        json.dump(model(tensors), out, indent=1)
        out.write("\n")
    print(f"test accuracy {network.score(x[is_test], labels[is_test]):.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
