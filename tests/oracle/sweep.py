"""sweep.py [PREFIX]: vectors that put every code of a format through a conversion or function.

One vector a form and setting: a loop {load ; -} {- ; form} {store ; -} runs over a table of all
65,536 halves (or all 256 quarters) in memory, and the table of results is what must come out.
Results that are only known within a bound (sigmoid) or in part (classes) are not here but in
tests/unit/test_f16_all.c.
"""
import functools
import json
import sys

import floats
import reals
from formats import FIN, f16
from forms import FORMS
from oracle import Machine
from vector import describe

CODE, IN, OUT = 0x4C100, 0x80000, 0xA8000

# Input words and output words a step, for the forms swept with halves.
HALF_FORMS = {
    "f16v2exp": (1, 1), "f16v2exp2": (1, 1), "f16v2ln": (1, 1), "f16v2log2": (1, 1),
    "f16v2tanh": (1, 1), "f16v2sufromui": (1, 1), "f16v2sum": (1, 1), "f16v2maxc": (1, 1),
    "f16v2tof8": (1, 1), "f16tof32": (1, 1), "f16v2tof32": (1, 2), "f16v4maxc": (2, 1),
    "f16v4sum": (2, 2), "f16v4sufromui": (2, 2), "f16v8tof8": (4, 2)}
QUARTER_FORMS = {"f8v2tof16": (1, 1), "f8v4tof16": (1, 2)}
SCALES = (-32, -31, -17, -8, -3, -1, 0, 1, 4, 9, 16, 31)
LOADS = {1: "ld32step.mmbn_si", 2: "ld64step.mmbn_si", 4: "ld128step.mmbn_si"}
STORES = {1: "st32step.mbmn_si", 2: "st64step.mbmn_si"}
ESR, NANOO = 1 << 19, 1 << 20


def cached(module, names):
    for name in names:
        setattr(module, name, functools.lru_cache(None)(getattr(module, name)))


class Quiet:
    """Stands in for an Issue where only a value is wanted."""
    flags = 0


def is_decided(name, half):
    """False for a denormal result that the manual leaves open (rounded once or twice)."""
    match = floats.FUNCTION.match(name)
    if not match:
        return True
    value = floats.function_value(Quiet(), match.group(2), f16(half))
    return value[0] != FIN or not floats.double_rounding(value)


def loop(form, count_in, count_out, steps):
    """Machine with the program; registers 1 and 2 walk the tables, 3 counts."""
    machine = Machine()
    none = {"main": (FORMS["setzi.mmmn_zi"], {"a": 14, "b": 0}),
            "aux": (FORMS["setzi.aaan_zi"], {"a": 13, "b": 0})}
    groups = [
        ((FORMS["rpt.mmmn_zi"], {"a": 3, "b": 2}), none["aux"]),
        ((FORMS[LOADS[count_in]], {"d": 0, "a": 15, "b": 1, "c": 1}), none["aux"]),
        (none["main"], (form, {"a": 4, "b": 0})),
        ((FORMS[STORES[count_out]], {"d": 4, "a": 15, "b": 2, "c": 1}), none["aux"])]
    words, text = [], []
    for group in groups:
        machine.program[CODE + 4 * len(words)] = group
        words += [f.encode(v, True) for f, v in group]
        text.append("{ %s }" % " ; ".join(f.text(v) for f, v in group))
    machine.pc = CODE
    machine.m[1], machine.m[2], machine.m[3] = IN, OUT, steps
    return machine, words, text


def vector(name, number, shape, table, csr):
    form = FORMS[name + ".aaan"]
    steps = len(table) // (4 * shape[0])
    machine, words, text = loop(form, shape[0], shape[1], steps)
    machine.csr.update(csr)
    machine.mem = dict(enumerate(table, IN))
    before = describe(machine)
    old = dict(machine.csr)
    total = 1 + 3 * steps
    for _ in range(total):
        if machine.step() is not None:
            raise AssertionError(name)
    results = bytes(machine.mem[at] for at in range(OUT, OUT + 4 * shape[1] * steps))
    after = {"pc": hex(machine.pc), "mem": {hex(OUT): results.hex()},
             "m": {str(n): hex(machine.m[n]) for n in (1, 2)},
             "a": {str(n): hex(x) for n, x in enumerate(machine.a) if x},
             "csr": {n: hex(x) for n, x in machine.csr.items() if x != old[n]}}
    return {"id": "sweep.%s/%04d" % (name, number), "unit": "worker", "asm": text,
            "words": [hex(w) for w in words], "steps": total, "before": before, "after": after,
            "exception": None, "ulp": 0}


def half_table(name):
    halves = [h if is_decided(name, h) else 0x3C00 for h in range(65536)]
    if name == "f16tof32":
        # Only the low half of a word counts; the high one holds its complement. Two tables.
        return b"".join((h | (h ^ 0xFFFF) << 16).to_bytes(4, "little") for h in halves[::2]), \
            b"".join((h | (h ^ 0xFFFF) << 16).to_bytes(4, "little") for h in halves[1::2])
    return (b"".join(h.to_bytes(2, "little") for h in halves),)


def settings(name):
    """Control registers to sweep a form with."""
    if name.endswith("tof8"):
        for f143 in (0, 2):
            for scale in (-9, -2, 0, 5):
                yield {"FP_NFMT": f143, "FP_SCL": scale & 63, "FP_CTL": NANOO * (scale == -2)}
            yield {"FP_NFMT": f143, "FP_CTL": ESR, "PRNG_0_0": 0x12345, "PRNG_1_1": 0xABCDEF01}
    elif floats.FUNCTION.match(name) and not name.endswith("tanh"):
        yield {}
        yield {"FP_CTL": NANOO}
    else:
        yield {}


def main():
    prefix = sys.argv[1] if len(sys.argv) > 1 else ""
    cached(reals, ("exp", "exp2", "ln", "log2", "tanh"))
    for name, shape in HALF_FORMS.items():
        if name.startswith(prefix):
            number = 0
            for table in half_table(name):
                for csr in settings(name):
                    print(json.dumps(vector(name, number, shape, table, csr)))
                    number += 1
    for name, shape in QUARTER_FORMS.items():
        if name.startswith(prefix):
            number = 0
            for code in range(4 * len(SCALES)):
                csr = {"FP_NFMT": 2 * (code & 1), "FP_CTL": NANOO * (code >> 1 & 1),
                       "FP_SCL": SCALES[code >> 2] & 63}
                table = bytes(range(256))
                if name == "f8v2tof16":      # the upper two codes of a word are not used
                    table = b"".join(bytes([c, 255 - c, 0x80, 0x80]) for c in range(256))
                print(json.dumps(vector(name, number, shape, table, csr)))
                number += 1


if __name__ == "__main__":
    main()
