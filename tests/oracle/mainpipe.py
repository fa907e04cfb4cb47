"""Forms of the main pipe, and the integer ones of both: logic, permutation, memory, control.

Each takes an Issue (oracle.py), reads its operands and records what it will write; an exception of
the tile is raised as Raised by name. Of several wrong things in one access an invalid address goes
before a conflict.
"""
import re

from formats import MASK32

BASE, REGION1, END = 0x4C000, 0x80000, 0xE8000

WORKER_CSR = {0: "PC", 1: "WSR", 2: "VERTEX_BASE", 3: "WORKER_BASE", 4: "REPEAT_COUNT",
              5: "REPEAT_FIRST", 6: "REPEAT_END", 0x60: "COUNT_L", 0x61: "COUNT_U",
              0x70: "DBG_DATA", 0x71: "DBG_BRK_ID"}
UPPER_CSR = ["FP_STS", "FP_CLR", "FP_CTL", "PRNG_0_0", "PRNG_0_1", "PRNG_1_0", "PRNG_1_1",
             "PRNG_SEED", "TAS", "FP_NFMT", "FP_SCL"]
SUPERVISOR_CSR = {0x20: "FP_ICTL", 0x31: "FP_INFMT", 0x33: "FP_ISCL", 0x50: "CCCSLOAD"}
WRITABLE = {"FP_CTL": 0x180007, "FP_ICTL": 0x180007, "FP_INFMT": 3, "FP_ISCL": 0x3F,
            "CCCSLOAD": 0xFFFFF, "FP_NFMT": 2, "FP_SCL": 0x3F, "TAS": MASK32, "DBG_DATA": MASK32,
            "PRNG_0_0": MASK32, "PRNG_0_1": MASK32, "PRNG_1_0": MASK32, "PRNG_1_1": MASK32}


class Raised(Exception):
    """An exception of the tile, by name."""


def signed(x, bits=32):
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


# ---- integer -------------------------------------------------------------------------------------

def halves(x):
    return [x & 0xFFFF, x >> 16]


def bytes_of(x):
    return [x >> 8 * i & 0xFF for i in range(4)]


def join(parts, bits):
    return sum(p << bits * i for i, p in enumerate(parts))


def pick8(order):
    """Bytes 0-3 of the first operand, 4-7 of the second, in the order of the result."""
    return lambda x, y=0: join([(bytes_of(x) + bytes_of(y))[i] for i in order], 8)


def pick16(order):
    return lambda x, y: join([(halves(x) + halves(y))[i] for i in order], 16)


def matching_signs(x):
    ones = x ^ (MASK32 if x >> 31 else 0)
    return 31 - ones.bit_length()


def reverse_bytes(x):
    return join([int("{:08b}".format(b)[::-1], 2) for b in bytes_of(x)], 8)


INTEGER = {
    "abs": lambda x: 0 if x == 1 << 31 else abs(signed(x)),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: y - x,
    "mul": lambda x, y: x * y,
    "and": lambda x, y: x & y,
    "andc": lambda x, y: x & ~y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "xnor": lambda x, y: ~(x ^ y),
    "not": lambda x: ~x,
    "shl": lambda x, y: x << y % 32,
    "shr": lambda x, y: x >> y % 32,
    "shrs": lambda x, y: signed(x) >> y % 32,
    "min": lambda x, y: min(signed(x), signed(y)),
    "max": lambda x, y: max(signed(x), signed(y)),
    "cmpeq": lambda x, y: x == y,
    "cmpne": lambda x, y: x != y,
    "cmpslt": lambda x, y: signed(x) < signed(y),
    "cmpult": lambda x, y: x < y,
    "clz": lambda x: 32 - x.bit_length(),
    "popc": lambda x: bin(x).count("1"),
    "cms": matching_signs,
    "bitrev8": reverse_bytes,
    "roll16": pick16([1, 2]),
    "sort4x16lo": pick16([0, 2]),
    "sort4x16hi": pick16([1, 3]),
    "roll8l": pick8([3, 4, 5, 6]),
    "roll8r": pick8([1, 2, 3, 4]),
    "shuf8x8lo": pick8([0, 4, 1, 5]),
    "shuf8x8hi": pick8([2, 6, 3, 7]),
    "sort8x8lo": pick8([0, 2, 4, 6]),
    "sort8x8hi": pick8([1, 3, 5, 7]),
    "sort8": pick8([0, 2, 1, 3]),
    "swap8": pick8([1, 0, 3, 2]),
    "and64": lambda x, y: [p & q for p, q in zip(x, y)],
    "andc64": lambda x, y: [p & ~q for p, q in zip(x, y)],
    "or64": lambda x, y: [p | q for p, q in zip(x, y)],
    "not64": lambda x: [~p for p in x],
    "roll32": lambda x, y: [x[1], y[0]],
    "sort4x32lo": lambda x, y: [x[0], y[0]],
    "sort4x32hi": lambda x, y: [x[1], y[1]],
    "setzi": lambda x: x,
}


