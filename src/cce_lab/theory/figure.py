"""A figure as plain data: named series of values, and what was claimed beside what was found."""

from dataclasses import dataclass, field

from cce.text import format_table

MOST_LINES = 12  # of a printed table


@dataclass(frozen=True)
class Series:
    """One line of a figure; `low` and `high` are a band around it, where there is one."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    is_reference: bool = False  # a bound or a baseline, not a run

    @property
    def is_level(self) -> bool:
        """Whether it is a baseline that is the same everywhere."""
        return self.is_reference and len(self.y) > 1 and len(set(self.y)) == 1


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

    def table(self) -> str:
        """The series side by side, at up to a dozen x values, and baselines below."""
        lines = [line for line in self.series if not line.is_level]
        positions = sorted({position for line in lines for position in line.x})
        count = min(len(positions), MOST_LINES)  # with the first and the last
        some = [positions[round(index * (len(positions) - 1) / max(count - 1, 1))] for index in range(count)]
        values = [dict(zip(line.x, line.y, strict=True)) for line in lines]
        rows = [
            [f"{position:g}", *(f"{found[position]:.4g}" if position in found else "" for found in values)]
            for position in some
        ]
        levels = [f"{line.name}: {line.y[0]:.4g}" for line in self.series if line.is_level]
        return "\n".join([format_table([self.x_label, *(line.name for line in lines)], rows), *levels])

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return "\n".join([self.title, settings, "", self.table(), "", *map(str, self.claims)])


def steps(name: str, y: tuple[float, ...] | list[float], *, is_reference: bool = False) -> Series:
    """A series over steps 0, 1, 2, …"""
    return Series(name, tuple(range(len(y))), tuple(y), is_reference=is_reference)


def level(name: str, y: float, last: int) -> Series:
    """A baseline: the same value at all steps."""
    return Series(name, tuple(range(last + 1)), (y,) * (last + 1), is_reference=True)
