"""A figure as plain data: named series of values, and what was claimed beside what was found."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Series:
    """One line of a figure; `low` and `high` are a band around it, where there is one."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    is_reference: bool = False  # a bound or a baseline, not a run


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether it held here, and the evidence for it."""

    text: str
    held: bool
    numbers: str

    def __str__(self) -> str:
        return f"{'held' if self.held else 'did not hold'}: {self.text} ({self.numbers})"


@dataclass(frozen=True)
class Figure:
    """Everything there is to print or to draw."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    claims: tuple[Claim, ...]
    settings: dict[str, float | int | str] = field(default_factory=dict)
    log_y: bool = False

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return "\n".join([self.title, settings, "", *map(str, self.claims)])


def steps(name: str, y: tuple[float, ...] | list[float], *, is_reference: bool = False) -> Series:
    """A series over steps 0, 1, 2, …"""
    return Series(name, tuple(range(len(y))), tuple(y), is_reference=is_reference)


def level(name: str, y: float, last: int) -> Series:
    """A baseline: the same value at all steps."""
    return Series(name, tuple(range(last + 1)), (y,) * (last + 1), is_reference=True)
