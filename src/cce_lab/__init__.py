"""cce_lab: studies of embedding tables, beside the library: recipes, sweeps, tuning, reports, theory and citations.

It uses public names of `cce` only, and reaches the command line by the entry points that any plug-in has. Names are
loaded when they are first used, so that help does not wait for torch.
"""

from typing import TYPE_CHECKING

from cce.lazy import lazy_names

if TYPE_CHECKING:
    from cce_lab.report.factors import compression_factor, factor_over_seeds
    from cce_lab.report.run_page import write_run_page
    from cce_lab.report.writing import make_report
    from cce_lab.sweeps.recipe import list_recipes, read_recipe
    from cce_lab.sweeps.running import Experiment, sweep
    from cce_lab.verbs.cite import cite, read_citations

__getattr__, __dir__ = lazy_names(__name__)
