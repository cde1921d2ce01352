#!/usr/bin/env python3
"""Holds the crates that nnhal is built from to deny.toml: `cargo deny check licenses sources`, for where that is missing.

    tests/licences.py [MANIFEST...]

Known advisories are not looked up: their database is no package registry.
"""

import json
import re
import subprocess
import sys
import tomllib

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def is_met(expression, allowed):
    """Whether the licences of an SPDX expression let a user keep to those allowed. AND binds closer than OR."""
    expression = expression.replace("/", " OR ")
    while "(" in expression:  # from the innermost on
        expression = re.sub(
            r"\(([^()]*)\)", lambda inner: "allowed" if is_met(inner[1], allowed) else "refused", expression
        )
    choices = (choice.split(" AND ") for choice in expression.split(" OR "))
    return any(all(term.strip() in allowed | {"allowed"} for term in choice) for choice in choices)


def main():
    with open("deny.toml", "rb") as file:
        allowed = set(tomllib.load(file)["licenses"]["allow"])
    faults, checked = set(), 0
    for manifest in sys.argv[1:] or ["Cargo.toml"]:
        command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", manifest]
        for package in json.loads(subprocess.check_output(command))["packages"]:
            name, checked = f"{package['name']} {package['version']}", checked + 1
            if not is_met(package["license"] or "", allowed):
                faults.add(f"{name}: its licence, {package['license']}, is not among those of deny.toml")
            if package["source"] not in (None, CRATES_IO):
                faults.add(f"{name}: comes from {package['source']}")
    assert is_met("(A OR B) AND C", {"B", "C"}) and not is_met("A AND B OR C", {"A"}), "expressions are misread"
    for fault in sorted(faults):
        print(fault, file=sys.stderr)
    print(f"{checked} crates, {len(faults)} faults")
    return bool(faults) or checked < 100


if __name__ == "__main__":
    sys.exit(main())
