"""Independent model of the tile's instructions: state and issue groups.

It is written from the fact sheets alone and shares nothing with the simulator, so that both can
be held against each other by vectors (generate.py). A machine holds one context; step() runs one
issue group: all halves read the state as it was, their writes are gathered in Issue objects and
committed together, an exception drops everything but FP_STS and WSR. The forms are in mainpipe.py
(integer, memory, control), floats.py and matrix.py, the numbers in formats.py and reals.py.
"""
import re

import floats
import matrix
from formats import MASK32
from mainpipe import (BASE, CONTROL, INTEGER, SUPERVISOR_CSR, UPPER_CSR, WORKER_CSR, Raised,
                      integer, memory, signed)

ETYPE = {"PBRK0": 2, "PBRK1": 3, "FP": 5, "CONFLICT": 6, "INVALID_ADDR": 8, "INVALID_OP": 9,
         "INVALID_PC": 10, "INVALID_INSTR": 12}


class Machine:
    """One context. program: (main,), (aux,) or (main, aux) by address, each a (form, values)."""

    def __init__(self, supervisor=False):
        self.supervisor = supervisor
        self.pc = BASE
        self.m, self.a, self.acc, self.cwei = [0] * 16, [0] * 16, [0] * 32, [0] * 64
        names = SUPERVISOR_CSR.values() if supervisor else \
            [n for n in WORKER_CSR.values() if n not in ("PC", "COUNT_L", "COUNT_U")] + \
            [n for n in UPPER_CSR if n not in ("FP_CLR", "PRNG_SEED")]
        self.csr = {name: 0 for name in names}
        self.mem = {}
        self.program = {}
        self.issued = []               # halves of the last group
        self.exit = None
        self.launch = []

    def reg(self, file, n):
        """Value of a register as an operand sees it."""
        if file == "a":
            return 0 if n >= 14 else self.a[n]
        if n == 15:
            return 0
        if n in (12, 13) and not self.supervisor:
            return self.csr["WORKER_BASE" if n == 12 else "VERTEX_BASE"]
        return self.m[n]

    def load(self, addr, size):
        return sum(self.mem.get(addr + i, 0) << 8 * i for i in range(size))

    def step(self):
        """Runs one issue group; the name of the exception that it raised, or None."""
        group = self.program[self.pc]
        repeating = not self.supervisor and self.csr["REPEAT_COUNT"] != 0
        issues = self.issued = [Issue(self, f, v, len(group) > 1) for f, v in group]
        try:
            if repeating and (len(group) == 1 or group[0][0].flags.strip("k-")):
                raise Raised("INVALID_INSTR")
            if self.supervisor and (len(group) > 1 or group[0][0].unit == "worker"):
                raise Raised("INVALID_INSTR")
            targets = [issue.destinations() for issue in issues]
            if len(targets) > 1 and targets[0] & targets[1]:
                raise Raised("INVALID_INSTR")
            for issue in issues:
                issue.run()
        except Raised as raised:
            self.fail(str(raised), repeating, issues)
            return str(raised)
        next_pc = self.pc + 4 * len(group)
        for issue in issues:
            issue.commit()
            if issue.target is not None:
                next_pc = issue.target
        if repeating and next_pc == self.csr["REPEAT_END"]:
            self.csr["REPEAT_COUNT"] -= 1
            if self.csr["REPEAT_COUNT"] != 0:
                next_pc = self.csr["REPEAT_FIRST"]
        self.pc = next_pc
        return None

    def fail(self, name, repeating, issues):
        if self.supervisor:
            return
        for issue in issues:
            self.csr["FP_STS"] |= issue.flags
        self.csr["WSR"] = self.csr["WSR"] & 7 | ETYPE[name] << 4 | repeating << 9


