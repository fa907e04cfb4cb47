"""States and their differences in the notation of the vectors: hex strings, zeros left out."""


def changed(before, after):
    return {str(n): hex(y) for n, (x, y) in enumerate(zip(before, after)) if x != y}


def set_values(numbers):
    return {str(n): hex(x) for n, x in enumerate(numbers) if x}


def memory_text(mem):
    """Bytes by address as runs."""
    runs, start = {}, None
    for addr in sorted(mem):
        if start is None or addr != start + len(runs[start]):
            start = addr
            runs[start] = bytearray()
        runs[start].append(mem[addr])
    return {hex(at): data.hex() for at, data in runs.items()}


def describe(machine):
    state = {"pc": hex(machine.pc), "m": set_values(machine.m), "a": set_values(machine.a),
             "acc": set_values(machine.acc), "cwei": set_values(machine.cwei),
             "csr": {n: hex(x) for n, x in machine.csr.items() if x},
             "mem": memory_text(machine.mem)}
    return {key: value for key, value in state.items() if value}


def differences(before, after):
    state = {"pc": hex(after.pc), "m": changed(before.m, after.m), "a": changed(before.a, after.a),
             "acc": changed(before.acc, after.acc), "cwei": changed(before.cwei, after.cwei),
             "csr": {n: hex(x) for n, x in after.csr.items() if x != before.csr[n]},
             "mem": memory_text({at: x for at, x in after.mem.items()
                                 if before.mem.get(at, 0) != x})}
    state = {key: value for key, value in state.items() if value}
    if after.exit is not None:
        state["exit"] = after.exit
    if after.launch:
        state["launch"] = [{"pc": hex(pc), "VERTEX_BASE": hex(at)} for pc, at in after.launch]
    return state