def integer(i):
    """Forms whose result depends on their operands alone; a is the destination, b and c follow."""
    wide = i.form.kind["a"].endswith("pair")
    operands = []
    for letter in "bc":
        if letter in i.form.kind:
            x = i.words(letter) if wide else i.value(letter)
            if i.form.kind[letter] == "a:BL":
                x = (x & 0xFFFF) * 0x10001
            elif i.form.kind[letter] == "a:BU":
                x = (x >> 16) * 0x10001
            operands.append(x)
    result = INTEGER[i.form.mnemonic](*operands)
    i.write("a", *(result if wide else [int(result)]))


# ---- memory --------------------------------------------------------------------------------------

def is_valid(addr):
    return BASE <= addr < END


def is_code(addr):
    return BASE <= addr < REGION1


def element(addr):
    if addr < REGION1:
        return addr - BASE >> 14
    return 13 + 2 * (addr - REGION1 >> 15) + (addr >> 3 & 1)


def fetched(i):
    """Elements that instruction fetch of the context may touch meanwhile."""
    machine = i.machine
    if machine.supervisor:
        first, last = machine.pc + 4, machine.pc + 64
    elif machine.csr["REPEAT_COUNT"]:
        first, last = machine.csr["REPEAT_FIRST"], machine.csr["REPEAT_END"]
    else:
        first, last = machine.pc + 4, machine.pc + 16
    return {element(addr) for addr in range(first, last + 1, 4) if is_code(addr)}


def check(i, accesses, interleaved=()):
    """accesses: (address, bytes) of one instruction. Invalid addresses first, conflicts last."""
    for n, (addr, size) in enumerate(accesses):
        if not is_valid(addr) or addr % size or (size == 16 or n in interleaved) and is_code(addr):
            raise Raised("INVALID_ADDR")
    elements = [element(addr) for addr, _ in accesses]
    clash = fetched(i)
    for n, (addr, _) in enumerate(accesses):
        if elements[n] in elements[:n] + elements[n + 1:] or is_code(addr) and elements[n] in clash:
            raise Raised("CONFLICT")


def store(i, addr, words):
    for n, word in enumerate(words):
        for b in range(4):
            i.mem[addr + 4 * n + b] = word >> 8 * b & 0xFF


def load_words(i, addr, size):
    return [i.machine.load(addr + at, min(4, size)) for at in range(0, size, 4)]


SIMPLE = re.compile(r"(ldb|lds|ldz|ld|st)(8|16|32|64|128)(step)?$")