class Issue:
    """One instruction of an issue group while it runs: operands, and everything it will write."""

    def __init__(self, machine, form, values, bundled):
        self.machine, self.form, self.v, self.bundled = machine, form, values, bundled
        self.registers, self.acc, self.cwei, self.csr, self.mem = {}, {}, {}, {}, {}
        self.flags = 0
        self.ulp, self.class_mask = 0, None    # how exactly the result is known
        self.target = self.exit = None
        self.launch = []

    # -- operands ----------------------------------------------------------------------------------

    def numbers(self, letter):
        """Registers an operand names: the low bits of a pair's or quad's number do not count."""
        kind, n = self.form.kind[letter], self.v[letter]
        if kind.endswith("pair"):
            return [n & 14, n | 1]
        if kind.endswith("quad"):
            return [(n & 12) + i for i in range(4)]
        return [n]

    def words(self, letter):
        """The 32-bit words of a register operand, broadcasts still one word."""
        file = self.form.kind[letter][0]
        return [self.machine.reg(file, n) for n in self.numbers(letter)]

    def reg(self, letter):
        return self.words(letter)[0]

    def imm(self, letter):
        v = self.v[letter]
        return signed(v, self.form.width(letter)) if self.form.is_signed(letter) else v

    def value(self, letter):
        """Register or immediate, whichever the form has."""
        if self.form.is_register(letter):
            return self.reg(letter)
        if self.form.kind[letter].startswith("iz"):
            return self.v[letter] << 20
        return self.imm(letter) & MASK32

    def write(self, letter, *words):
        file = self.form.kind[letter][0]
        for n, word in zip(self.numbers(letter), words):
            self.registers[file, n] = word & MASK32

    def destinations(self):
        """General registers that the form writes, as (file, number)."""
        return set(self.destination_list())

    def destination_list(self):
        found = []
        for letter in written_letters(self.form):
            file = self.form.kind[letter][0]
            numbers = self.numbers(letter)
            if self.form.mnemonic == "ld64a32" and letter == "d":
                numbers = numbers[1:]
            found += [(file, n) for n in numbers if n < (12 if file == "m" else 8)]
        return found

    # -- running -----------------------------------------------------------------------------------

    def run(self):
        listed = self.destination_list()
        if len(listed) != len(set(listed)):
            raise Raised("INVALID_OP")
        name = self.form.mnemonic
        if self.form.pipe == "aux" and name not in ("uget", "uput"):
            if name in INTEGER:
                integer(self)
            elif not (floats.run(self) or matrix.run(self)):
                raise AssertionError("no semantics for " + self.form.name)
            if self.flags & self.machine.csr["FP_CTL"] & 7:
                raise Raised("FP")
        elif name in INTEGER:
            integer(self)
        elif name in CONTROL:
            CONTROL[name](self)
        else:
            memory(self)

    def commit(self):
        machine = self.machine
        for (file, n), word in self.registers.items():
            if n < (12 if file == "m" else 8):
                (machine.m if file == "m" else machine.a)[n] = word
        for n, word in self.acc.items():
            machine.acc[n] = word
        for n, word in self.cwei.items():
            machine.cwei[n] = word
        machine.csr.update(self.csr)
        machine.mem.update(self.mem)
        if self.flags:
            machine.csr["FP_STS"] |= self.flags
        if self.exit is not None:
            machine.exit = self.exit
        machine.launch += self.launch


WRITES_B = re.compile(r"(step|pace|ld64a32|ldd16\w+|ldb16b16)$")


def written_letters(form):
    name = form.mnemonic
    if name in ("run", "runall", "put", "uput", "trap", "br", "bri", "rpt", "stm32", "ld64putcs",
                "ld128putcs", "f16v2cmac", "f16v4cmac", "f32mac", "f32v2mac", "f32v2aop") or \
            re.match(r"(exit|br[nzp]\w*)", name) or re.match(r"f\d+v\d(abs|sq)?acc$", name):
        return "a" if name == "brnzdec" else ""
    if name == "movz":
        return "b"
    letters = "b" if WRITES_B.search(name) else ""
    if name in ("ldb16b16",) or name.startswith("ldd16"):
        letters += "c"
    if name in ("ld2x64pace", "ld64a32pace", "ld64b16pace"):
        return letters + "cd"
    if name in ("ldst64pace", "ld2xst64pace"):
        return letters + "c"
    if name.startswith("st") and name[2:3].isdigit() or name == "stm32step":
        return letters
    return letters + ("d" if name.startswith("ld") or name == "tapack" else "a")
