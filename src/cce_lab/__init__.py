"""cce_lab: what studies embedding tables, beside the library: the paper's theory, and citations of methods.

It uses public names of `cce` only, and reaches the command line by the entry points that any plug-in has.
"""
