"""Other people's frameworks, one file each, which alone imports the package it is named after; import it by name.

`lightning`: callbacks. `transformers`: callbacks of Hugging Face's Trainer. `torchrec`: a collection of bags.
`loggers`: where a training run sends its log besides its own folder: TensorBoard, Weights & Biases, MLflow.
"""

from cce.integrations.loggers import LOGGERS, Logger, numbers_of, open_logger

__all__ = ["LOGGERS", "Logger", "numbers_of", "open_logger"]
