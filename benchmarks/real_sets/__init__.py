"""Eight real data sets, two models, plain PyTorch loops: what `cce` by default loses or gains against full tables."""
