#!/usr/bin/python3
"""Writes the digits test set (360 images) as x.npy (float16, [360, 64], values 0..1) and
labels.npy (int64, [360]) into a folder. Usage: /usr/bin/python3 images.py FOLDER"""
import sys

import numpy as np
from sklearn.datasets import load_digits

x, labels = load_digits(return_X_y=True)
is_test = np.arange(len(x)) % 5 == 0
np.save(f"{sys.argv[1]}/x.npy", (x[is_test] / 16.0).astype("<f2"))
np.save(f"{sys.argv[1]}/labels.npy", labels[is_test].astype("<i8"))
