"""The public data sets of CTR prediction as reczoo publishes them: columns, published settings and MD5 sums.

Zhu et al., "Open benchmarking for click-through rate prediction" (CIKM 2021); https://github.com/reczoo/Datasets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

INTEGERS = tuple(f"I{index}" for index in range(1, 14))
WORDS = tuple(f"C{index}" for index in range(1, 27))
AVAZU = (
    *("C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category"),
    *("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
    *(f"C{index}" for index in range(14, 22)),
)


@dataclass(frozen=True)
class PublicSet:
    """One data set: its files, and what its published setting makes of their columns."""

    name: str
    label: str
    categorical: tuple[str, ...]
    md5: Mapping[str, str] = field(repr=False)  # by file
    dense: tuple[str, ...] = ()
    multi_hot: tuple[str, ...] = ()
    derived: tuple[tuple[str, str, str], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    min_count: int = 1
    max_length: int | None = None

    @property
    def files(self) -> tuple[str, str, str]:
        """Of training, validation and test; without one for validation, published runs take that of the test."""
        return ("train.csv", "valid.csv" if "valid.csv" in self.md5 else "test.csv", "test.csv")

    @property
    def columns(self) -> set[str]:
        """The columns that are read."""
        made_of = {name: column for name, column, _ in self.derived}
        features = (*self.categorical, *self.multi_hot)
        return {self.label, *self.dense, *(made_of.get(name, name) for name in features)}


PUBLIC_SETS = (
    PublicSet(
        name="Criteo_x1",
        label="label",
        categorical=WORDS,
        dense=INTEGERS,
        md5={
            "train.csv": "30b89c1c7213013b92df52ec44f52dc5",
            "valid.csv": "f73c71fb3c4f66b6ebdfa032646bea72",
            "test.csv": "2c48b26e84c04a69b948082edae46f8c",
        },
    ),
    PublicSet(
        name="Criteo_x4",  # setting 001
        label="Label",
        categorical=(*INTEGERS, *WORDS),
        derived=tuple((name, name, "log-squared") for name in INTEGERS),
        min_count=10,
        md5={
            "train.csv": "4a53bb7cbc0e4ee25f9d6a73ed824b1a",
            "valid.csv": "fba5428b22895016e790e2dec623cb56",
            "test.csv": "cfc37da0d75c4d2d8778e76997df2976",
        },
    ),
    PublicSet(
        name="Avazu_x4",  # setting 001
        label="click",
        categorical=("hour", *AVAZU, "weekday", "weekend"),
        derived=(("hour", "hour", "hour"), ("weekday", "hour", "weekday"), ("weekend", "hour", "weekend")),
        min_count=2,
        md5={
            "train.csv": "de3a27264cdabf66adf09df82328ccaa",
            "valid.csv": "33232931d84d6452d3f956e936cab2c9",
            "test.csv": "3ebb774a9ca74d05919b84a3d402986d",
        },
    ),
    PublicSet(
        name="KuaiVideo_x1",
        label="is_click",
        categorical=("user_id", "item_id"),
        multi_hot=("pos_items", "neg_items"),
        shared=(("pos_items", "item_id"), ("neg_items", "item_id")),
        min_count=10,
        max_length=100,
        md5={"train.csv": "16f13734411532cc313caf2180bfcd56", "test.csv": "ba26c01caaf6c65c272af11aa451fc7a"},
    ),
    PublicSet(
        name="MicroVideo1.7M_x1",
        label="is_click",
        categorical=("user_id", "item_id", "cate_id"),
        multi_hot=("clicked_items", "clicked_categories"),
        shared=(("clicked_items", "item_id"), ("clicked_categories", "cate_id")),
        max_length=100,
        md5={"train.csv": "936e6612714c887e76226a60829b4e0a", "test.csv": "9417a18304fb62411ac27c26c5e0de56"},
    ),
    PublicSet(
        name="AmazonElectronics_x1",
        label="label",
        categorical=("item_id", "cate_id"),  # the user is for grouped scores only
        multi_hot=("item_history", "cate_history"),
        shared=(("item_history", "item_id"), ("cate_history", "cate_id")),
        max_length=100,
        md5={"train.csv": "e9bf80b92985e463db18fdc753d347b5", "test.csv": "57a20e82fe736dd495f2eaf0669bf6d0"},
    ),
)


def find_public_set(header: tuple[str, ...]) -> PublicSet | None:
    """The data set whose columns are among these."""
    return next((each for each in PUBLIC_SETS if each.columns <= set(header)), None)