def memory(i):
    name = i.form.mnemonic
    simple = SIMPLE.match(name)
    if simple:
        return access(i, simple.group(1), int(simple.group(2)) // 8, simple.group(3))
    if name.startswith("stm32"):
        if name == "stm32":
            addr = i.reg("a") + 4 * i.reg("b") & MASK32
        else:
            addr = i.reg("b")
            i.write("b", addr + 4 * i.reg("a"))
        check(i, [(addr, 4)])
        return store(i, addr, [i.reg("c")])
    if name.endswith("putcs"):
        return put_coefficient(i, 8 if name == "ld64putcs" else 16)
    if name.endswith("pace"):
        return pace(i)
    return sparse(i)


def access(i, kind, size, stepping):
    """A single load or store: base a, delta b, offset or step c, data d."""
    file = i.form.kind["d"][0]
    amount = (i.reg("c") if i.form.is_register("c") else i.imm("c")) * size
    addr = i.reg("a") + i.reg("b") + (0 if stepping else amount) & MASK32
    check(i, [(addr, size)])
    if stepping:
        i.write("b", i.reg("b") + amount)
    if kind == "st":
        return store(i, addr, i.words("d"))
    words = load_words(i, addr, size)
    if kind == "lds":
        words = [signed(words[0], 8 * size)]
    elif kind == "ldb":
        words = [words[0] * (0x01010101 if size == 1 else 0x10001)]
    assert len(words) == 1 or file == "a"
    i.write("d", *words)


def put_coefficient(i, size):
    addr, n = i.machine.csr["CCCSLOAD"], i.v["a"]
    if n >= 64 or size == 16 and n & 1:
        raise Raised("INVALID_OP")
    check(i, [(addr, size)])
    for k in range(size // 8):
        i.cwei[n + k] = i.machine.load(addr + 8 * k, 8)
    i.csr["CCCSLOAD"] = addr + size & 0xFFFFF


def unpack_addresses(low, high):
    return [low & 0x1FFFFF, high & 0x1FFFFF, low >> 21 | (high >> 21 & 0x3FF) << 11]


def pack_addresses(p):
    return [p[0] & 0x1FFFFF | (p[2] & 0x7FF) << 21,
            p[1] & 0x1FFFFF | (p[2] >> 11 & 0x3FF) << 21]


# Which packed addresses are used, with their sizes; the last one of the st forms is the store.
PACE = {"ld2x64pace": [(0, 8), (1, 8)], "ld64a32pace": [(0, 8), (1, 4)],
        "ld64b16pace": [(0, 8), (1, 2)], "ldst64pace": [(0, 8), (2, 8)],
        "ld2xst64pace": [(0, 8), (1, 8), (2, 8)], "st64pace": [(2, 8)]}


def pace(i):
    name = i.form.mnemonic
    used = PACE[name]
    addresses = unpack_addresses(*i.words("b"))
    strides, selectors = i.reg("a"), i.v["c" if name == "st64pace" else "e"]
    check(i, [(addresses[n], size) for n, size in used],
          interleaved=[1] if name == "ld2xst64pace" else [])
    loaded = [load_words(i, addresses[n], size) for n, size in used if n < 2]
    if name in ("st64pace", "ldst64pace", "ld2xst64pace"):
        store(i, addresses[2], i.words("d"))
    if name == "ld2xst64pace":
        i.write("c", *(loaded[0] + loaded[1]))
    elif name != "st64pace":
        i.write("c", *loaded[0])
        if name == "ld64b16pace":
            i.write("d", loaded[1][0] * 0x10001)
        elif name != "ldst64pace":
            i.write("d", *loaded[1])
    for k, (n, size) in enumerate(used):
        select = selectors >> 2 * k & 3
        stride = 1 if select == 0 else signed(strides >> 10 * (select - 1) & 0x3FF, 10)
        addresses[n] = addresses[n] + stride * size & 0x1FFFFF
    i.write("b", *pack_addresses(addresses))


def sparse(i):
    """Loads through a 16-bit delta from base a."""
    name, base = i.form.mnemonic, i.reg("a")
    delta = halves(i.reg("c"))
    if name == "ldb16b16":
        dense, data = base + delta[1] & MASK32, base + delta[0] & MASK32
        check(i, [(dense, 2), (data, 2)])
        mini = i.reg("b")
        i.write("d", *[i.machine.load(addr, 2) * 0x10001 for addr in (dense, data)])
        i.write("b", mini >> 4)
        i.write("c", (delta[0] + 2 * ((mini & 15) + 1) & 0xFFFF) | (delta[1] + 2 & 0xFFFF) << 16)
        return
    pointer = i.reg("b")
    size, grows = {"ldd16a32": (4, 2), "ldd16a64": (8, 2), "ldd16b16": (2, 2),
                   "ldd16v2a32": (4, 4), "ld64a32": (4, 8)}[name]
    addr = base + delta[name == "ldd16v2a32"] & MASK32
    check(i, [(addr, size), (pointer, grows)])
    words = load_words(i, addr, size)
    i.write("b", pointer + grows)
    if name == "ld64a32":
        i.write("d", *([i.machine.reg("a", i.numbers("d")[0])] + words +
                       load_words(i, pointer, 8)))
        del i.registers["a", i.numbers("d")[0]]
        return
    i.write("c", i.machine.load(pointer, grows))
    i.write("d", *([words[0] * 0x10001] if size == 2 else words))


# ---- control and system --------------------------------------------------------------------------

def branch_target(addr):
    if addr % 4 or not is_code(addr):
        raise Raised("INVALID_PC")
    return addr


def branch(taken):
    def run(i):
        target = branch_target(i.v["b"] << 2)
        x = i.reg("a")
        if taken(x):
            i.target = target
        if i.form.mnemonic == "brnzdec":
            i.write("a", x - 1)
    return run


def branch_register(i):
    i.target = branch_target(i.reg("a"))


def branch_immediate(i):
    i.target = branch_target(i.v["a"] << 2)


def call(i):
    i.target = branch_target(i.v["b"] << 2 & 0x1FFFFF)
    i.write("a", i.machine.pc + (8 if i.bundled else 4))


def leave(condition):
    def run(i):
        i.exit = condition(i.reg("a"))
    return run


def repeat(i):
    first = i.machine.pc + (8 if i.bundled else 4)
    end = first + 8 * (i.v["b"] + 1)
    if first % 8 or not is_code(first) or not is_code(end):
        raise Raised("INVALID_OP")
    count = i.value("a") & 0xFFFF
    if count:
        i.csr.update(REPEAT_COUNT=count, REPEAT_FIRST=first, REPEAT_END=end)
    else:
        i.target = end


def launch(i):
    entry, base, offset = i.reg("a"), i.reg("b"), i.v["c"] << 2
    if entry % 4 or base % 4 or not is_code(entry):
        raise Raised("INVALID_OP")
    bases = [base + offset + BASE] if i.form.mnemonic == "run" else \
        [base + offset * n for n in range(6)]
    i.launch = [(entry, at & 0xFFFFC) for at in bases]


def trap(i):
    raise Raised("PBRK1" if i.v["a"] & 1 else "PBRK0")


def csr_name(i, upper):
    n = i.v["b"]
    if upper:
        name = UPPER_CSR[n] if n < len(UPPER_CSR) else None
    else:
        name = (SUPERVISOR_CSR if i.machine.supervisor else WORKER_CSR).get(n)
    if name is None:
        raise Raised("INVALID_OP")
    return name


def get(i):
    name = csr_name(i, i.form.mnemonic == "uget")
    i.write("a", i.machine.pc if name == "PC" else i.machine.csr.get(name, 0))


def put(i):
    name, x = csr_name(i, i.form.mnemonic == "uput"), i.reg("a")
    if name == "FP_CLR":
        i.csr["FP_STS"] = i.machine.csr["FP_STS"] & ~x & 7
        if x >> 3 & 1:
            i.acc = {n: 0 for n in range(32)}
    elif name == "PRNG_SEED":
        y = ~x & MASK32
        i.csr.update(PRNG_0_0=x, PRNG_0_1=y, PRNG_1_0=(x << 13 | y >> 19) & MASK32,
                     PRNG_1_1=(y << 13 | x >> 19) & MASK32)
    elif name in WRITABLE:
        keep = i.machine.csr[name] & 1 if name == "FP_NFMT" else 0
        i.csr[name] = x & WRITABLE[name] | keep


def move_nonzero(i):
    i.write("b", i.reg("c") if i.reg("a") else i.reg("b"))


def copy_to_main(i):
    i.write("a", i.reg("b"))


def pack_triple(i):
    i.write("d", *pack_addresses([i.reg(letter) for letter in "abc"]))


CONTROL = {
    "br": branch_register, "bri": branch_immediate, "call": call,
    "brz": branch(lambda x: x == 0), "brnz": branch(lambda x: x != 0),
    "brneg": branch(lambda x: x >> 31 == 1), "brpos": branch(lambda x: x >> 31 == 0),
    "brnzdec": branch(lambda x: x != 0),
    "exitz": leave(lambda x: x == 0), "exitnz": leave(lambda x: x != 0),
    "exitneg": leave(lambda x: x >> 31 == 1), "exitpos": leave(lambda x: x >> 31 == 0),
    "rpt": repeat, "run": launch, "runall": launch, "trap": trap, "get": get, "put": put,
    "uget": get, "uput": put, "movz": move_nonzero, "atom": copy_to_main, "tapack": pack_triple,
}
