"""The part of the suite that a machine could disturb, under settings that make this machine look like others.

`make test-settings` tries all of them, `python tests/settings.py avx2 threads-3` some, `--list` shows them. torch, MKL
and numba choose their loops by the CPU; these variables make them choose others. The last setting runs from a copy of
the checkout whose path has spaces, without a home folder, in another locale and time zone, with a strict umask.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUMS = ("embeddings", "kernels", "clustering", "optim", "collection", "models", "lab/theory", "test_docs.py")
RUNS = ("training", "distributed")
FILES = ("cli", "data", "lab/sweeps", "lab/report", "test_records.py", "test_package.py", "test_examples.py")
WHOLE = ("--maxfail=20", "--numprocesses=auto", "--maxprocesses=4", "--max-worker-restart=0", "--dist=loadfile")
WHOLE += ("--no-loadscope-reorder",)
CHEAP = (*WHOLE, "-k", "bits or threads or loss_curve or another_number_of_processes")  # slow or not


@dataclass(frozen=True)
class Setting:
    """Variables of the environment, and the tests that should not mind them."""

    about: str
    environment: dict[str, str]
    parts: tuple[str, ...]
    options: tuple[str, ...] = WHOLE
    is_elsewhere: bool = field(default=False)  # in a copy of the checkout, with a strict umask


OTHER = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "3", "PYTHONHASHSEED": "1"}
# Both together: a processor that has no fused multiply-add has none for torch nor for numba, and the optimizers of
# cce.optim give torch's bits with it and without it.
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "NUMBA_CPU_NAME": "generic"}
STRANGE = {"HOME": "/proc/nowhere", "LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "2"}
SETTINGS = {
    "cheap": Setting("what depends on threads, as on another CPU", OTHER, (*SUMS[:6], *RUNS), CHEAP),
    "generic": Setting("any x86-64 processor: no vector loops in torch, nothing new for numba", PLAIN, SUMS + RUNS),
    "avx2": Setting("no AVX-512", {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2"}, SUMS + RUNS),
    "compatible": Setting("MKL's portable loops", {"MKL_CBWR": "COMPATIBLE"}, SUMS + RUNS),
    "threads-1": Setting("one thread", {"OMP_NUM_THREADS": "1"}, SUMS + RUNS),
    "threads-2": Setting("two threads", {"OMP_NUM_THREADS": "2"}, SUMS + RUNS),
    "threads-3": Setting("three threads, more than some machines have cores", {"OMP_NUM_THREADS": "3"}, SUMS + RUNS),
    "elsewhere": Setting("another place, home, locale, zone, umask", STRANGE, RUNS + FILES, is_elsewhere=True),
}


def run(name: str, folder: Path, *, fast: bool = False) -> bool:
    """Whether the tests of a setting pass."""
    setting = SETTINGS[name]
    paths = os.pathsep.join([str(folder / "src"), os.environ.get("PYTHONPATH", "")])
    options = [*setting.options, *(("-m", "not slow") if fast else ())]
    command = [sys.executable, "-m", "pytest", "-q", *options, *(f"tests/{part}" for part in setting.parts)]
    variables = " ".join(f"{key}={value}" for key, value in setting.environment.items())
    print(f"== {name}: {setting.about} ({variables})", flush=True)
    started = time.monotonic()
    environment = os.environ | {"PYTHONPATH": paths} | setting.environment
    umask = 0o077 if setting.is_elsewhere else -1  # -1 leaves it
    result = subprocess.run(command, cwd=folder, env=environment, umask=umask)
    print(f"== {name}: {'passed' if result.returncode == 0 else 'FAILED'} in {time.monotonic() - started:.0f} s\n")
    return result.returncode == 0


def copy_checkout(folder: Path) -> Path:
    """The checkout without what it leaves out of git, in a path with spaces."""
    left_out = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    ignore = shutil.ignore_patterns(".git", "*.nbi", "*.nbc", *(name.rstrip("/") for name in left_out))
    return Path(shutil.copytree(ROOT, folder / "a path with spaces", ignore=ignore))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="settings to try (default: all)")
    parser.add_argument("--fast", action="store_true", help="leave out the tests that are marked slow")
    parser.add_argument("--list", action="store_true", help="show their names and do nothing")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{name:<12}{setting.about}" for name, setting in SETTINGS.items()))
        return 0
    if unknown := set(arguments.names) - SETTINGS.keys():
        parser.error(f"names must be of {', '.join(SETTINGS)}; got {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="cce-settings-") as place:
        failed = []
        for name in arguments.names or SETTINGS:
            folder = copy_checkout(Path(place)) if SETTINGS[name].is_elsewhere else ROOT
            if not run(name, folder, fast=arguments.fast):
                failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all settings passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
