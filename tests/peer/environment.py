"""The Python environment of these scripts: target/peer-venv, which holds requirements.txt.

Imports nothing that only that environment has.
"""

import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = ROOT / "target" / "peer-venv"


def enter_venv():
    """Goes on in an environment that holds requirements.txt, made where it is not there."""
    wanted, stamp = HERE / "requirements.txt", VENV / "installed.txt"
    python = VENV / "bin" / "python"
    if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
        venv.create(VENV, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", wanted], check=True)
        stamp.write_bytes(wanted.read_bytes())
    if pathlib.Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(python, [python, *sys.argv])
