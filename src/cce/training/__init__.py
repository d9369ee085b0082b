"""Training of a model whose tables are clustered on the way: configuration, loop, checkpoints.

Names are loaded when they are first used: the options of a run can be listed without torch.
"""

from typing import TYPE_CHECKING

from cce.lazy import lazy_names

if TYPE_CHECKING:
    from cce.training.checkpoint import Checkpoint, DamagedCheckpointError, list_checkpoints, open_checkpoint
    from cce.training.config import (
        GROUPS,
        MAY_CHANGE,
        MORE,
        STANDARD_INPUT,
        TrainConfig,
        check_names,
        make_config,
        parse_pairs,
        read_toml,
    )
    from cce.training.inspection import inspect_checkpoint, verify_run
    from cce.training.model import kept_random_state, load_model, read_schema
    from cce.training.phases import sizes_table
    from cce.training.refinalizing import curve_of_run, discard_rows, finalize_run
    from cce.training.resolving import ResolvedConfig, RunPlan, count_ids, plan_run, resolve
    from cce.training.scoring import Scores, score
    from cce.training.stopping import DivergedError
    from cce.training.trainer import Trainer

__getattr__, __dir__ = lazy_names(__name__)
