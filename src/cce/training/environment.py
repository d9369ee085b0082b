"""Where a run ran: what is needed to judge its seconds, and to run it again."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from cce.version import __version__
from cce.workers import num_cores


def environment() -> dict[str, Any]:
    """Versions, the machine, and the commit of the package where it is a checkout."""
    return {
        "cce": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": num_cores(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _commit() -> str | None:
    """The commit of the checkout that this file is in, with a + if files were changed since; None without one."""
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "--short=12", "HEAD")
        tracked = _git(here, "ls-files", Path(__file__).name)
        return (head + ("+" if _git(here, "status", "--porcelain", "-uno") else "")) if tracked else None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _processor() -> str:
    """Its model, as Linux tells it; elsewhere, what Python knows."""
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()  # ARM has no such line, and Python often no word
