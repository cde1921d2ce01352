#!/usr/bin/env python3
"""Cycles of the inner loops of 64-bit Arm's kernels, by llvm-mca's models of processors: no times, as nothing here knows of
caches, and a model is not the processor.

    tests/arm/cycles.py PROGRAM [LLVM_MCA]

PROGRAM is the tool or the daemon, built for 64-bit Arm and optimised. Of each kernel's innermost loops those are shown
that multiply the most. What a loop takes is told as the share of the processor's multiplications that it uses: the model
itself says how many there are, by a loop of nothing else.
"""

import re
import subprocess
import sys

# The kernels' functions, by what their demangled names contain.
KERNELS = [
    ("floats, NEON", "gemm::float::neon"),
    ("bytes, NEON", "gemm::eights_neon"),
    ("bytes, SDOT and UDOT", "gemm::quant::DOTPROD"),
    ("bytes, I8MM", "gemm::i8mm"),
    ("depthwise floats, NEON", "depthwise::float::"),
    ("depthwise bytes, SDOT", "depthwise::quantised::dotprod"),
]
# What multiplies and adds, and a line of it with registers that depend on nothing.
PRODUCTS = {
    "fmla": "fmla v{0}.4s, v30.4s, v31.4s",
    "sdot": "sdot v{0}.4s, v30.16b, v31.16b",
    "udot": "udot v{0}.4s, v30.16b, v31.16b",
    "smmla": "smmla v{0}.4s, v30.16b, v31.16b",
    "ummla": "ummla v{0}.4s, v30.16b, v31.16b",
    "usmmla": "usmmla v{0}.4s, v30.16b, v31.16b",
    "smull": "smull v{0}.8h, v30.8b, v31.8b",
    "smull2": "smull2 v{0}.8h, v30.16b, v31.16b",
    "smull2": "smull2 v{0}.8h, v30.16b, v31.16b",
    "smlal": "smlal v{0}.8h, v30.8b, v31.8b",
    "smlal2": "smlal2 v{0}.8h, v30.16b, v31.16b",
}
# Cortex-A76 and X1 have the cores of Neoverse N1 and V1, of which there are models.
PROCESSORS = ["cortex-a55", "cortex-a510", "neoverse-n1", "neoverse-v1"]
ITERATIONS = 400
LOOPS_SHOWN = 2

INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+[0-9a-f]{8}\s+(\S+)\s*(.*)$")
FUNCTION = re.compile(r"^([0-9a-f]+) <(.*)>:$")
TARGET = re.compile(r"\b([0-9a-f]+) <[^>]*>\s*$")


def functions(program):
    """(name, [(address, mnemonic, operands)]) of each function."""
    listing = subprocess.run(
        ["aarch64-linux-gnu-objdump", "--disassemble", "--demangle", "--wide", program],
        check=True, capture_output=True, text=True,
    ).stdout
    name, body = None, []
    for line in listing.splitlines():
        if found := FUNCTION.match(line):
            if body:
                yield name, body
            name, body = found[2], []
        elif found := INSTRUCTION.match(line):
            operands = found[3].split("//")[0].strip()
            body.append((int(found[1], 16), found[2], operands))
    if body:
        yield name, body


def innermost_loops(body):
    """The instructions of each loop that has no other in it."""
    place = {address: i for i, (address, _, _) in enumerate(body)}
    loops = []
    for i, (address, mnemonic, operands) in enumerate(body):
        target = TARGET.search(operands)
        if target and (mnemonic == "b" or mnemonic.startswith(("b.", "cb", "tb"))):
            start = place.get(int(target[1], 16))
            if start is not None and start < i:
                loops.append((start, i))
    return [
        body[start:end + 1]
        for start, end in loops
        if not any(start <= other[0] and other[1] <= end and other != (start, end) for other in loops)
    ]


def products(loop):
    return [mnemonic for _, mnemonic, _ in loop if mnemonic in PRODUCTS]


def cycles(mca, processor, lines):
    """Of one run of these lines after many others; None where the processor does not have an instruction."""
    source = "again:\n" + "\n".join(lines) + "\n"
    done = subprocess.run(
        [mca, "-mtriple=aarch64", f"-mcpu={processor}", f"-iterations={ITERATIONS}"],
        input=source, capture_output=True, text=True,
    )
    found = re.search(r"^Total Cycles:\s+(\d+)$", done.stdout, re.M)
    return int(found[1]) / ITERATIONS if found and done.returncode == 0 else None


def without_addresses(loop):
    return [f"{mnemonic} {TARGET.sub('again', operands)}" for _, mnemonic, operands in loop]


def main():
    program, mca = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "llvm-mca"
    found = {title: [] for title, _ in KERNELS}
    for name, body in functions(program):
        for title, part in KERNELS:
            if part in name:
                found[title] += [loop for loop in innermost_loops(body) if products(loop)]
    print("| loop | instructions | products | " + " | ".join(PROCESSORS) + " |")
    print("|---|---|---|" + "---|" * len(PROCESSORS))
    missing = []
    for title, loops in found.items():
        if not loops:
            missing.append(title)
        loops.sort(key=lambda loop: len(products(loop)) / len(loop) * min(len(products(loop)), 32), reverse=True)
        for loop in loops[:LOOPS_SHOWN]:
            kinds = products(loop)
            cells = []
            for processor in PROCESSORS:
                took = cycles(mca, processor, without_addresses(loop))
                least = cycles(mca, processor, [PRODUCTS[kind].format(i % 24) for i, kind in enumerate(kinds * 4)])
                known = took is not None and least is not None
                cells.append(f"{took:.1f} cycles, {least / 4 / took:.0%}" if known else "")
            told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
            print(f"| {title} | {len(loop)} | {told} | " + " | ".join(cells) + " |")
    if missing:
        sys.exit("no loop was found of: " + ", ".join(missing))


main()
