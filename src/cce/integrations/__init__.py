"""Other people's frameworks, one file each, which alone imports the package it is named after; import it by name.

`lightning` and `transformers`: callbacks that finalize. `torchrec`: a collection of bags. `loggers`: where a training
run sends its log besides its own folder.
"""

from cce.integrations.loggers import LOGGERS, Logger, finite_values, open_logger, register_logger
