"""The instruction forms of the tile as a table (forms.tsv), and the encoder over it.

An operand is a letter and a kind, in assembly order. Kinds of registers: m, a, m:pair, a:pair,
a:quad, a:B, a:BL, a:BU, with the mandatory text behind the register (+=, ++, >>, @) kept apart.
Everything else is an immediate; its value here is the encoded number. In the encoding a letter
marks the bits of its operand, most significant first, unless the field column maps them.
"""
import os
import re


class Form:
    def __init__(self, line):
        (self.mnemonic, self.form, self.unit, self.pipe, self.flags, operands, self.bits,
         fields) = line.split("\t")
        self.name = self.mnemonic + "." + self.form
        self.kind, self.suffix = {}, {}
        for item in filter(None, operands.split(",")):
            letter, kind = item.split("=", 1)
            self.suffix[letter] = re.search(r"(\+=|\+\+|>>|@)?$", kind).group(0)
            self.kind[letter] = kind[:len(kind) - len(self.suffix[letter])]
        self.places = {}
        for letter in self.kind:
            at = [31 - i for i, c in enumerate(self.bits) if c == letter]
            self.places[letter] = list(zip(range(len(at) - 1, -1, -1), at))
        mapped = {}
        for piece in ([] if fields == "-" else fields.split(",")):
            letter, high, low, to = re.match(r"(\w)\[(\d+):(\d+)\]->(\d+):", piece).groups()
            mapped.setdefault(letter, []).extend(
                (n, int(to) - (int(high) - n)) for n in range(int(low), int(high) + 1))
        self.places.update(mapped)

    def is_register(self, letter):
        return self.kind[letter][0] in "ma" and not self.kind[letter].startswith("abs")

    def width(self, letter):
        """Bits of an immediate."""
        return max(n for n, _ in self.places[letter]) + 1

    def is_signed(self, letter):
        return self.kind[letter].startswith("si")

    def unit_bytes(self, letter):
        """What one of an immediate stands for, as written behind the star."""
        found = re.search(r"\*(\d+)$", self.kind[letter])
        return int(found.group(1)) if found else 1

    def encode(self, values, bundled=False):
        word = 0
        for i, c in enumerate(self.bits):
            word |= (c == "1" or (c == "k" and bundled)) << (31 - i)
        for letter, places in self.places.items():
            for n, at in places:
                word |= (values[letter] >> n & 1) << at
        return word

    def text(self, values):
        return (self.mnemonic + " " + ", ".join(
            self.operand_text(letter, values[letter]) for letter in self.kind)).strip()

    def operand_text(self, letter, value):
        kind, file = self.kind[letter], self.kind[letter][0]
        if not self.is_register(letter):
            return hex(value * 4) if kind.startswith("abs") else str(value)
        if kind.endswith("pair"):
            return "$%s%d:%d%s" % (file, value & ~1, value | 1, self.suffix[letter])
        if kind.endswith("quad"):
            return "$%s%d:%d" % (file, value & ~3, value | 3)
        return "$%s%d%s%s" % (file, value, kind[1:], self.suffix[letter])


def load():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forms.tsv")
    with open(path) as lines:
        forms = [Form(line.rstrip("\n")) for line in lines if not line.startswith("#")]
    return {form.name: form for form in forms}


FORMS = load()
