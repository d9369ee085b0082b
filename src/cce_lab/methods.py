"""The lab's methods, registered as a plug-in's are.

`cce.plugins.load_plugins(["cce_lab.methods"])`, `--plugin cce_lab.methods` in the shell, or `plugins` in a recipe. No
entry point announces them: verbs that do without torch would have to load it.
"""

from cce.embeddings import register_method
from cce_lab.variants import VARIANTS

for kind in VARIANTS:
    register_method(kind)
